// Faults that need kernels: a rank that dies or stops with its kernel on the device, in a graph of many calls, and a
// device that is lost. Each after no call and after others.
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "device_loss.hpp"
#include "fault.hpp"
#include "support/catch.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::dtype;
using peerless::errc;
using peerless::protocol_id;

namespace {

constexpr protocol_id protocols[] = {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk};
constexpr std::size_t arena_bytes = std::size_t{8} << 20;

// Large enough that a bulk call fills its ring several times.
call_spec call_of(protocol_id protocol) {
  return {.type = dtype::bf16,
          .n_elements = protocol == protocol_id::bulk ? std::size_t{20000} : std::size_t{1500},
          .protocol = protocol};
}

std::string title(const char* what, protocol_id protocol, int good_calls) {
  return std::string(what) + ", " + std::string(peerless::name_of(protocol)) + ", after " + std::to_string(good_calls) +
         " calls";
}

std::int64_t in_ns(std::chrono::milliseconds span) { return std::chrono::nanoseconds(span).count(); }

bool is_marked(rank_record& record) { return record.marked_ns.load() != 0; }

// For rank `victim` that is to be stopped: waits until the others have given it up, then wakes it.
std::function<void(supervisor&)> wake_at_last(int victim) {
  return [victim](supervisor& hand) {
    rank_context::wait_until([&] { return hand.record(1 - victim).finished != 0; }, 30s);
    hand.signal(victim, SIGCONT);
  };
}

// The victim's kernel waits for the other rank when the signal comes; the other rank comes after that.
void suffer_in_a_kernel(rank_context& context, peerless::bootstrap_ref group,
                        const peerless::communicator_options& options, int victim, int number, protocol_id protocol,
                        int good_calls) {
  auto communicator = backend_under_test().make(group, options, arena_bytes);
  call_checker checker(context, *communicator, arena_bytes, 31);
  checker.set_where("calls around the fault");
  call_spec const call = call_of(protocol);
  for (int i = 0; i < good_calls; ++i) checker.run(call);
  if (context.rank() == victim) {
    signal_self_later(context, number, static_cast<std::uint64_t>(protocol), 30ms, 20ms);
  } else {
    context.require(rank_context::wait_until([&] { return is_marked(context.record(victim)); }, 20s),
                    "waiting for the fault", "there was none");
  }
  call_until_error(context, checker, call, options.deadline + 10s);
  require_sticky(context, *communicator, checker, call);
  destroy_in_time(context, communicator);
}

// 160 calls of all protocols, as of a token.
std::vector<call_spec> calls_of_a_graph() {
  std::vector<call_spec> calls;
  for (std::size_t i = 0; i < 160; ++i) {
    call_spec call = call_of(protocols[i % 3]);
    call.n_elements = call.n_elements / 2 + i;
    calls.push_back(call);
  }
  return calls;
}

// Replays until the fault, which comes in the middle of one; then once more.
void suffer_in_a_graph(rank_context& context, peerless::bootstrap_ref group,
                       const peerless::communicator_options& options, int victim, int number, int good_replays) {
  auto communicator = backend_under_test().make(group, options, arena_bytes);
  call_checker checker(context, *communicator, arena_bytes, 32);
  checker.set_where("replays around the fault");
  auto const calls = calls_of_a_graph();
  int const graph = checker.capture(calls);
  for (int i = 0; i < good_replays; ++i) checker.replay(graph, calls);
  if (context.rank() == victim) signal_self_later(context, number, 5, 60ms);
  std::int64_t const until = now_ns() + in_ns(options.deadline + 10s);
  while (!record_error(context, [&] { checker.replay(graph, calls, 2); })) {
    if (!context.require(now_ns() < until, "replays that were to fail", "none did")) return;
  }
  // All calls that are left return at once.
  std::int64_t const start = now_ns();
  try {
    checker.replay(graph, calls, 3);
    context.fail("a replay after a failure", "threw nothing");
  } catch (const peerless::error& e) {
    context.require(e.code() == context.record().ended.errc() && e.rank() == context.record().ended.rank,
                    "a replay after a failure", e.what());
  }
  std::int64_t const took = now_ns() - start;
  context.require(took < 500'000'000, "a replay after a failure", "took " + std::to_string(took / 1000000) + " ms");
  require_sticky(context, *communicator, checker, call_of(protocol_id::sentinel));
  destroy_in_time(context, communicator);
}

enum class loss { before_a_call, within_a_kernel };

// The victim's device is lost: its own next use of the communicator says so, and the other rank is told.
void lose_the_device(rank_context& context, peerless::bootstrap_ref group, int victim, loss when, protocol_id protocol,
                     int good_calls) {
  auto communicator = backend_under_test().make(group, fault_options(), arena_bytes);
  call_checker checker(context, *communicator, arena_bytes, 33);
  checker.set_where("calls before the loss");
  call_spec const call = call_of(protocol);
  device_loss const device;
  for (int i = 0; i < good_calls; ++i) checker.run(call);
  if (context.rank() != victim) {
    if (when == loss::within_a_kernel) {
      context.require(rank_context::wait_until([&] { return is_marked(context.record(victim)); }, 20s),
                      "waiting for the loss", "there was none");
    }
    call_until_error(context, checker, call, fault_deadline + 10s);
    require_sticky(context, *communicator, checker, call);
    destroy_in_time(context, communicator);
    return;
  }
  bool failed = false;
  if (when == loss::before_a_call) {
    std::this_thread::sleep_for(20ms);  // the other rank's kernel waits by now
    device.strike();
    context.record().marked_ns = now_ns();
    peerless::test::call_arguments const arguments{call.type,
                                                   call.op,
                                                   communicator->arena(),
                                                   communicator->arena() + (1 << 20),
                                                   call.n_elements,
                                                   communicator->plan_with(protocol)};
    failed = record_error(context, [&] { communicator->all_reduce(arguments); });
  } else {
    std::thread later([&] {
      std::this_thread::sleep_for(100ms);  // the call below waits by now
      device.strike();
      context.record().marked_ns = now_ns();
    });
    failed = record_error(context, [&] { checker.run(call); });
    later.join();
  }
  context.require(failed, "a call on a lost device", "threw nothing");
  auto const told = communicator->status();
  context.require(told.code == errc::cuda_error && told.rank == victim, "status() after the loss",
                  peerless::describe(told));
  try {
    communicator->check();
    context.fail("check() after the loss", "threw nothing");
  } catch (const peerless::error& e) {
    context.require(e.code() == errc::cuda_error && e.rank() == victim, "check() after the loss", e.what());
  }
  destroy_in_time(context, communicator);
}

}  // namespace

