// Ranks that die, stop, leave, abort, fork or never come while others are in calls, at each protocol: one clear typed
// error on every other rank in bounded time, and nothing left behind. The backend is the one that this program is
// linked with.
#include <sys/wait.h>

#include <cstdio>
#include <iterator>
#include <vector>

#include "fault.hpp"
#include "support/catch.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::dtype;
using peerless::errc;
using peerless::protocol_id;

namespace {

constexpr protocol_id protocols[] = {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk};

// And what three ranks or more have.
std::vector<protocol_id> protocols_of(int world) {
  std::vector<protocol_id> all(std::begin(protocols), std::end(protocols));
  if (world >= static_cast<int>(peerless::least_two_shot_world)) all.push_back(protocol_id::two_shot);
  return all;
}

call_spec call_of(protocol_id protocol) {
  // A call in chunks goes round its ring many times, so that a rank is likely to be hit in the middle of one.
  bool const in_chunks = protocol == protocol_id::bulk || protocol == protocol_id::two_shot;
  return {.type = dtype::bf16, .n_elements = in_chunks ? std::size_t{20000} : std::size_t{1500}, .protocol = protocol};
}

// Worlds that this program may use. Processes of one GPU take turns on it; threads share it.
std::vector<int> worlds(ranks_as how) {
  if (!backend_under_test().on_device) return {2, 3, 4};
  return how == ranks_as::processes ? std::vector<int>{2} : std::vector<int>{2, 3, 4, 8};
}

enum class moment { before_a_call, within_calls };

// What a test says of itself when it fails.
std::string title(const char* what, int world, protocol_id protocol, moment when) {
  return std::string(what) + ", world " + std::to_string(world) + ", " + std::string(peerless::name_of(protocol)) +
         (when == moment::before_a_call ? ", before a call" : ", within calls");
}

// All ranks make good calls; then rank `victim` gets signal `number`, and the others call until they are told.
void suffer_signal(rank_context& context, peerless::bootstrap_ref group, const peerless::communicator_options& options,
                   int victim, int number, protocol_id protocol, moment when) {
  auto communicator = backend_under_test().make(group, options, fault_arena_bytes);
  call_checker checker(context, *communicator, fault_arena_bytes, 3);
  checker.set_where("calls before the fault");
  call_spec const call = call_of(protocol);
  for (int i = 0; i < 20; ++i) checker.run(call);
  context.enter_phase(1);
  if (context.rank() == victim) {
    for (int rank = 0; rank < context.world_size(); ++rank) {
      context.require(context.wait_for_phase(rank, 1), "waiting for the calls before the fault", "they did not end");
    }
    if (when == moment::within_calls) {
      std::uint64_t const seed =
          static_cast<std::uint64_t>(protocol) + 10 * static_cast<std::uint64_t>(context.world_size());
      signal_self_later(context, number, seed, backend_under_test().on_device ? 100ms : 10ms);
    } else {
      std::this_thread::sleep_for(20ms);  // the others are waiting by now
      context.record().marked_ns = now_ns();
      ::kill(::getpid(), number);
    }
  }
  call_until_error(context, checker, call, options.deadline + 10s);
  require_sticky(context, *communicator, checker, call);
  destroy_in_time(context, communicator);
}

}  // namespace

TEST_CASE("a rank that is killed is named by all others within 200 ms", "[processes]") {
  std::int64_t worst = 0;
  for (int world : worlds(ranks_as::processes)) {
    for (protocol_id protocol : protocols_of(world)) {
      for (moment when : {moment::before_a_call, moment::within_calls}) {
        int const victim = static_cast<int>(protocol) % world;
        auto const run = run_ranks(world, ranks_as::processes,
                                   [&](rank_context& context, peerless::bootstrap_ref group) {
                                     suffer_signal(context, group, fault_options(), victim, SIGKILL, protocol, when);
                                   },
                                   {.killed = {victim}});
        expectations told(run);
        for (int rank = 0; rank < world; ++rank) {
          if (rank == victim) continue;
          told.failed(rank, {errc::peer_died}, victim).within(rank, run[victim].marked_ns, death_told_within_ns);
        }
        INFO(title("killed", world, protocol, when));
        CHECK(told.text() == "");
        worst = std::max(worst, told.worst_ns());
      }
    }
  }
  std::printf("a death was told after %lld ms at most\n", static_cast<long long>(worst / 1000000));
}

