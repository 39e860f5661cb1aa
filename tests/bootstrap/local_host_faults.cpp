// Ranks that are killed, stopped or leave: every other rank gets one typed error that names them, in time.
#include "support/catch.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <sys/time.h>
#include <unistd.h>

#include <peerless/bootstrap/local_host.hpp>

#include "outcome.hpp"

using peerless::deadline;
using peerless::errc;
using peerless::local_host_bootstrap;
using peerless::local_host_options;
using namespace peerless::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t ready = 1;

local_host_options options_with(std::chrono::milliseconds limit, bool use_pidfd = true) {
  local_host_options options;
  options.deadline = limit;
  options.use_pidfd = use_pidfd;
  return options;
}

void wait_for(rank_record& record, std::uint64_t phase) {
  rank_context::wait_until([&] { return record.phase.load() >= phase; }, 20s);
}

// Everyone but `victim` is to have got `code` about `victim`.
void check_others(const run_result& result, int victim, errc code) {
  CHECK(result.problems() == "");
  for (int rank = 0; rank < result.world_size(); ++rank) {
    if (rank == victim) continue;
    INFO("rank " << rank << ": " << text_of(result[rank]));
    CHECK(code_of(result[rank]) == code);
    CHECK(result[rank].ended.rank == victim);
    CHECK_THAT(text_of(result[rank]), contains("rank " + std::to_string(victim)));
  }
}

}  // namespace

TEST_CASE("a rank killed in the rendezvous") {
  for (const bool use_pidfd : {true, false}) {
    for (const int victim : {0, 1}) {
      const auto job = unique_job();
      std::int64_t killed_ns = 0;
      run_options run;
      run.killed = {victim};
      run.during = [&](supervisor& hand) {
        for (int rank = 0; rank < 3; ++rank) wait_for(hand.record(rank), ready);
        std::this_thread::sleep_for(200ms);
        hand.signal(victim, SIGKILL);
        killed_ns = now_ns();
      };
      const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
        context.enter_phase(ready);
        auto options = options_with(20s, use_pidfd);
        options.refusal_grace = 100ms;
        record_outcome(context.record(), [&] {
          (void)local_host_bootstrap::connect(job, context.rank(), 4, options);
        });  // rank 3 never comes
      }, run);
      INFO("victim " << victim << ", pidfd " << use_pidfd);
      check_others(result, victim, errc::peer_died);
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != victim) CHECK(result[rank].ended.at_ns - killed_ns < 2'000'000'000);
      }
    }
  }
}

TEST_CASE("a rank killed in a collective, whichever and whenever") {
  constexpr int world = 4;
  for (int repeat = 0; repeat < 12; ++repeat) {
    const int victim = repeat % world;
    const bool use_pidfd = repeat % 3 != 0;
    std::int64_t killed_ns = 0;
    const auto job = unique_job();
    run_options run;
    run.killed = {victim};
    run.during = [&](supervisor& hand) {
      for (int rank = 0; rank < world; ++rank) wait_for(hand.record(rank), ready);
      std::this_thread::sleep_for(std::chrono::microseconds(1'000 + repeat * 3'137));
      hand.signal(victim, SIGKILL);
      killed_ns = now_ns();
    };
    const auto result = run_bare(world, ranks_as::processes, [&](rank_context& context) {
      auto boot = local_host_bootstrap::connect(job, context.rank(), world, options_with(20s, use_pidfd));
      record_outcome(context.record(), [&] {
        std::vector<std::byte> mine(20'000), all(mine.size() * world);
        for (;;) {
          boot.all_gather(mine, all, deadline::after(20s));
          context.enter_phase(ready);
        }
      });
    }, run);
    INFO("victim " << victim << ", pidfd " << use_pidfd);
    check_others(result, victim, errc::peer_died);
    for (int rank = 0; rank < world; ++rank) {
      if (rank != victim) CHECK(result[rank].ended.at_ns - killed_ns < 1'500'000'000);
    }
  }
}

TEST_CASE("a dead rank is dead though a child that it forked lives on") {
  for (const int victim : {0, 2}) {
    const auto job = unique_job();
    run_options run;
    run.killed = {victim};
    run.during = [&](supervisor& hand) {
      for (int rank = 0; rank < 3; ++rank) wait_for(hand.record(rank), ready);
      hand.signal(victim, SIGKILL);
    };
    const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
      auto boot = local_host_bootstrap::connect(job, context.rank(), 3, options_with(20s));
      boot.barrier(deadline::after(20s));
      if (context.rank() == victim) {
        // The helper holds copies of every descriptor, and ends by itself after the others are through.
        if (::fork() == 0) {
          std::this_thread::sleep_for(1s);
          ::_exit(0);
        }
        context.enter_phase(ready);
        std::this_thread::sleep_for(20s);
      }
      context.enter_phase(ready);
      record_outcome(context.record(), [&] { boot.barrier(deadline::after(20s)); });
    }, run);
    INFO("victim " << victim);
    check_others(result, victim, errc::peer_died);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != victim) CHECK(elapsed_of(result[rank]) < 900ms);  // before the helper has ended
    }
  }
}

