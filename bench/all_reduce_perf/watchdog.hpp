// An end to every step, also to those of libraries that know no deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include "exit_code.hpp"

namespace peerless::bench {

// One a rank. A step that outlasts the bound ends the process with exit_failed, after a line that names rank and step:
// the last resort, when no error came from where the step waits. Not movable.
class watchdog {
 public:
  // `bound` is of one step. Starts a thread that sleeps.
  watchdog(int rank, std::chrono::milliseconds bound) : rank_(rank), bound_(bound), thread_([this] { watch(); }) {}

  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  // Begins the next step and ends the one before; an empty name only ends it. From the rank's own thread.
  void step(std::string name) {
    {
      const std::lock_guard lock(mutex_);
      name_ = std::move(name);
      until_ = std::chrono::steady_clock::now() + bound_;
    }
    changed_.notify_one();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (name_.empty()) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() < until_) {
        const auto until = until_;
        changed_.wait_until(lock, until);
      } else {
        std::fprintf(stderr, "peerless_all_reduce_perf: rank %d: %s took longer than %.3g s (--deadline)\n", rank_,
                     name_.c_str(), std::chrono::duration<double>(bound_).count());
        ::_exit(exit_failed);
      }
    }
  }

  int rank_;
  std::chrono::milliseconds bound_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string name_;
  std::chrono::steady_clock::time_point until_;
  std::thread thread_;  // last: it reads the members above
};

}  // namespace peerless::bench
