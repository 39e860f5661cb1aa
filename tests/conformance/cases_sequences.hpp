// Cases about what follows what: shapes and protocols that change from call to call, late ranks, captured graphs.
#pragma once

#include <cstddef>
#include <vector>

#include "case.hpp"

namespace peerless::test {

// Calls of any shape, one after the other without waiting in between.
inline void case_back_to_back(case_run& c) {
  for (unsigned batch = 0; batch < 40 * c.session().effort; ++batch) {
    std::vector<call_spec> calls;
    for (std::uint64_t i = 0, n = 1 + c.choices().below(16); i < n; ++i) calls.push_back(c.any_call(20000));
    c.run(calls);
  }
}

// Runs of one protocol, each long enough to go round its slots, then another.
inline void case_mixed_protocols(case_run& c) {
  for (unsigned turn = 0; turn < 60 * c.session().effort; ++turn) {
    protocol_id const protocol = all_protocols[c.choices().below(all_protocols.size())];
    std::vector<call_spec> calls;
    for (std::uint64_t i = 0, n = 1 + c.choices().below(15); i < n; ++i) {
      call_spec call = c.any_call(4096);
      call.protocol = c.admits(protocol, call.type, call.bytes()) ? protocol : protocol_id::flagged;
      calls.push_back(call);
    }
    c.run(calls);
  }
}

// One message in every launch shape: blocks without work, chunks of one vector, shapes that change from call to call.
inline void case_launch_shapes(case_run& c) {
  auto const& sizes = c.session().options.sizes;
  for (protocol_id protocol : all_protocols) {
    for (std::size_t n : {0, 1, 5, 1000}) {
      for (std::uint32_t blocks = 1; blocks <= sizes.bulk_blocks; ++blocks) {
        for (std::uint32_t chunk : {16u, 48u, 256u, sizes.bulk_chunk_bytes}) {
          bool const in_chunks = protocol == protocol_id::bulk || protocol == protocol_id::two_shot;
          if (!in_chunks && chunk != 16) continue;
          if (!c.admits(protocol, dtype::bf16, n * size_bytes(dtype::bf16))) continue;
          c.run({.type = dtype::bf16,
                 .n_elements = n,
                 .data = payload::wide,
                 .protocol = protocol,
                 .blocks = blocks,
                 .chunk_bytes = chunk});
        }
      }
    }
  }
}

// Large and small in turn: what a large call left in the slots must be gone for the small one, and the other way round.
inline void case_large_and_small(case_run& c) {
  for (protocol_id protocol : all_protocols) {
    for (unsigned turn = 0; turn < 8; ++turn) {
      for (std::size_t n : {1000, 1, 3, 1000, 5, 999, 0, 1000, 16, 17, 1000}) {
        if (c.admits(protocol, dtype::f32, n * size_bytes(dtype::f32)))
          c.run({.type = dtype::f32, .n_elements = n, .data = payload::sentinel_words, .protocol = protocol});
      }
    }
  }
}

template <delays How>
void case_late_ranks(case_run& c) {
  c.checker().set_delays(How);
  unsigned const turns = (How == delays::many ? 60 : 120) * c.session().effort;
  for (unsigned turn = 0; turn < turns; ++turn) {
    std::vector<call_spec> calls;
    for (std::uint64_t i = 0, n = 1 + c.choices().below(5); i < n; ++i) calls.push_back(c.any_call(6000));
    c.run(calls);
  }
  c.checker().set_delays(delays::none);
}

// The sequence that is captured: every protocol, several shapes, nothing in place.
inline std::vector<call_spec> graph_calls() {
  return {
      {.type = dtype::bf16, .n_elements = 8, .protocol = protocol_id::sentinel},
      {.type = dtype::f32, .n_elements = 1000, .protocol = protocol_id::flagged, .in_offset = 1},
      {.type = dtype::f16, .n_elements = 0, .protocol = protocol_id::sentinel},
      {.type = dtype::f64,
       .op = reduce_op::max,
       .n_elements = 1001,
       .data = payload::low_word_ones,
       .protocol = protocol_id::bulk},
      {.type = dtype::bf16,
       .n_elements = 1537,
       .data = payload::sentinel_words,
       .protocol = protocol_id::sentinel,
       .out_offset = 1},
      {.type = dtype::i32, .n_elements = 77, .data = payload::extremes},
      {.type = dtype::f32, .n_elements = 4099, .data = payload::wide},
  };
}

// One graph, replayed 1000 times on fresh data, between eager calls and replays without a wait between them.
inline void case_graph_replays(case_run& c) {
  auto const calls = graph_calls();
  // Ranks instantiate together: it may synchronise a device.
  int const graph = c.checker().capture(calls);
  for (unsigned replay = 0; replay < 1000; ++replay) {
    c.checker().replay(graph, calls, 1 + static_cast<int>(c.choices().below(3) == 0));
    if (c.choices().below(4) == 0) c.run(c.any_call(6000));
  }
}

// The first call of a shape may be the captured one, and graphs interleave.
inline void case_graphs_interleaved(case_run& c) {
  std::vector<call_spec> const first = {
      {.type = dtype::u32, .op = reduce_op::min, .n_elements = 611, .data = payload::bits}};
  std::vector<call_spec> const second = {
      {.type = dtype::bf16, .n_elements = 612, .data = payload::nans, .in_place = true},
      {.type = dtype::f16, .op = reduce_op::min, .n_elements = 3, .data = payload::signed_zeros}};
  int const graphs[] = {c.checker().capture(first), c.checker().capture(second)};
  for (unsigned turn = 0; turn < 200; ++turn) {
    bool const which = c.choices().below(2) == 0;
    c.checker().replay(graphs[which ? 0 : 1], which ? first : second);
    if (c.choices().below(3) == 0) c.run(c.any_call(3000));
  }
}

}  // namespace peerless::test
