// Watches the processes of the peers, so that nobody waits for one that has ended.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <peerless/bootstrap/concepts.hpp>

PEERLESS_BEGIN_NAMESPACE

// Owns one thread that sleeps in poll() on the peers' pidfds; where a peer has none, on the hang-up of its life line.
// A pidfd is the better sign and excludes the other: a child that a dead rank forked keeps a pipe open, and a live
// peer that has dropped everything hangs up. Neither says anything about a stopped process: that is for deadlines.
// The thread makes no CUDA call, holds no lock and blocks every signal. Not movable.
class liveness_watch {
 public:
  // Starts watching. Local, does not block. `peers` as given by a bootstrap, `self` the own rank; both are kept, so
  // that this rank looks alive to its peers as long as the watch exists. Handles without a descriptor are not watched.
  // `on_death(rank)` is called from the thread at most once a rank, within 200 ms of the end of its process, at once
  // for one that has ended already. `on_tick()` is called from the same thread every `tick` (1 ms to 1 h), later
  // when a callback takes longer. Callbacks must return soon and must not destroy the watch; what they throw is
  // dropped. Throws errc::system_error when no descriptor or thread is left.
  liveness_watch(std::vector<peer_handle> peers, int self, std::function<void(int)> on_death,
                 std::function<void()> on_tick = {}, std::chrono::milliseconds tick = std::chrono::milliseconds(1000))
      : peers_(std::move(peers)),
        self_(self),
        on_death_(std::move(on_death)),
        on_tick_(std::move(on_tick)),
        tick_(std::clamp<std::chrono::milliseconds>(tick, std::chrono::milliseconds(1), std::chrono::hours(1))),
        owner_(::getpid()),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!stop_) detail::raise_errno(errno, "eventfd for the liveness watch");
    // The mask is inherited by the new thread: signals of the application never land in it.
    ::sigset_t all;
    ::sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = 0;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& caught) {
      failure = caught.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failure != 0) detail::raise_errno(failure, "starting the liveness watch");
  }

  liveness_watch(const liveness_watch&) = delete;
  liveness_watch& operator=(const liveness_watch&) = delete;

  // Stops and joins: blocks at most for a callback that is running. In a forked child, where the thread does not
  // exist, only the descriptors are closed: signalling would stop the watch of the parent.
  ~liveness_watch() {
    if (::getpid() != owner_) {
      thread_.detach();
      return;
    }
    const std::uint64_t one = 1;
    while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }

  // True when the end of this rank's process would be noticed. Local.
  bool watches(int rank) const noexcept {
    if (rank == self_ || rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return false;
    const peer_handle& peer = peers_[static_cast<std::size_t>(rank)];
    return static_cast<bool>(peer.process) || static_cast<bool>(peer.hang_up);
  }

 private:
  using clock = std::chrono::steady_clock;

  void run() noexcept {
    ::pthread_setname_np(::pthread_self(), "peerless-alive");
    std::vector<::pollfd> polled;
    std::vector<int> ranks;
    polled.push_back({stop_.get(), POLLIN, 0});
    ranks.push_back(-1);
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      if (!watches(rank)) continue;
      const peer_handle& peer = peers_[static_cast<std::size_t>(rank)];
      if (peer.process) {
        polled.push_back({peer.process.get(), POLLIN, 0});
      } else {
        polled.push_back({peer.hang_up.get(), 0, 0});  // POLLHUP needs no request
      }
      ranks.push_back(rank);
    }
    clock::time_point next_tick = clock::now() + tick_;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - clock::now()).count();
      const int timeout = left <= 0 ? 0 : static_cast<int>(left < INT_MAX ? left : INT_MAX);
      const int ready = ::poll(polled.data(), static_cast<::nfds_t>(polled.size()), timeout);
      if (ready < 0 && errno != EINTR)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // ENOMEM: no hot loop
      if (ready > 0 && polled[0].revents != 0) return;
      for (std::size_t i = 1; ready > 0 && i < polled.size(); ++i) {
        if (polled[i].revents == 0 || polled[i].fd < 0) continue;
        polled[i].fd = -1;  // poll() skips it from now on: once a rank
        guarded([&] {
          if (on_death_) on_death_(ranks[i]);
        });
      }
      if (clock::now() >= next_tick) {
        guarded([&] {
          if (on_tick_) on_tick_();
        });
        next_tick = clock::now() + tick_;
      }
    }
  }

  template <class F>
  static void guarded(F&& callback) noexcept {
    try {
      callback();
    } catch (...) {  // there is nobody to tell
    }
  }

  std::vector<peer_handle> peers_;
  int self_;
  std::function<void(int)> on_death_;
  std::function<void()> on_tick_;
  std::chrono::milliseconds tick_;
  ::pid_t owner_;
  unique_fd stop_;
  std::thread thread_;
};

PEERLESS_END_NAMESPACE
