// Calls on memory, streams and parts of a GPU of every kind: verified bit for bit, captured and eager.
#include <algorithm>
#include <string>
#include <vector>

#include <peerless/transport/multiprocessors.cuh>

#include "support/call_checker.hpp"
#include "support/catch.hpp"
#include "support/cuda_memory.cuh"
#include "support/cuda_place.hpp"
#include "support/rank_communicator.hpp"
#include "support/slots.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::dtype;
using peerless::errc;
using peerless::protocol_id;

namespace {

constexpr std::size_t arena_bytes = std::size_t{12} << 20;

// Every protocol, from one element to more blocks than a small part of a GPU can hold; arrays lie across the seams of
// memory that is mapped in pieces.
std::vector<call_spec> calls() {
  return {
      {.type = dtype::bf16, .n_elements = 1, .data = payload::counted},
      {.type = dtype::f32, .n_elements = 1000, .data = payload::counted, .protocol = protocol_id::sentinel},
      {.type = dtype::f32, .n_elements = 0},
      {.type = dtype::bf16, .n_elements = 200001, .protocol = protocol_id::sentinel, .in_offset = 1},
      {.type = dtype::f32, .n_elements = 50000, .data = payload::counted, .protocol = protocol_id::flagged},
      {.type = dtype::f64, .n_elements = 8000, .protocol = protocol_id::flagged, .out_offset = 1},
      {.type = dtype::f32, .n_elements = 200001, .data = payload::counted, .protocol = protocol_id::bulk},
      {.type = dtype::bf16, .n_elements = 400003, .protocol = protocol_id::bulk, .in_offset = 3, .out_offset = 1},
      {.type = dtype::f32, .n_elements = 150000, .data = payload::wide},
  };
}

std::vector<call_spec> in_place(std::vector<call_spec> all) {
  for (call_spec& call : all) call.in_place = true;
  return all;
}

// All ranks, with a communicator of their own at each place. The first call of each is a captured one where the stream
// can be captured.
void work_at(const std::vector<cuda_place>& places, rank_context& context, peerless::bootstrap_ref group) {
  auto options = default_slots();
  options.deadline = 20s;
  for (cuda_place const& place : places) {
    place_of_this_rank = place;
    try {
      auto const communicator = backend_under_test().make(group, options, arena_bytes);
      call_checker checker(context, *communicator, arena_bytes, 21);
      checker.set_where(describe(place));
      auto const list = calls();
      for (unsigned turn = 0; place.captures() && turn < 2; ++turn) {
        int const graph = checker.capture(list);
        checker.replay(graph, list);
        checker.replay(graph, list, 2);
        checker.run(list[turn]);
      }
      for (unsigned turn = 0; turn < 2; ++turn) checker.run(list);
      checker.run(in_place(list));
      for (call_spec const& call : list) checker.run(call);
      communicator->check();
    } catch (const peerless::error& e) {
      throw peerless::error(e.code(), describe(place) + ": " + e.message(), e.rank(), e.native_code(), e.where());
    }
  }
}

// Those that this box has; the others are skipped by name.
std::vector<cuda_place> available(std::vector<cuda_place> places) {
  auto const run = run_bare(static_cast<int>(places.size()), ranks_as::processes, [&](rank_context& context) {
    auto const& place = places[static_cast<std::size_t>(context.rank())];
    place_of_this_rank = place;
    try {
      cuda_memory const made(0, 1 << 20);
    } catch (const peerless::error& e) {
      if (e.code() != errc::unsupported) throw;
      context.record().note.assign(e.message());
    }
  });
  CHECK(run.problems() == "");
  std::vector<cuda_place> usable;
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto const reason = run[static_cast<int>(i)].note.view();
    if (reason.empty()) {
      usable.push_back(places[i]);
    } else {
      record_skip(describe(places[i]) + ": " + std::string(reason));
    }
  }
  return usable;
}

void require_all_right(ranks_as how, const std::vector<cuda_place>& wanted, int world = 2) {
  auto const places = available(wanted);
  auto const run = run_ranks(
      world, how, [&](rank_context& context, peerless::bootstrap_ref group) { work_at(places, context, group); });
  INFO("among " << name_of(how));
  CHECK(run.problems() == "");
  CHECK((run.calls_verified() > 0 || places.empty()));
}