TEST_CASE("a rank that is stopped is late, not dead, and is named after the deadline", "[processes]") {
  for (int world : worlds(ranks_as::processes)) {
    for (protocol_id protocol : protocols) {
      for (moment when : {moment::before_a_call, moment::within_calls}) {
        int const victim = static_cast<int>(protocol) % world;
        auto options = fault_options();
        options.deadline = 700ms;
        auto const resume = [&](supervisor& hand) {
          rank_context::wait_until(
              [&] {
                for (int rank = 0; rank < world; ++rank) {
                  if (rank != victim && hand.record(rank).finished == 0) return false;
                }
                return true;
              },
              30s);
          hand.signal(victim, SIGCONT);
        };
        auto const run = run_ranks(world, ranks_as::processes,
                                   [&](rank_context& context, peerless::bootstrap_ref group) {
                                     suffer_signal(context, group, options, victim, SIGSTOP, protocol, when);
                                   },
                                   {.during = resume});
        expectations told(run);
        for (int rank = 0; rank < world; ++rank) {
          if (rank == victim) {
            // Awake again, it learns that the others have given it up.
            told.failed(rank, {errc::timeout, errc::peer_closed}, std::nullopt);
          } else {
            told.failed(rank, {errc::timeout}, victim);
            std::int64_t const deadline_ns = std::chrono::nanoseconds(options.deadline).count();
            told.within(rank, run[victim].marked_ns, deadline_ns + death_told_within_ns);
            if (run[rank].ended.at_ns - run[victim].marked_ns < deadline_ns / 2)
              told.within(rank, run[rank].ended.at_ns + 1, 0);
          }
        }
        INFO(title("stopped", world, protocol, when));
        CHECK(told.text() == "");
      }
    }
  }
}

TEST_CASE("a rank that leaves while others still call is named as closed", "[processes][threads]") {
  for (ranks_as how : both_ways()) {
    for (int world : worlds(how)) {
      for (protocol_id protocol : protocols) {
        int const leaver = world - 1;
        auto const run = run_ranks(world, how, [&](rank_context& context, peerless::bootstrap_ref group) {
          auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
          call_checker checker(context, *communicator, fault_arena_bytes, 4);
          checker.set_where("calls that all ranks made");
          for (int i = 0; i < 10; ++i) checker.run(call_of(protocol));
          if (context.rank() != leaver) {
            call_until_error(context, checker, call_of(protocol), 10s);
            require_sticky(context, *communicator, checker, call_of(protocol));
          }
          destroy_in_time(context, communicator);
        });
        expectations told(run);
        for (int rank = 0; rank < leaver; ++rank) told.failed(rank, {errc::peer_closed}, leaver);
        if (run.calls_verified() != 10) told.failed(leaver, {}, std::nullopt);
        INFO(title("closed", world, protocol, moment::before_a_call) << " among " << name_of(how));
        CHECK(told.text() == "");
        CHECK(run.calls_verified() == 10);
      }
    }
  }
}

TEST_CASE("a live rank that does not come is named after the deadline, and is told when it comes",
          "[processes][threads]") {
  for (ranks_as how : both_ways()) {
    for (protocol_id protocol : protocols) {
      auto options = fault_options();
      options.deadline = 400ms;
      auto const run = run_ranks(2, how, [&](rank_context& context, peerless::bootstrap_ref group) {
        auto communicator = backend_under_test().make(group, options, fault_arena_bytes);
        call_checker checker(context, *communicator, fault_arena_bytes, 5);
        checker.set_where("calls before the fault");
        checker.run(call_of(protocol));
        if (context.rank() == 1) {
          context.require(context.wait_for_phase(0, 1), "waiting for rank 0", "it did not give up");
        }
        call_until_error(context, checker, call_of(protocol), 5s);
        context.enter_phase(1);
        require_sticky(context, *communicator, checker, call_of(protocol));
        // Rank 1 finds rank 0's verdict, not its closing.
        if (context.rank() == 0) context.require(context.wait_for_phase(1, 1), "waiting for rank 1", "it was not told");
        destroy_in_time(context, communicator);
      });
      expectations told(run);
      told.failed(0, {errc::timeout}, 1).failed(1, {errc::timeout}, std::nullopt);
      if (run[0].ended.elapsed_ns < 350'000'000) told.within(0, run[0].ended.at_ns + 1, 0);
      INFO(title("late", 2, protocol, moment::before_a_call) << " among " << name_of(how));
      CHECK(told.text() == "");
    }
  }
}

TEST_CASE("abort ends the calls of all ranks", "[processes][threads]") {
  for (ranks_as how : both_ways()) {
    int const world = worlds(how).back();
    for (protocol_id protocol : protocols_of(world)) {
      auto const run = run_ranks(world, how, [&](rank_context& context, peerless::bootstrap_ref group) {
        auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
        call_checker checker(context, *communicator, fault_arena_bytes, 6);
        checker.set_where("calls before abort()");
        for (int i = 0; i < 5; ++i) checker.run(call_of(protocol));
        if (context.rank() == 0) {
          std::this_thread::sleep_for(20ms);  // the others are waiting by now
          context.record().marked_ns = now_ns();
          communicator->abort();
        }
        call_until_error(context, checker, call_of(protocol), 10s);
        require_sticky(context, *communicator, checker, call_of(protocol));
        destroy_in_time(context, communicator);
      });
      expectations told(run);
      for (int rank = 0; rank < world; ++rank)
        told.failed(rank, {errc::aborted}, 0).within(rank, run[0].marked_ns, death_told_within_ns);
      INFO(title("aborted", world, protocol, moment::before_a_call) << " among " << name_of(how));
      CHECK(told.text() == "");
    }
  }
}

