// The contract of a bootstrap: how the ranks of one group find each other before any transport exists.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <sys/types.h>

#include <peerless/core/deadline.hpp>
#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

// How one rank's process can be watched. Every descriptor is owned by the holder of the value and independent of the
// bootstrap that gave it. Of the own rank: `process` is none and `hang_up` is the write end of its own life line,
// which must be held for as long as this process wants to count as alive to peers that have no pidfd of it.
struct peer_handle {
  unique_fd process;  // pidfd, readable once the process has ended; none for threads and without kernel support
  unique_fd hang_up;  // read end of a pipe that only the peer holds open for writing: hangs up when it ends; or none
  ::pid_t pid = 0;    // as the peer sees itself; for messages only, it may be of another pid namespace
};

// A group of ranks 0 .. size() - 1 that can exchange small values, descriptors and meet. All ranks call the collective
// members in the same order, from one thread at a time. A collective blocks until every rank has called it or `limit`
// has passed, and fails on all ranks alike:
//   errc::rendezvous_timeout   a rank did not come in time; the message names the missing ranks
//   errc::peer_died            the process of rank() has ended
//   errc::peer_closed          rank() left the group while others still wait for it
//   errc::rendezvous_mismatch  ranks met in different calls or with different sizes; the message has both
// The limits of the ranks may differ: the earliest counts. Failure is sticky: later collectives throw the same error.
template <class B>
concept bootstrap = requires(B& group, const B& view, std::span<const std::byte> mine, std::span<std::byte> all, int fd,
                             int root, deadline limit) {
  // This process's or thread's place, 0 <= rank() < size(). Local.
  { view.rank() } -> std::same_as<int>;
  { view.size() } -> std::same_as<int>;
  // True when the ranks are threads of one process. Local.
  { view.same_process() } -> std::same_as<bool>;
  // Collective. all.size() == size() * mine.size(), in rank order; mine.size() is equal on all ranks and may be 0.
  { group.all_gather(mine, all, limit) } -> std::same_as<void>;
  // Collective. No rank returns before every rank has entered.
  { group.barrier(limit) } -> std::same_as<void>;
  // Collective. `root` gives a descriptor and keeps it, the others' `fd` is ignored (say -1). Every rank, the root
  // included, gets a descriptor of its own of the same open file, closed on exec.
  { group.broadcast_fd(fd, root, limit) } -> std::same_as<unique_fd>;
  // One handle a rank, in rank order; fresh descriptors at every call. Local. Throws errc::system_error (EMFILE).
  { view.peers() } -> std::same_as<std::vector<peer_handle>>;
};

// Collective: one value of every rank, in rank order. Blocks and fails as B::all_gather.
template <class T, bootstrap B>
  requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>
std::vector<T> all_gather_value(B& group, const T& mine, deadline limit) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)), limit);
  return all;
}

PEERLESS_END_NAMESPACE
