// Limits on the steady clock: rounding, saturation, order.
#include "support/catch.hpp"

#include <chrono>
#include <thread>

#include <peerless/core/deadline.hpp>

using peerless::deadline;
using namespace std::chrono_literals;

TEST_CASE("a deadline passes once and for all") {
  const deadline limit = deadline::after(20ms);
  CHECK_FALSE(limit.expired());
  CHECK(limit.remaining() > 0ms);
  CHECK(limit.remaining() <= 20ms);
  std::this_thread::sleep_for(25ms);
  CHECK(limit.expired());
  CHECK(limit.remaining() == 0ms);
}

TEST_CASE("zero and negative durations have expired") {
  CHECK(deadline::after(0ms).expired());
  CHECK(deadline::after(-5ms).expired());
  CHECK(deadline::after(std::chrono::milliseconds::min() / 2).remaining() == 0ms);
}

TEST_CASE("durations beyond the clock never expire") {
  const deadline never = deadline::after(std::chrono::milliseconds::max());
  CHECK(never.when() == deadline::clock::time_point::max());
  CHECK_FALSE(never.expired());
  CHECK(never.remaining() > std::chrono::hours(24 * 365 * 100));
}

TEST_CASE("what remains is rounded up, so that nobody wakes early or spins on 0") {
  const deadline limit = deadline::at(deadline::clock::now() + 500us);
  const auto left = limit.remaining();
  if (!limit.expired()) CHECK(left == 1ms);
}

TEST_CASE("the earlier of two counts") {
  const deadline soon = deadline::after(1s);
  const deadline late = deadline::after(1h);
  CHECK(earlier(soon, late).when() == soon.when());
  CHECK(earlier(late, soon).when() == soon.when());
}