TEST_CASE("a communicator is refused in a forked child and goes on in its parent", "[processes]") {
  auto const run = run_ranks(2, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref group) {
    auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
    call_checker checker(context, *communicator, fault_arena_bytes, 7);
    checker.set_where("calls around a fork");
    call_spec const call = call_of(protocol_id::flagged);
    checker.run(call);
    if (context.rank() == 0) {
      pid_t const child = detail::fork_child([&] {
        peerless::test::call_arguments arguments{
            dtype::f32, peerless::reduce_op::sum, communicator->arena(), communicator->arena(), 4, {}};
        record_error(context, [&] { communicator->all_reduce(arguments); });
        context.require(communicator->status().code == errc::forked, "status() in a forked child", "is something else");
        try {
          communicator->check();
          context.fail("check() in a forked child", "threw nothing");
        } catch (const peerless::error& e) {
          context.require(e.code() == errc::forked, "check() in a forked child", e.what());
        }
        // A host communicator can be destroyed in the child; what CUDA does after a fork is not ours to test.
        if (!backend_under_test().on_device) communicator.reset();
        std::_Exit(0);
      });
      int status = -1;
      bool const ended = rank_context::wait_until([&] { return ::waitpid(child, &status, WNOHANG) == child; }, 10s);
      if (!ended) ::kill(child, SIGKILL), ::waitpid(child, &status, 0);
      context.require(ended && status == 0, "the forked child", ended ? detail::status_text(status) : "did not end");
    }
    for (int i = 0; i < 20; ++i) checker.run(call);
    communicator->check();
  });
  CHECK(expectations(run).failed(0, {errc::forked}, std::nullopt).text() == "");
  CHECK(run.calls_verified() == 21);
}

// A forked helper holds every descriptor of its dead parent, sockets and pipes too: only the process itself is proof of
// life.
TEST_CASE("a forked helper does not keep a dead rank alive", "[processes]") {
  auto const run = run_ranks(2, ranks_as::processes,
                             [&](rank_context& context, peerless::bootstrap_ref group) {
                               auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
                               call_checker checker(context, *communicator, fault_arena_bytes, 8);
                               checker.run(call_of(protocol_id::sentinel));
                               if (context.rank() == 1) {
                                 pid_t const helper = ::fork();
                                 if (helper == 0) {
                                   // Ends by itself when rank 0 has been told, or after a while.
                                   context.wait_for_phase(0, 1, 15s);
                                   std::_Exit(0);
                                 }
                                 context.record().marked_ns = now_ns();
                                 ::kill(::getpid(), SIGKILL);
                               }
                               call_until_error(context, checker, call_of(protocol_id::sentinel), 15s);
                               context.enter_phase(1);
                               destroy_in_time(context, communicator);
                             },
                             {.killed = {1}});
  CHECK(expectations(run).failed(0, {errc::peer_died}, 1).within(0, run[1].marked_ns, death_told_within_ns).text() ==
        "");
}

// Ranks that died leave nothing that a later job of the same shape trips over.
TEST_CASE("after a death the survivors form a new group", "[processes]") {
  peerless::job_identity const second = unique_job();
  auto const run =
      run_ranks(3, ranks_as::processes,
                [&](rank_context& context, peerless::bootstrap_ref group) {
                  {
                    auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
                    call_checker checker(context, *communicator, fault_arena_bytes, 9);
                    checker.run(call_of(protocol_id::bulk));
                    if (context.rank() == 1) ::kill(::getpid(), SIGKILL);
                    call_until_error(context, checker, call_of(protocol_id::bulk), 10s);
                    destroy_in_time(context, communicator);
                  }
                  int const rank = context.rank() == 0 ? 0 : 1;
                  auto survivors = peerless::local_host_bootstrap::connect(second, rank, 2);
                  shared_report numbers(2);  // the checker numbers ranks by its context
                  rank_context renumbered(rank, numbers);
                  auto communicator = backend_under_test().make(survivors, fault_options(), fault_arena_bytes);
                  call_checker checker(renumbered, *communicator, fault_arena_bytes, 10);
                  for (int i = 0; i < 20; ++i) checker.run(call_of(protocols[i % 3]));
                  context.require(numbers[rank].failures == 0 && numbers[rank].verified == 20, "calls of the survivors",
                                  numbers[rank].texts[0].text.view());
                },
                {.killed = {1}});
  CHECK(expectations(run).failed(0, {errc::peer_died}, 1).failed(2, {errc::peer_died}, 1).text() == "");
}
