// What every rank of a group on one host holds, whether it is the hub or a spoke of the star.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <peerless/bootstrap/concepts.hpp>
#include <peerless/bootstrap/detail/connection.hpp>
#include <peerless/bootstrap/detail/process.hpp>
#include <peerless/bootstrap/detail/wire.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// One rank as the others know it.
struct host_member {
  ::pid_t pid = 0;
  unique_fd process;  // pidfd, or none
  unique_fd life;     // read end of its life line, or none (own rank)
};

struct host_group {
  job_identity identity;
  int rank = 0;
  int size = 1;
  std::uint64_t layout_hash = 0;
  bool use_pidfd = true;
  std::chrono::milliseconds refusal_grace{0};
  std::vector<host_member> members;  // by rank; complete after the rendezvous
  life_line own_life;                // peers' end is dropped once it has been handed out
  unique_fd own_process;
  unique_fd marker;  // rank 0: see job_marker.hpp

  host_member& member(int of) { return members[static_cast<std::size_t>(of)]; }

  // Makes what this rank shows of itself.
  void prepare() {
    members.resize(static_cast<std::size_t>(size));
    own_life = life_line::make();
    if (use_pidfd) own_process = open_pidfd(::getpid());
  }

  // Drops what only the rendezvous needed and fills in the own entry.
  void settle() {
    own_life.peers.reset();
    own_process.reset();
    member(rank) = host_member{.pid = ::getpid(), .process = unique_fd(), .life = unique_fd()};
  }
};

// One collective call as this rank made it.
struct host_call {
  frame_kind kind = frame_kind::barrier;
  int root = -1;                         // broadcast_fd
  int fd = -1;                           // broadcast_fd, of the root
  std::span<const std::byte> mine = {};  // all_gather
  std::span<std::byte> all = {};         // all_gather
  std::uint64_t sequence = 0;
};

// The error for a rank whose line has closed or whose process has ended. A closed line alone does not tell whether the
// process still lives; a killed process closes its sockets slightly before its pidfd tells. Waits at most 200 ms.
inline error lost_rank(host_member& member, int rank) {
  const deadline soon = deadline::after(std::chrono::milliseconds(200));
  const std::string who = "rank " + std::to_string(rank) + " (pid " + std::to_string(member.pid) + ")";
  bool ended = false;
  if (member.process) {
    ended = has_ended(member.process, soon);
  } else if (member.life) {
    ::pollfd polled = {member.life.get(), 0, 0};
    ended = poll_until(&polled, 1, soon);
  }
  if (ended) return error(errc::peer_died, who + " has ended", rank);
  return error(errc::peer_closed, who + " has left the group while others wait for it", rank);
}

// Everything a rank waits for: lines that have news or room, processes that end.
class poll_set {
 public:
  void clear() noexcept {
    polled_.clear();
    congested_ = false;
  }
  void add(const connection& line) {
    if (!line.closed()) polled_.push_back({line.fd(), line.events(), 0});
    congested_ = congested_ || line.congested();
  }
  void add_process(const unique_fd& process) {
    if (process) polled_.push_back({process.get(), POLLIN, 0});
  }
  void add_listener(const unique_fd& listener) {
    if (listener) polled_.push_back({listener.get(), POLLIN, 0});
  }

  // False when `limit` has passed with no news.
  bool wait(deadline limit) {
    if (!congested_) return poll_until(polled_.data(), polled_.size(), limit);
    poll_until(polled_.data(), polled_.size(), earlier(limit, deadline::after(std::chrono::milliseconds(2))));
    return !limit.expired();
  }

 private:
  std::vector<::pollfd> polled_;
  bool congested_ = false;
};

// Sends all that is queued on `lines` (null: skipped); false when `limit` has passed first. Dead lines do not count.
inline bool flush(std::span<const std::unique_ptr<connection>> lines, deadline limit) {
  poll_set waiting;
  for (;;) {
    waiting.clear();
    bool left = false;
    for (const auto& line : lines) {
      if (!line) continue;
      line->pump_out();
      if (!line->has_output()) continue;
      left = true;
      waiting.add(*line);
    }
    if (!left) return true;
    if (!waiting.wait(limit)) return false;
    for (const auto& line : lines) {
      if (line && line->has_output()) line->pump_in();  // notices an end that POLLHUP would report again and again
    }
  }
}

}  // namespace detail

PEERLESS_END_NAMESPACE