std::vector<cuda_place> of_every_memory() {
  std::vector<cuda_place> places;
  for (memory_kind kind : {memory_kind::device, memory_kind::pool, memory_kind::pieces, memory_kind::host,
                           memory_kind::registered, memory_kind::managed}) {
    places.push_back({.memory = kind});
  }
  places.push_back({.memory = memory_kind::pool, .stream = stream_kind::of_the_thread});
  return places;
}

std::vector<cuda_place> on_every_stream(bool shared_too) {
  std::vector<cuda_place> places;
  for (stream_kind kind :
       {stream_kind::own, stream_kind::blocking, stream_kind::null, stream_kind::legacy, stream_kind::of_the_thread}) {
    if (shared_too || !is_shared(kind)) places.push_back({.stream = kind});
  }
  return places;
}

// Fewer multiprocessors than a call has blocks: 8 is the least that sm_90 can be divided into.
std::vector<cuda_place> in_every_part() {
  return {{.multiprocessors = 8}, {.memory = memory_kind::pieces, .multiprocessors = 16}};
}

}  // namespace

TEST_CASE("arrays in every kind of memory, among processes", "[gpu1]") {
  require_all_right(ranks_as::processes, of_every_memory());
}

TEST_CASE("arrays in every kind of memory, among threads", "[gpu1]") {
  require_all_right(ranks_as::threads, of_every_memory());
}

TEST_CASE("calls on every kind of stream, among processes", "[gpu1]") {
  require_all_right(ranks_as::processes, on_every_stream(true));
}

TEST_CASE("calls on streams of their own, among threads", "[gpu1]") {
  require_all_right(ranks_as::threads, on_every_stream(false));
}

// With one GPU the ranks of a process would wait for each other in its one legacy stream.
TEST_CASE("calls on the legacy stream of each GPU, among threads", "[gpu2]") {
  require_all_right(ranks_as::threads, on_every_stream(true));
}

TEST_CASE("communicators in green contexts, among processes", "[gpu1]") {
  require_all_right(ranks_as::processes, in_every_part());
}

// With one GPU both ranks get the same part of it.
TEST_CASE("communicators in green contexts, among threads", "[gpu1]") {
  require_all_right(ranks_as::threads, in_every_part());
}

// On two GPUs, too, ranks share one then, and all ranks of a GPU have the same multiprocessors: the blocks of a call of
// one of them fill these.
TEST_CASE("four ranks in green contexts, among threads", "[gpu1]") {
  require_all_right(ranks_as::threads, {{.multiprocessors = 8}}, 4);
}

TEST_CASE("a green context has fewer multiprocessors than its device", "[gpu1]") {
  if (available({{.multiprocessors = 8}}).empty()) return;
  auto const run = run_bare(1, ranks_as::processes, [](rank_context& context) {
    place_of_this_rank = {};
    cuda_memory const all(0, 4096);
    auto const whole = peerless::detail::usable_multiprocessors(0);
    int in_all = 0;
    require_cuda(cudaDeviceGetAttribute(&in_all, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    context.require(static_cast<int>(whole) == in_all, "the primary context", "has " + std::to_string(whole));
    place_of_this_rank = {.multiprocessors = 8};
    {
      cuda_memory const part(0, 4096);
      auto const usable = peerless::detail::usable_multiprocessors(0);
      context.require(usable >= 8 && usable < whole, "a green context", "has " + std::to_string(usable));
    }
    context.require(peerless::detail::usable_multiprocessors(0) == whole, "after a green context", "has fewer");
  });
  CHECK(run.problems() == "");
}

TEST_CASE("ranks with parts of different size", "[gpu1]") {
  if (available({{.multiprocessors = 8}}).empty()) return;
  for (ranks_as how : both_ways()) {
    auto const run = run_ranks(2, how, [&](rank_context& context, peerless::bootstrap_ref group) {
      work_at({{.multiprocessors = context.rank() == 0 ? 8u : 0u}}, context, group);
    });
    INFO("among " << name_of(how));
    CHECK(run.problems() == "");
    CHECK(run.calls_verified() > 0);
  }
}
