// The first words of a rank to rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <peerless/bootstrap/detail/host_group.hpp>
#include <peerless/bootstrap/detail/socket.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The hello of this rank, with fresh duplicates of its pidfd and life line.
inline void send_hello(connection& line, const host_group& group, deadline limit) {
  std::vector<unique_fd> fds;
  if (group.own_process) fds.push_back(group.own_process.duplicate());
  fds.push_back(group.own_life.peers.duplicate());
  frame_header header;
  header.kind = frame_kind::hello;
  header.fds = static_cast<std::uint16_t>(fds.size());
  header.rank = group.rank;
  header.remaining_ms = static_cast<std::uint64_t>(limit.remaining().count());
  hello words = {};
  words.layout_hash = group.layout_hash;
  words.key = job_key::of(group.identity.text);
  words.rank = group.rank;
  words.size = group.size;
  words.pid = ::getpid();
  words.has_pidfd = group.own_process ? 1 : 0;
  line.send(encode(header, std::as_bytes(std::span(&words, 1))), std::move(fds));
}

// How an attempt to greet rank 0 ended.
struct greeting {
  enum class outcome {
    nobody,    // nobody listens, or the listener went away without a word: worth another try
    answered,  // `answer` is a welcome or a verdict
    silent,    // connected, but no answer before the limit
    stranger,  // the other end is of another user, or does not speak this protocol: `about` says which
    died,      // the process that listened has ended
  };
  outcome result = outcome::nobody;
  std::unique_ptr<connection> line = nullptr;  // answered
  std::optional<frame> answer = std::nullopt;
  std::string about = {};
};

// Connects once, says hello and waits for the answer until `limit`. Throws errc::system_error (no descriptors left).
inline greeting greet(const host_group& group, const abstract_address& where, deadline limit) {
  using outcome = greeting::outcome;
  unique_fd socket = connect_to(where);
  if (!socket) return {};
  const ::ucred other = credentials_of(socket.get());
  const std::string who = "process " + std::to_string(other.pid) + " of user " + std::to_string(other.uid);
  if (other.uid != ::geteuid()) return {outcome::stranger, nullptr, std::nullopt, who + ", another user"};
  const unique_fd process = group.use_pidfd ? open_peer_pidfd(socket.get(), other.pid) : unique_fd();

  auto line = std::make_unique<connection>(std::move(socket));
  line->accept_payload(max_payload_bytes);
  send_hello(*line, group, limit);
  poll_set waiting;
  for (;;) {
    line->pump_out();
    line->pump_in();
    if (std::optional<frame> answer = line->next()) {
      if (answer->header.kind == frame_kind::welcome || answer->status() != errc::ok) {
        return {outcome::answered, std::move(line), std::move(answer), who};
      }
      return {outcome::stranger, nullptr, std::nullopt, who + ", which answers out of turn"};
    }
    if (!line->complaint().empty()) return {outcome::stranger, nullptr, std::nullopt, who + ": " + line->complaint()};
    // A process that is killed closes its sockets slightly before it counts as ended.
    const deadline soon = deadline::after(std::chrono::milliseconds(line->closed() ? 200 : 0));
    if (process ? has_ended(process, soon) : line->closed() && looks_ended(other.pid, soon)) {
      line->pump_in();  // its last words
      if (line->frame_complete()) continue;
      return {outcome::died, nullptr, std::nullopt, who};
    }
    if (line->closed()) return {};
    waiting.clear();
    waiting.add(*line);
    waiting.add_process(process);
    if (limit.expired() || !waiting.wait(limit)) return {outcome::silent, nullptr, std::nullopt, who};
  }
}

}  // namespace detail

PEERLESS_END_NAMESPACE
