// Ranks that call different things: told on every rank, at once and not by the deadline, whatever the protocols.
#include <string>
#include <vector>

#include "fault.hpp"
#include "support/catch.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::dtype;
using peerless::errc;
using peerless::protocol_id;
using peerless::reduce_op;

namespace {

// Two calls that must not meet, and words that the errors must hold to tell them apart.
struct pair_of_calls {
  const char* what;
  call_spec most, odd;
  const char* word_of_most;
  const char* word_of_odd;
};

std::vector<pair_of_calls> pairs(int world) {
  std::vector<pair_of_calls> all;
  bool const two_shot = world >= static_cast<int>(peerless::least_two_shot_world);
  for (protocol_id protocol : {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk, protocol_id::two_shot}) {
    if (protocol == protocol_id::two_shot && !two_shot) continue;
    call_spec const call{.type = dtype::bf16, .n_elements = 1000, .protocol = protocol};
    call_spec other = call;
    other.n_elements = 999;
    all.push_back({"counts differ", call, other, "1000", "999"});
    other.n_elements = 1;
    all.push_back({"a short call meets a long one", call, other, "1000", "1 x"});
    other.n_elements = 0;
    all.push_back({"an empty call meets a full one", call, other, "1000", "0 x"});
    other = call;
    other.type = dtype::f16;
    all.push_back({"types of one size differ", call, other, "bfloat16", "half"});
    other.type = dtype::f32;
    all.push_back({"types differ", call, other, "bfloat16", "float"});
    other = call;
    other.op = reduce_op::min;
    all.push_back({"operations differ", call, other, "sum", "min"});
  }
  auto const by_plan = [](dtype type, std::size_t n) { return call_spec{.type = type, .n_elements = n}; };
  all.push_back({"counts differ so much that protocols differ", by_plan(dtype::f32, 100), by_plan(dtype::f32, 20000),
                 "100 x", "20000 x"});
  all.push_back({"a float meets an integer of the same size", by_plan(dtype::f32, 100), by_plan(dtype::i32, 100),
                 "float", "int32"});
  auto const forced = [](protocol_id protocol) {
    return call_spec{.type = dtype::f32, .n_elements = 100, .protocol = protocol};
  };
  // A backend may run another protocol than the one that is asked for, and one in the place of several.
  auto const meet = [&](const char* what, protocol_id most, protocol_id odd) {
    protocol_id const runs = backend_under_test().stand_in(most), runs_odd = backend_under_test().stand_in(odd);
    if (runs != runs_odd)
      all.push_back(
          {what, forced(most), forced(odd), peerless::name_of(runs).data(), peerless::name_of(runs_odd).data()});
  };
  meet("sentinel meets flagged", protocol_id::sentinel, protocol_id::flagged);
  meet("flagged meets bulk", protocol_id::flagged, protocol_id::bulk);
  meet("bulk meets sentinel", protocol_id::bulk, protocol_id::sentinel);
  if (two_shot) meet("two-shot meets bulk", protocol_id::two_shot, protocol_id::bulk);
  return all;
}

// One pair after the other on the same ranks, each with a new communicator; the last rank is the odd one. What a rank
// was told goes to its record's failures, since one record holds one outcome.
void meet_all_pairs(rank_context& context, peerless::bootstrap_ref group, std::uint64_t good_calls) {
  int const world = context.world_size();
  bool const odd = context.rank() == world - 1;
  std::uint64_t phase = 0;
  for (pair_of_calls const& pair : pairs(world)) {
    std::string const where =
        std::string(pair.what) + " (" + describe_call(pair.most) + " / " + describe_call(pair.odd) + ")";
    auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
    call_checker checker(context, *communicator, fault_arena_bytes, 11);
    checker.set_where(where);
    for (std::uint64_t i = 0; i < good_calls; ++i) checker.run(pair.most);
    // A rank that is still in a good call would be told in that one.
    context.enter_phase(++phase);
    for (int rank = 0; rank < world; ++rank)
      context.require(context.wait_for_phase(rank, phase), where, "waiting for the good calls");
    // Not run through the checker's comparison: a result may be anything when ranks disagree.
    context.record().outcomes = 0;
    call_spec const& call = odd ? pair.odd : pair.most;
    bool const failed = record_error(context, [&] { checker.run(call); });
    fault_outcome const told = context.record().ended;
    if (!context.require(failed, where, "no error")) continue;
    std::string const text(told.text.view());
    context.require(told.errc() == errc::call_mismatch, where, text);
    context.require(told.rank >= 0 && told.rank < world && (told.rank != context.rank() || world > 2), where,
                    "names rank " + std::to_string(told.rank));
    context.require(told.elapsed_ns < std::chrono::nanoseconds(fault_deadline).count() / 4, where,
                    "told after " + std::to_string(told.elapsed_ns / 1000000) + " ms");
    if (world == 2) {
      context.require(
          text.find(pair.word_of_most) != std::string::npos && text.find(pair.word_of_odd) != std::string::npos, where,
          "does not tell the calls apart: " + text);
    }
    require_sticky(context, *communicator, checker, call);
    destroy_in_time(context, communicator);
  }
}

// Processes of one GPU take turns on it; threads share it.
std::vector<int> worlds(ranks_as how) {
  if (!backend_under_test().on_device) return {2, 3, 5};
  return how == ranks_as::processes ? std::vector<int>{2} : std::vector<int>{2, 4};
}

}  // namespace

TEST_CASE("calls that differ are told on every rank", "[processes][threads]") {
  for (ranks_as how : both_ways()) {
    for (int world : worlds(how)) {
      // The first call of all, and one after others.
      for (std::uint64_t good_calls : {0, 3}) {
        INFO("world " << world << " among " << name_of(how) << ", after " << good_calls << " good calls");
        auto const run = run_ranks(world, how, [&](rank_context& context, peerless::bootstrap_ref group) {
          meet_all_pairs(context, group, good_calls);
        });
        CHECK(run.problems() == "");
      }
    }
  }
}

// A rank that skips a call is one call behind: it is late for the others, and its next call does not fit theirs.
TEST_CASE("calls in another order are told", "[processes]") {
  call_spec const first{.type = dtype::f32, .n_elements = 100, .protocol = protocol_id::flagged};
  call_spec const second{.type = dtype::f32, .n_elements = 3000, .protocol = protocol_id::bulk};
  auto const run = run_ranks(2, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref group) {
    auto communicator = backend_under_test().make(group, fault_options(), fault_arena_bytes);
    call_checker checker(context, *communicator, fault_arena_bytes, 12);
    record_error(context, [&] {
      checker.run(context.rank() == 0 ? first : second);
      checker.run(context.rank() == 0 ? second : first);
    });
    destroy_in_time(context, communicator);
  });
  CHECK(expectations(run).failed(0, {errc::call_mismatch}, 1).failed(1, {errc::call_mismatch}, 0).text() == "");
}
