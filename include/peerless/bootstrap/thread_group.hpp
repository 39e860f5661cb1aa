// The bootstrap of ranks that are threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <peerless/bootstrap/concepts.hpp>
#include <peerless/bootstrap/detail/missing.hpp>
#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The meeting place of a thread group. Calls are tiny and rare, so one mutex guards everything, copies included.
// Rounds alternate between two stores: a rank that has left round g may fill round g + 1 while others still read g,
// and nobody can reach g + 2 before all have left g.
class thread_rounds {
 public:
  explicit thread_rounds(int size)
      : size_(size),
        taken_(static_cast<std::size_t>(size)),
        arrived_(static_cast<std::size_t>(size)),
        left_(static_cast<std::size_t>(size)) {}

  int size() const noexcept { return size_; }

  void take(int rank) {
    const std::lock_guard lock(mutex_);
    if (taken_[index(rank)]) {
      throw error(errc::invalid_usage,
                  "rank " + std::to_string(rank) + " of this thread group is in use by another thread", rank);
    }
    taken_[index(rank)] = true;
    left_[index(rank)] = false;
  }

  // `unwinding`: the thread is being unwound by an exception and will not come back. Tells the waiting ranks now.
  void leave(int rank, bool unwinding) noexcept {
    const std::lock_guard lock(mutex_);
    taken_[index(rank)] = false;
    if (!unwinding) return;
    left_[index(rank)] = true;
    met_.notify_all();
  }

  // One round. `what` names the call, `root` its root (-1: none); `fd` is the root's descriptor. Blocks to `limit`.
  unique_fd meet(int rank, std::string_view what, int root, std::span<const std::byte> mine, std::span<std::byte> all,
                 int fd, deadline limit) {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    if (arrived_[index(rank)]) {
      fail(errc::invalid_usage, "rank " + std::to_string(rank) + " entered " + std::string(what) + " twice at once",
           rank);
    }
    store& round = stores_[generation_ % 2];
    if (arrivals_ == 0) {
      round.what = what;
      round.root = root;
      round.first = rank;
      round.bytes = mine.size();
      round.data.resize(mine.size() * static_cast<std::size_t>(size_));
      round.fd.reset();
    } else if (round.what != what || round.root != root || round.bytes != mine.size()) {
      fail(errc::rendezvous_mismatch,
           describe_call(round.first, round.what, round.root, round.bytes) + ", " +
               describe_call(rank, std::string(what), root, mine.size()),
           rank);
    }
    if (rank == root) {
      try {
        round.fd = unique_fd::duplicate(fd);
      } catch (const error& caught) {
        fail(caught.code(), "rank " + std::to_string(rank) + ": " + caught.message(), rank, caught.native_code());
      }
    }
    if (!mine.empty()) std::memcpy(round.data.data() + mine.size() * index(rank), mine.data(), mine.size());
    arrived_[index(rank)] = true;
    if (++arrivals_ == size_) {
      arrivals_ = 0;
      arrived_.assign(arrived_.size(), false);
      ++generation_;
      met_.notify_all();
    } else {
      wait(lock, generation_, limit);
    }
    if (!round.data.empty()) std::memcpy(all.data(), round.data.data(), round.data.size());
    return round.fd.duplicate();
  }

 private:
  struct store {
    std::string what;
    int root = -1;
    int first = -1;
    std::size_t bytes = 0;
    std::vector<std::byte> data;
    unique_fd fd;
  };

  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

  void wait(std::unique_lock<std::mutex>& lock, std::uint64_t round, deadline limit) {
    while (generation_ == round) {
      throw_if_failed();
      for (int rank = 0; rank < size_; ++rank) {
        if (left_[index(rank)] && !arrived_[index(rank)]) {
          fail(errc::peer_closed, "the thread of rank " + std::to_string(rank) + " left the group by an exception",
               rank);
        }
      }
      // Capped: some libraries overflow when they convert the end of the clock's range.
      const deadline slice = earlier(limit, deadline::after(std::chrono::seconds(60)));
      if (met_.wait_until(lock, slice.when()) == std::cv_status::timeout && limit.expired() && generation_ == round) {
        throw_if_failed();
        const std::vector<int> absent = missing_ranks(arrived_);
        fail(errc::rendezvous_timeout, describe_missing(absent, size_), absent.front());
      }
    }
  }