TEST_CASE("a rank that dies with its kernel on the device is named by the other") {
  for (int good_calls : {0, 50}) {
    for (protocol_id protocol : protocols) {
      int const victim = static_cast<int>(protocol) % 2;
      auto const run =
          run_ranks(2, ranks_as::processes,
                    [&](rank_context& context, peerless::bootstrap_ref group) {
                      suffer_in_a_kernel(context, group, fault_options(), victim, SIGKILL, protocol, good_calls);
                    },
                    {.killed = {victim}});
      expectations told(run);
      told.failed(1 - victim, {errc::peer_died}, victim)
          .within(1 - victim, run[victim].marked_ns, death_told_within_ns);
      INFO(title("killed", protocol, good_calls));
      CHECK(told.text() == "");
    }
  }
}

// Its kernel goes on: that call is served, the next one waits for the process.
TEST_CASE("a rank that is stopped with its kernel on the device is named after the deadline") {
  for (protocol_id protocol : protocols) {
    int const victim = static_cast<int>(protocol) % 2, good_calls = protocol == protocol_id::flagged ? 0 : 50;
    auto options = fault_options();
    options.deadline = 700ms;
    auto const run = run_ranks(2, ranks_as::processes,
                               [&](rank_context& context, peerless::bootstrap_ref group) {
                                 suffer_in_a_kernel(context, group, options, victim, SIGSTOP, protocol, good_calls);
                               },
                               {.during = wake_at_last(victim)});
    expectations told(run);
    std::int64_t const deadline_ns = in_ns(options.deadline);
    told.failed(1 - victim, {errc::timeout}, victim)
        .within(1 - victim, run[victim].marked_ns + deadline_ns, deadline_ns + death_told_within_ns)
        .failed(victim, {errc::timeout, errc::peer_closed}, std::nullopt);
    INFO(title("stopped", protocol, good_calls));
    CHECK(told.text() == "");
  }
}

