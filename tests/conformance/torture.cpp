// Two million small calls among processes: random types, counts, protocols, launch shapes, places in memory and delays,
// every one checked bit for bit. Under ThreadSanitizer the same among threads, fewer, with the duties of each call in
// random order.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "case.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

namespace {

struct workload {
  int world;
  std::uint64_t calls;
  std::uint64_t first_epoch;
};

// Most messages are small: that is where slots are reused fastest. One in 64 is larger than a slot.
call_spec next_call(case_run& run) { return run.any_call(run.choices().once_in(64) ? 10000 : 600); }

run_result torture(const workload& work, ranks_as how) {
  setting s{.world = work.world, .how = how, .options = small_slots(), .arena_bytes = 64 << 10};
  s.options.first_epoch = work.first_epoch;
  if (how == ranks_as::threads) s.options.duty_seed = work.calls;
  return run_ranks(work.world, how,
                   [&](rank_context& context, peerless::bootstrap_ref group) {
                     auto const communicator = backend_under_test().make(group, s.options, s.arena_bytes);
                     call_checker checker(context, *communicator, s.arena_bytes, work.calls);
                     checker.set_where("torture");
                     checker.set_delays(delays::few);
                     case_run run(s, checker, work.first_epoch);
                     for (std::uint64_t call = 0; call < work.calls && context.record().failures == 0; ++call)
                       run.run(next_call(run));
                     auto const hashes = peerless::all_gather_value(
                         group, checker.take_hash(), peerless::deadline::after(std::chrono::seconds(60)));
                     for (auto const hash : hashes)
                       context.require(hash == hashes[0], "torture", "the hashes of the results differ between ranks");
                     communicator->check();
                   },
                   {.timeout = std::chrono::minutes(8)});
}

std::uint64_t run_all(const std::vector<workload>& all, ranks_as how) {
  std::uint64_t calls = 0;
  for (workload const& work : all) {
    auto const start = std::chrono::steady_clock::now();
    auto const run = torture(work, how);
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(run.problems() == "");
    CHECK(run.calls_verified() == work.calls);
    CHECK(run.results_verified() == work.calls * static_cast<std::uint64_t>(work.world));
    calls += run.calls_verified();
    std::printf("%s, %d %s from call %llu: %llu calls verified on every rank, %.1f us a call\n",
                std::string(backend_under_test().name).c_str(), work.world, name_of(how),
                static_cast<unsigned long long>(work.first_epoch),
                static_cast<unsigned long long>(run.calls_verified()), 1e6 * seconds / static_cast<double>(work.calls));
    std::fflush(stdout);
  }
  std::printf("%llu calls verified among %s\n", static_cast<unsigned long long>(calls), name_of(how));
  return calls;
}

}  // namespace

TEST_CASE("millions of calls among processes", "[torture]") {
  CHECK(run_all({{2, 1'300'000, 1},
                 {3, 500'000, (std::uint64_t{1} << 32) - 20'000},
                 {4, 160'000, (std::uint64_t{1} << 63) - 7'000},
                 {8, 40'000, 1}},
                ranks_as::processes) >= 2'000'000);
}

TEST_CASE("calls among threads with their duties in random order", "[threads]") {
  std::uint64_t const scale = under_tsan ? 1 : 2;
  CHECK(run_all({{2, 15'000 * scale, 1},
                 {3, 8'000 * scale, (std::uint64_t{1} << 32) - 2'000},
                 {4, 4'000 * scale, 1},
                 {8, 1'000 * scale, 1}},
                ranks_as::threads) >= 28'000 * scale);
}
