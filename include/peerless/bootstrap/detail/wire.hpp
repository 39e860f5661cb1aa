// What the ranks of one host say to each other: framed messages over a stream socket.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <peerless/bootstrap/job_identity.hpp>
#include <peerless/core/deadline.hpp>
#include <peerless/core/error.hpp>
#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// "PEERLESS" in the byte order of the machine: sender and receiver are one machine.
inline constexpr std::uint64_t wire_magic = 0x5353454c52454550ull;

// Raised with every change of the structures below but frame_header, which stays: two versions must be able to tell
// each other that they differ.
inline constexpr std::uint32_t wire_version = 1;

// Two descriptors a rank travel in one message, of which the kernel takes 253.
inline constexpr int max_host_ranks = 64;
inline constexpr std::size_t max_frame_fds = 2 * max_host_ranks;

// Bound on what a frame may claim: far above any use (tables of a few kilobytes), far below harm.
inline constexpr std::uint64_t max_payload_bytes = std::uint64_t{64} << 20;
// Before a client has said who it is, it may send no more than a hello.
inline constexpr std::uint64_t max_hello_bytes = 4096;

enum class frame_kind : std::uint16_t {
  hello = 1,
  welcome = 2,
  all_gather = 3,
  barrier = 4,
  broadcast_fd = 5,
  verdict = 6
};

constexpr std::string_view describe(frame_kind kind) {
  switch (kind) {
    case frame_kind::hello: return "hello";
    case frame_kind::welcome: return "welcome";
    case frame_kind::all_gather: return "all_gather";
    case frame_kind::barrier: return "barrier";
    case frame_kind::broadcast_fd: return "broadcast_fd";
    case frame_kind::verdict: return "verdict";
  }
  return "?";
}

// Begins every message. With a status other than ok the payload is the text of the error.
struct frame_header {
  std::uint64_t magic = wire_magic;
  std::uint32_t version = wire_version;
  frame_kind kind = frame_kind::verdict;
  std::uint16_t fds = 0;           // descriptors that travel with this frame
  std::uint32_t status = 0;        // errc
  std::int32_t rank = -1;          // the sender; with a status: the rank that the error is about
  std::int32_t native_code = 0;    // with a status: errno
  std::int32_t root = -1;          // broadcast_fd
  std::uint64_t sequence = 0;      // number of this collective, from 1; 0 before
  std::uint64_t remaining_ms = 0;  // time that the sender still has
  std::uint64_t payload_bytes = 0;
};
static_assert(sizeof(frame_header) == 56 && std::is_trivially_copyable_v<frame_header>);

// First words of a rank. Carries its pidfd (if it has one) and the read end of its life line.
struct hello {
  std::uint64_t layout_hash;
  job_key key;
  std::int32_t rank;
  std::int32_t size;
  std::int64_t pid;
  std::uint32_t has_pidfd;
  std::uint32_t reserved;
};
static_assert(sizeof(hello) == 48 && std::is_trivially_copyable_v<hello>);

// What the welcome says of each rank, in rank order; its descriptors follow in the same order.
struct welcome_entry {
  std::int64_t pid;
  std::uint32_t has_pidfd;
  std::uint32_t reserved;
};

// A message as received.
struct frame {
  frame_header header;
  std::vector<std::byte> payload;
  std::vector<unique_fd> fds;

  errc status() const noexcept { return static_cast<errc>(header.status); }
  std::string text() const { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }

  // The payload as a T. Only after its size has been checked.
  template <class T>
  T as() const noexcept {
    T value;
    std::memcpy(&value, payload.data(), sizeof(T));
    return value;
  }
};

// Header and payload in one piece, ready to be sent.
inline std::vector<std::byte> encode(frame_header header, std::span<const std::byte> payload) {
  header.payload_bytes = payload.size();
  std::vector<std::byte> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof(header), payload.data(), payload.size());
  return bytes;
}

// An error that is told to another rank.
inline std::vector<std::byte> encode(const error& failure) {
  frame_header header;
  header.kind = frame_kind::verdict;
  header.status = static_cast<std::uint32_t>(failure.code());
  header.rank = failure.rank();
  header.native_code = failure.native_code();
  const std::string_view text = std::string_view(failure.message()).substr(0, max_hello_bytes / 2);
  return encode(header, std::as_bytes(std::span(text)));
}

// The error that a frame with a status tells.
inline error decode_error(const frame& message) {
  return error(message.status(), message.text(), message.header.rank, message.header.native_code);
}

// Rank 0 speaks its verdict this much before the earliest limit of the ranks, so that it reaches them within theirs.
inline deadline verdict_limit(std::chrono::milliseconds remaining) {
  const auto margin = std::min<std::chrono::milliseconds>(remaining / 8, std::chrono::milliseconds(250));
  return deadline::after(remaining - margin);
}

}  // namespace detail

PEERLESS_END_NAMESPACE
