// A point in time after which a wait has failed. Every blocking function of the library takes one or derives one.
#pragma once

#include <chrono>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

// A value on the steady clock: setting the wall clock neither extends nor cuts a wait. Passed by value through nested
// calls, so that the outermost caller's limit bounds the sum of all inner waits. No member blocks or throws.
class deadline {
 public:
  using clock = std::chrono::steady_clock;

  // `duration` from now; a negative one has already expired, one beyond the clock's range never does.
  static deadline after(std::chrono::milliseconds duration) noexcept {
    const clock::time_point now = clock::now();
    const auto room = std::chrono::floor<std::chrono::milliseconds>(clock::time_point::max() - now);
    return deadline(duration >= room ? clock::time_point::max() : now + duration);
  }

  // At a point of the steady clock.
  static constexpr deadline at(clock::time_point when) noexcept { return deadline(when); }

  constexpr clock::time_point when() const noexcept { return when_; }

  bool expired() const noexcept { return clock::now() >= when_; }

  // Time left, at least 0, rounded up: a wait of this length never ends early and never spins on 0.
  std::chrono::milliseconds remaining() const noexcept {
    const clock::time_point now = clock::now();
    if (now >= when_) return std::chrono::milliseconds(0);
    return std::chrono::ceil<std::chrono::milliseconds>(when_ - now);
  }

  // The earlier of two.
  friend constexpr deadline earlier(deadline a, deadline b) noexcept { return a.when_ < b.when_ ? a : b; }

 private:
  constexpr explicit deadline(clock::time_point when) noexcept : when_(when) {}

  clock::time_point when_;
};

PEERLESS_END_NAMESPACE
