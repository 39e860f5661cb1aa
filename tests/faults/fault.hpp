// What fault tests share: recording how a call ended on each rank, and comparing it with what must be told.
#pragma once

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peerless/core/error.hpp>

#include "support/call_checker.hpp"
#include "support/rank_communicator.hpp"
#include "support/run_ranks.hpp"
#include "support/slots.hpp"

namespace peerless::test {

// A death is to be told within 200 ms. The rest is for a machine on which tests outnumber the processors.
inline constexpr std::int64_t death_told_within_ns = 200'000'000 + (under_tsan ? 3'000'000'000 : 1'000'000'000);
// Communicators of fault tests: a deadline long enough to tell an error from it, small slots as in the conformance
// suite.
inline constexpr std::chrono::milliseconds fault_deadline{under_tsan ? 20'000 : 8'000};

inline communicator_options fault_options() {
  communicator_options options = small_slots();
  options.deadline = fault_deadline;
  options.setup_deadline = std::chrono::seconds(20);
  return options;
}

inline constexpr std::size_t fault_arena_bytes = 256 << 10;

// Runs `step` and records the peerless::error that it throws; false if it throws none.
template <class Step>
bool record_error(rank_context& context, Step&& step) {
  rank_record& record = context.record();
  std::int64_t const start = now_ns();
  try {
    step();
    return false;
  } catch (const error& e) {
    record.ended.at_ns = now_ns();
    record.ended.elapsed_ns = record.ended.at_ns - start;
    record.ended.code = static_cast<std::uint32_t>(e.code());
    record.ended.rank = e.rank();
    record.ended.text.assign(e.what());
    record.outcomes.store(1);
    return true;
  }
}

// Makes the same call over and over until it fails, and records how; complains if that takes longer than `limit`.
inline void call_until_error(rank_context& context, call_checker& checker, const call_spec& call,
                             std::chrono::milliseconds limit) {
  std::int64_t const until = now_ns() + std::chrono::nanoseconds(limit).count();
  while (!record_error(context, [&] { checker.run(call); })) {
    if (now_ns() < until) continue;
    context.fail("calls that were to fail", "none did within " + std::to_string(limit.count()) + " ms");
    return;
  }
}

// After a failure: it is sticky, and named alike by status(), check() and the next call.
inline void require_sticky(rank_context& context, rank_communicator& communicator, call_checker& checker,
                           const call_spec& call) {
  fault_outcome const first = context.record().ended;
  auto const same = [&](errc code, int rank) { return code == first.errc() && rank == first.rank; };
  auto const told = communicator.status();
  context.require(same(told.code, told.rank), "status() after a failure",
                  std::string(describe(told.code)) + " of rank " + std::to_string(told.rank));
  for (bool call_again : {false, true}) {
    std::string const where = call_again ? "the next call after a failure" : "check() after a failure";
    try {
      call_again ? checker.run(call) : communicator.check();
      context.fail(where, "threw nothing");
    } catch (const error& e) {
      context.require(same(e.code(), e.rank()), where, e.what());
    }
  }
}

// Destroys the communicator and complains if that takes more than a second.
inline void destroy_in_time(rank_context& context, std::unique_ptr<rank_communicator>& communicator) {
  std::int64_t const start = now_ns();
  communicator.reset();
  std::int64_t const took = now_ns() - start;
  std::int64_t const limit = under_tsan ? 4'000'000'000 : 1'000'000'000;
  context.require(took < limit, "destruction after a failure", "took " + std::to_string(took / 1000000) + " ms");
}

// Signals this process after `least` and a random time of at most `limit`, whatever it is doing then. `marked_ns` of
// the record says when.
inline void signal_self_later(rank_context& context, int number, std::uint64_t seed, std::chrono::microseconds limit,
                              std::chrono::microseconds least = std::chrono::microseconds(500)) {
  static rank_record* record;
  static int signal_number;
  record = &context.record();
  signal_number = number;
  struct sigaction action {};
  action.sa_handler = [](int) {
    record->marked_ns.store(now_ns());
    ::kill(::getpid(), signal_number);
  };
  ::sigaction(SIGALRM, &action, nullptr);
  auto const delay =
      static_cast<long>(least.count()) + static_cast<long>(mix(seed) % static_cast<std::uint64_t>(limit.count()));
  itimerval timer{};
  timer.it_value = {delay / 1000000, delay % 1000000};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

// What a rank must have been told. Collects complaints, one line each.
class expectations {
 public:
  explicit expectations(const run_result& run) : run_(&run) { text_ = run.problems(); }

  // `rank` failed with one of `codes`, about `about` (nothing: about any rank but none in particular is fine too).
  expectations& failed(int rank, std::initializer_list<errc> codes, std::optional<int> about) {
    rank_record const& record = (*run_)[rank];
    if (record.outcomes.load() == 0) return complain(rank, "has recorded no error");
    bool known = false;
    for (errc code : codes) known = known || record.ended.errc() == code;
    if (!known) complain(rank, "failed with the wrong code: " + said(record));
    if (about && record.ended.rank != *about) {
      complain(rank, "names rank " + std::to_string(record.ended.rank) + " instead of " + std::to_string(*about) +
                         ": " + said(record));
    }
    return *this;
  }

  expectations& says(int rank, std::string_view part) {
    if (said((*run_)[rank]).find(part) == std::string::npos)
      complain(rank, "does not say \"" + std::string(part) + "\": " + said((*run_)[rank]));
    return *this;
  }

  // The failing call ended within `limit_ns` of `since_ns`, and not before.
  expectations& within(int rank, std::int64_t since_ns, std::int64_t limit_ns) {
    std::int64_t const took = (*run_)[rank].ended.at_ns - since_ns;
    worst_ns_ = std::max(worst_ns_, took);
    if (took < 0 || took > limit_ns)
      complain(rank, "was told after " + std::to_string(took / 1000000) + " ms: " + said((*run_)[rank]));
    return *this;
  }

  std::int64_t worst_ns() const { return worst_ns_; }
  // Empty: all as expected.
  std::string text() const { return text_; }

 private:
  static std::string said(const rank_record& record) { return std::string(record.ended.text.view()); }
  expectations& complain(int rank, const std::string& what) {
    text_ += "rank " + std::to_string(rank) + " " + what + "\n";
    return *this;
  }

  const run_result* run_;
  std::string text_;
  std::int64_t worst_ns_ = 0;
};

}  // namespace peerless::test
