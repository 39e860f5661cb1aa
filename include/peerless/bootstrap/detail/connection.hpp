// One end of a stream socket that carries frames and descriptors, never blocking.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <peerless/bootstrap/detail/wire.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Buffers both directions: send() queues, pump_out() and pump_in() move what the kernel takes or has, next() takes a
// whole frame. The caller polls. Whatever the other end does (silence, garbage, half a frame, too many descriptors,
// SIGKILL), no member blocks or throws for it: the connection becomes closed(), with the reason in complaint().
class connection {
 public:
  explicit connection(unique_fd socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }
  // No further frame will come or go: the other end has closed, or has been dropped for talking nonsense.
  bool closed() const noexcept { return closed_; }
  // Why it was dropped; empty after an ordinary end.
  const std::string& complaint() const noexcept { return complaint_; }
  bool has_output() const noexcept { return !out_.empty() && !closed_; }
  // The kernel is short of something but room in the socket, so that poll() does not help: try again a little later.
  bool congested() const noexcept { return congested_; }

  // Longest payload accepted from now on.
  void accept_payload(std::uint64_t bytes) noexcept { longest_payload_ = bytes; }

  // Queues a message; its descriptors are owned until they are sent. The bytes may be shared among connections.
  void send(std::shared_ptr<const std::vector<std::byte>> bytes, std::vector<unique_fd> fds = {}) {
    out_.push_back({std::move(bytes), 0, std::move(fds)});
  }
  void send(std::vector<std::byte> bytes, std::vector<unique_fd> fds = {}) {
    send(std::make_shared<const std::vector<std::byte>>(std::move(bytes)), std::move(fds));
  }

  // Sends what fits into the socket now.
  void pump_out() {
    congested_ = false;
    while (has_output()) {
      message& first = out_.front();
      const ::ssize_t sent = send_some(first);
      if (sent < 0) {
        if (errno == EINTR) continue;
        // ETOOMANYREFS: too many descriptors of this user are in flight; like a full socket, it passes.
        congested_ = errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM;
        if (congested_ || errno == EAGAIN || errno == EWOULDBLOCK) return;
        // The other end is gone. What it said before can still be read.
        out_.clear();
        return;
      }
      first.done += static_cast<std::size_t>(sent);
      first.fds.clear();  // they go with the first byte
      if (first.done == first.bytes->size()) out_.pop_front();
    }
  }

  // Receives what is there now, up to the end of the first whole frame. Ask next() before polling again: while a whole
  // frame waits here, events() does not look for input.
  void pump_in() {
    while (!closed_ && !frame_complete()) {
      std::byte chunk[16384];
      const ::ssize_t got = receive_some(chunk);
      if (got < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        closed_ = true;  // ECONNRESET: the other end closed with our words unread
        return;
      }
      if (got == 0) {
        closed_ = true;
        return;
      }
      in_.insert(in_.end(), chunk, chunk + got);
      check_header();
    }
  }

  // True when next() has a frame: then the socket need not be read for now.
  bool frame_complete() const noexcept {
    return in_.size() >= sizeof(frame_header) && in_.size() - sizeof(frame_header) >= header().payload_bytes &&
           complaint_.empty();
  }

  // Takes the first whole frame, if there is one; also after the other end has closed.
  std::optional<frame> next() {
    if (!frame_complete()) return std::nullopt;
    frame taken;
    taken.header = header();
    const std::size_t end = sizeof(frame_header) + static_cast<std::size_t>(taken.header.payload_bytes);
    taken.payload.assign(in_.begin() + sizeof(frame_header), in_.begin() + static_cast<std::ptrdiff_t>(end));
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(end));
    const std::size_t fds = std::min<std::size_t>(taken.header.fds, in_fds_.size());
    std::move(in_fds_.begin(), in_fds_.begin() + static_cast<std::ptrdiff_t>(fds), std::back_inserter(taken.fds));
    in_fds_.erase(in_fds_.begin(), in_fds_.begin() + static_cast<std::ptrdiff_t>(fds));
    check_header();
    return taken;
  }

  // Which events poll() should look for.
  short events() const noexcept {
    if (closed_) return 0;
    return static_cast<short>((frame_complete() ? 0 : POLLIN) | (has_output() && !congested_ ? POLLOUT : 0));
  }

 private:
  struct message {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    std::size_t done;
    std::vector<unique_fd> fds;
  };

  frame_header header() const noexcept {
    frame_header value;
    std::memcpy(&value, in_.data(), sizeof(value));
    return value;
  }

  void drop(std::string why) {
    complaint_ = std::move(why);
    closed_ = true;
    in_.clear();
    in_fds_.clear();
    out_.clear();
  }

  // A stranger is dropped at its first wrong bytes, before it can make us wait or allocate.
  void check_header() {
    if (closed_ || in_.empty()) return;
    const std::size_t known = std::min(in_.size(), sizeof(wire_magic));
    if (std::memcmp(in_.data(), &wire_magic, known) != 0) return drop("it does not speak this protocol");
    if (in_.size() < sizeof(frame_header)) return;
    if (header().payload_bytes > longest_payload_)
      return drop("it announces a message of " + std::to_string(header().payload_bytes) + " bytes");
    if (header().fds > max_frame_fds) return drop("it announces " + std::to_string(header().fds) + " descriptors");
  }

  ::ssize_t send_some(const message& first) const {
    ::iovec piece = {const_cast<std::byte*>(first.bytes->data()) + first.done, first.bytes->size() - first.done};
    ::msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    alignas(::cmsghdr) char control[CMSG_SPACE(max_frame_fds * sizeof(int))];
    if (!first.fds.empty()) {
      const std::size_t bytes = first.fds.size() * sizeof(int);
      std::memset(control, 0, CMSG_SPACE(bytes));
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(bytes);
      ::cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(bytes);
      for (std::size_t i = 0; i < first.fds.size(); ++i) {
        const int fd = first.fds[i].get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
      }
    }
    return ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  ::ssize_t receive_some(std::span<std::byte> chunk) {
    ::iovec piece = {chunk.data(), chunk.size()};
    alignas(::cmsghdr) char control[CMSG_SPACE(max_frame_fds * sizeof(int))];
    ::msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ::ssize_t got = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (::cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr; rights = CMSG_NXTHDR(&header, rights)) {
      if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
        in_fds_.emplace_back(fd);
      }
    }
    if (in_fds_.size() > max_frame_fds) in_fds_.clear();  // a peer that floods; its frame will lack them
    return got;
  }

  unique_fd socket_;
  bool closed_ = false;
  bool congested_ = false;
  std::string complaint_;
  std::uint64_t longest_payload_ = max_hello_bytes;
  std::vector<std::byte> in_;
  std::vector<unique_fd> in_fds_;
  std::deque<message> out_;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