TEST_CASE("a stopped rank is late, not dead") {
  constexpr int world = 3;
  for (const int victim : {0, 1}) {
    const auto job = unique_job();
    run_options run;
    run.during = [&](supervisor& hand) {
      wait_for(hand.record(victim), ready);
      std::this_thread::sleep_for(50ms);
      hand.signal(victim, SIGSTOP);
      for (int rank = 0; rank < world; ++rank) hand.record(rank).command.store(1);
      for (int rank = 0; rank < world; ++rank) {
        if (rank != victim) rank_context::wait_until([&] { return hand.record(rank).outcomes.load() != 0; }, 20s);
      }
      hand.signal(victim, SIGCONT);
    };
    const auto result = run_bare(world, ranks_as::processes, [&](rank_context& context) {
      auto boot = local_host_bootstrap::connect(job, context.rank(), world, options_with(20s));
      boot.barrier(deadline::after(20s));
      context.enter_phase(ready);
      if (context.rank() == victim) {
        std::this_thread::sleep_for(500ms);  // stopped in here
        record_outcome(context.record(), [&] { boot.barrier(deadline::after(5s)); });
        return;
      }
      rank_context::wait_until([&] { return context.record().command.load() != 0; }, 20s);
      record_outcome(context.record(), [&] { boot.barrier(deadline::after(700ms)); });
    }, run);
    INFO("victim " << victim);
    check_others(result, victim, errc::rendezvous_timeout);
    for (int rank = 0; rank < world; ++rank) {
      if (rank != victim) CHECK(elapsed_of(result[rank]) < 1'200ms);
    }
    // The victim itself, when it goes on, finds out too instead of waiting for nobody.
    INFO(text_of(result[victim]));
    CHECK(code_of(result[victim]) != errc::ok);
    CHECK(elapsed_of(result[victim]) < 6s);
  }
}

TEST_CASE("rank 0 stopped in the rendezvous") {
  const auto job = unique_job();
  run_options run;
  run.during = [&](supervisor& hand) {
    wait_for(hand.record(0), ready);
    std::this_thread::sleep_for(100ms);  // it listens
    hand.signal(0, SIGSTOP);
    for (int rank = 1; rank < 3; ++rank) hand.record(rank).command.store(1);
    for (int rank = 1; rank < 3; ++rank)
      rank_context::wait_until([&] { return hand.record(rank).outcomes.load() != 0; }, 20s);
    hand.signal(0, SIGCONT);
  };
  const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    context.enter_phase(ready);
    if (context.rank() != 0) rank_context::wait_until([&] { return context.record().command.load() != 0; }, 20s);
    auto options = options_with(context.rank() == 0 ? 3s : 600ms);
    options.refusal_grace = 0ms;
    record_outcome(context.record(), [&] { (void)local_host_bootstrap::connect(job, context.rank(), 3, options); });
  }, run);
  check_others(result, 0, errc::rendezvous_timeout);
  for (int rank = 1; rank < 3; ++rank) CHECK(elapsed_of(result[rank]) < 1'200ms);
  CHECK(code_of(result[0]) != errc::ok);
}

TEST_CASE("a rank that leaves while others wait for it") {
  for (const int victim : {0, 2}) {
    const auto result = run_bare(3, ranks_as::processes, [victim, job = unique_job()](rank_context& context) {
      {
        auto boot = local_host_bootstrap::connect(job, context.rank(), 3, options_with(20s));
        if (context.rank() == victim) {
          std::this_thread::sleep_for(100ms);
        } else {
          record_outcome(context.record(), [&] { boot.barrier(deadline::after(20s)); });
        }
      }
      if (context.rank() == victim) std::this_thread::sleep_for(1s);  // alive
    });
    INFO("victim " << victim);
    check_others(result, victim, errc::peer_closed);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != victim) CHECK(elapsed_of(result[rank]) < 2s);
    }
  }
}

TEST_CASE("signals that interrupt every call do not matter") {
  const auto job = unique_job();
  const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // no SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    const ::itimerval often = {{0, 700}, {0, 700}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    auto boot = local_host_bootstrap::connect(job, context.rank(), 3, options_with(20s));
    for (int round = 0; round < 200; ++round) {
      const auto all = peerless::all_gather_value(boot, round, deadline::after(20s));
      context.require(all == std::vector<int>{round, round, round}, "all_gather", "wrong value");
    }
    const ::itimerval never = {};
    ::setitimer(ITIMER_REAL, &never, nullptr);
  });
  CHECK(result.problems() == "");
}