TEST_CASE("a graph of 160 calls ends at once when a rank dies in it") {
  for (int good_replays : {0, 5}) {
    int const victim = good_replays == 0 ? 0 : 1;
    auto const run = run_ranks(2, ranks_as::processes,
                               [&](rank_context& context, peerless::bootstrap_ref group) {
                                 suffer_in_a_graph(context, group, fault_options(), victim, SIGKILL, good_replays);
                               },
                               {.killed = {victim}});
    expectations told(run);
    told.failed(1 - victim, {errc::peer_died}, victim).within(1 - victim, run[victim].marked_ns, death_told_within_ns);
    INFO("after " << good_replays << " replays");
    CHECK(told.text() == "");
  }
}

// Within one deadline, not one a call. What the stopped rank had launched goes on for a while, and where kernels of
// different processes take turns on one GPU, a graph takes seconds.
TEST_CASE("a graph of 160 calls ends after one deadline when a rank stops in it") {
  auto options = fault_options();
  char const* const gpus = std::getenv("PEERLESS_TEST_GPUS");
  bool const shared = gpus == nullptr || std::atoi(gpus) < 2;
  options.deadline = shared ? 8s : 700ms;
  std::int64_t const served_ns = shared ? in_ns(6s) : 0;
  auto const run = run_ranks(2, ranks_as::processes,
                             [&](rank_context& context, peerless::bootstrap_ref group) {
                               suffer_in_a_graph(context, group, options, 1, SIGSTOP, 5);
                             },
                             {.during = wake_at_last(1)});
  expectations told(run);
  told.failed(0, {errc::timeout}, 1)
      .within(0, run[1].marked_ns, in_ns(options.deadline) + served_ns + death_told_within_ns)
      .failed(1, {errc::timeout, errc::peer_closed}, std::nullopt);
  CHECK(told.text() == "");
}

TEST_CASE("graphs that differ in one of their calls are told with both") {
  constexpr std::size_t odd = 70;
  auto const run = run_ranks(2, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref group) {
    auto communicator = backend_under_test().make(group, fault_options(), arena_bytes);
    call_checker checker(context, *communicator, arena_bytes, 34);
    checker.set_where("graphs that differ");
    auto calls = calls_of_a_graph();
    calls[odd] = {.type = dtype::f32, .n_elements = 123, .protocol = protocol_id::sentinel};
    if (context.rank() == 1) calls[odd] = {.type = dtype::f32, .n_elements = 23456, .protocol = protocol_id::bulk};
    int const graph = checker.capture(calls);
    record_error(context, [&] { checker.replay(graph, calls); });
    require_sticky(context, *communicator, checker, call_of(protocol_id::sentinel));
    destroy_in_time(context, communicator);
  });
  expectations told(run);
  for (int rank : {0, 1}) {
    told.failed(rank, {errc::call_mismatch}, 1 - rank).says(rank, "123 x float").says(rank, "23456 x float");
    if (run[rank].ended.elapsed_ns > in_ns(fault_deadline) / 4) told.within(rank, run[rank].ended.at_ns + 1, 0);
  }
  CHECK(told.text() == "");
}

TEST_CASE("a lost device is an error on its rank, and the other is told whose it was") {
  for (loss when : {loss::before_a_call, loss::within_a_kernel}) {
    for (int good_calls : {0, 50}) {
      int const victim = good_calls == 0 ? 1 : 0;
      protocol_id const protocol = protocols[(static_cast<int>(when) + good_calls) % 3];
      auto const run = run_ranks(2, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref group) {
        lose_the_device(context, group, victim, when, protocol, good_calls);
      });
      expectations told(run);
      told.failed(victim, {errc::cuda_error}, std::nullopt)
          .failed(1 - victim, {errc::cuda_error}, victim)
          .within(1 - victim, run[victim].marked_ns, death_told_within_ns);
      INFO(title(when == loss::before_a_call ? "lost before a call" : "lost within a kernel", protocol, good_calls));
      CHECK(told.text() == "");
    }
  }
}