  void throw_if_failed() const {
    if (failure_) throw *failure_;
  }

  // Keeps the failure for all later calls, wakes everybody and throws it. Called with the mutex held.
  [[noreturn]] void fail(errc code, std::string message, int rank, int native_code = 0) {
    failure_.emplace(code, std::move(message), rank, native_code);
    met_.notify_all();
    throw *failure_;
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<bool> taken_;
  std::vector<bool> arrived_;
  std::vector<bool> left_;
  int arrivals_ = 0;
  std::uint64_t generation_ = 0;
  store stores_[2];
  std::optional<error> failure_;
};

}  // namespace detail

// One rank of a thread group: models `bootstrap`, used by one thread at a time. Keeps the shared state alive, so it may
// outlive the group. Move-only. Destroying it gives the rank back; while an exception unwinds the thread, ranks that
// wait for this one fail at once with errc::peer_closed instead of at their deadline.
class thread_bootstrap {
 public:
  thread_bootstrap(thread_bootstrap&& other) noexcept = default;
  thread_bootstrap& operator=(thread_bootstrap&&) = delete;
  ~thread_bootstrap() {
    if (rounds_) rounds_->leave(rank_, std::uncaught_exceptions() > exceptions_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return rounds_->size(); }
  bool same_process() const noexcept { return true; }

  // Collective; see concept `bootstrap`. Also throws errc::invalid_argument when `all` has not size() * mine.size()
  // bytes.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, deadline limit) {
    if (all.size() != mine.size() * static_cast<std::size_t>(size())) {
      throw error(errc::invalid_argument, "all_gather: the result holds " + std::to_string(all.size()) + " bytes for " +
                                              std::to_string(size()) + " contributions of " +
                                              std::to_string(mine.size()));
    }
    rounds_->meet(rank_, "all_gather", -1, mine, all, -1, limit);
  }

  // Collective; see concept `bootstrap`.
  void barrier(deadline limit) { rounds_->meet(rank_, "barrier", -1, {}, {}, -1, limit); }

  // Collective; see concept `bootstrap`. A bad descriptor of the root fails on every rank with errc::system_error.
  unique_fd broadcast_fd(int fd, int root, deadline limit) {
    if (root < 0 || root >= size()) throw error(errc::invalid_argument, "broadcast_fd: root " + std::to_string(root));
    return rounds_->meet(rank_, "broadcast_fd", root, {}, {}, fd, limit);
  }

  // Threads end with their process: there is nothing to watch, every handle is empty.
  std::vector<peer_handle> peers() const {
    std::vector<peer_handle> all(static_cast<std::size_t>(size()));
    for (peer_handle& peer : all) peer.pid = ::getpid();
    return all;
  }

 private:
  friend class thread_group;
  thread_bootstrap(std::shared_ptr<detail::thread_rounds> rounds, int rank) : rounds_(std::move(rounds)), rank_(rank) {
    rounds_->take(rank_);
  }

  std::shared_ptr<detail::thread_rounds> rounds_;
  int rank_;
  int exceptions_ = std::uncaught_exceptions();
};

static_assert(bootstrap<thread_bootstrap>);

// A group of `world_size` threads of this process. Made once, before or by any thread; every thread then takes its
// rank:
//   thread_group group(4);
//   std::thread([&group, r] { auto boot = group.rank(r); ... });
class thread_group {
 public:
  // Throws errc::invalid_argument when `world_size` < 1. Does not block.
  explicit thread_group(int world_size) {
    if (world_size < 1)
      throw error(errc::invalid_argument, "a thread group of " + std::to_string(world_size) + " ranks");
    rounds_ = std::make_shared<detail::thread_rounds>(world_size);
  }

  int size() const noexcept { return rounds_->size(); }

  // Any thread, at any time; does not block. Throws errc::invalid_argument when `rank` is out of range, and
  // errc::invalid_usage while another thread_bootstrap of that rank exists.
  thread_bootstrap rank(int rank) const {
    if (rank < 0 || rank >= size()) {
      throw error(errc::invalid_argument,
                  "rank " + std::to_string(rank) + " of a thread group of " + std::to_string(size()), rank);
    }
    return thread_bootstrap(rounds_, rank);
  }

 private:
  std::shared_ptr<detail::thread_rounds> rounds_;
};

PEERLESS_END_NAMESPACE
