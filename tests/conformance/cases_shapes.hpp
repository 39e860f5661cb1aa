// Cases about counts, alignment, in-place operation and the capacities of slots and rings.
#pragma once

#include <cstddef>
#include <vector>

#include "case.hpp"

namespace peerless::test {

// Counts from none to a few thousand: edges of a 16-byte vector of every type, of warps and blocks, and primes.
inline constexpr std::size_t counts[] = {0,  1,  2,  3,  4,  5,   7,   8,   9,   15,  16,  17,   31,   32,   33,
                                         47, 63, 64, 65, 97, 127, 128, 129, 255, 257, 509, 1021, 2048, 2053, 4093};

inline void case_counts(case_run& c) {
  std::size_t turn = 0;
  for (dtype type : all_types) {
    for (protocol_id protocol : all_protocols) {
      for (std::size_t n : counts) {
        if (!c.admits(protocol, type, n * size_bytes(type))) continue;
        c.run({.type = type, .op = all_ops[turn++ % all_ops.size()], .n_elements = n, .protocol = protocol});
      }
    }
  }
}

// The protocol by plan: every count of every type with every operation; among many ranks with one.
inline void case_counts_by_plan(case_run& c) {
  std::size_t turn = 0;
  for (dtype type : all_types) {
    for (std::size_t n : counts) {
      if (c.session().kind == wide_session) {
        c.run({.type = type, .op = all_ops[turn++ % all_ops.size()], .n_elements = n, .data = payload::wide});
        continue;
      }
      std::vector<call_spec> calls;
      for (reduce_op operation : all_ops)
        calls.push_back({.type = type, .op = operation, .n_elements = n, .data = payload::wide});
      c.run(calls);
    }
  }
}

inline void case_offsets(case_run& c) {
  for (dtype type : all_types) {
    for (protocol_id protocol : all_protocols) {
      for (std::size_t n : {1, 7, 8, 9, 15, 17, 301}) {
        if (!c.admits(protocol, type, n * size_bytes(type))) continue;
        for (std::size_t offsets = 0; offsets < 4; ++offsets) {
          c.run({.type = type,
                 .n_elements = n,
                 .protocol = protocol,
                 .in_offset = offsets & 1,
                 .out_offset = offsets >> 1});
        }
      }
    }
  }
}

inline void case_in_place(case_run& c) {
  for (dtype type : all_types) {
    for (protocol_id protocol : all_protocols) {
      for (std::size_t n : {0, 1, 8, 13, 500, 1000}) {
        if (!c.admits(protocol, type, n * size_bytes(type))) continue;
        for (std::size_t offset : {0, 1}) {
          c.run({.type = type,
                 .op = all_ops[n % all_ops.size()],
                 .n_elements = n,
                 .protocol = protocol,
                 .out_offset = offset,
                 .in_place = true});
        }
      }
    }
  }
  // A ring is passed several times while its input is being overwritten.
  for (protocol_id protocol : {protocol_id::bulk, protocol_id::two_shot}) {
    if (c.admits(protocol, dtype::f32, 0))
      c.run({.type = dtype::f32, .n_elements = 9001, .protocol = protocol, .in_place = true});
  }
}

// Only some ranks in place, each with another alignment: how a buffer lies is no part of the agreement among ranks.
inline void case_places_differ(case_run& c) {
  auto const rank = static_cast<std::size_t>(c.rank());
  for (dtype type : all_types) {
    for (protocol_id protocol : all_protocols) {
      std::size_t const n = 333;
      if (!c.admits(protocol, type, n * size_bytes(type))) continue;
      c.run({.type = type,
             .n_elements = n,
             .protocol = protocol,
             .in_offset = rank,
             .out_offset = rank / 2,
             .in_place = rank % 2 == 1});
    }
  }
}

// One element less than a slot, a slot, one more; by plan and forced.
inline void case_slot_edges(case_run& c) {
  auto const& sizes = c.session().options.sizes;
  for (dtype type : all_types) {
    for (std::size_t capacity : {sizes.sentinel_slot_bytes, sizes.flagged_slot_bytes}) {
      std::size_t const full = capacity / size_bytes(type);
      for (std::size_t n : {full - 1, full, full + 1}) {
        c.run({.type = type, .n_elements = n, .data = payload::wide});
        for (protocol_id protocol : all_protocols) {
          if (c.admits(protocol, type, n * size_bytes(type)))
            c.run({.type = type, .n_elements = n, .data = payload::bits, .protocol = protocol});
        }
      }
    }
  }
}

// Ring edges: a chunk, all blocks' chunks, the whole ring, several times round, each one element short and one over.
inline void case_larger_than_slots(case_run& c) {
  auto const& sizes = c.session().options.sizes;
  std::size_t const chunk = sizes.bulk_chunk_bytes, row = chunk * sizes.bulk_blocks, ring = row * sizes.bulk_depth;
  for (dtype type : all_types) {
    for (std::size_t bytes : {chunk, row, ring, 3 * ring, 5 * sizes.flagged_slot_bytes}) {
      std::size_t const n = bytes / size_bytes(type);
      for (std::size_t count : {n - 1, n, n + 1}) {
        for (protocol_id protocol : {protocol_id::bulk, protocol_id::two_shot}) {
          if (!c.admits(protocol, type, 0)) continue;
          reduce_op const operation = all_ops[count % all_ops.size()];
          c.run({.type = type, .op = operation, .n_elements = count, .protocol = protocol});
        }
      }
    }
    c.run({.type = type,
           .n_elements = 3 * sizes.flagged_slot_bytes / size_bytes(type) + 1,
           .in_offset = 1,
           .out_offset = 1});
  }
}

// Calls without elements exchange something all the same; runs of them between others must not disturb the slots.
inline void case_empty_calls(case_run& c) {
  for (protocol_id protocol : all_protocols) {
    if (!c.admits(protocol, dtype::bf16, 0)) continue;
    for (std::size_t run : {1, 2, 5, 6, 7, 13}) {
      c.run({.type = dtype::bf16, .n_elements = 700, .protocol = protocol});
      std::vector<call_spec> const empty(run, call_spec{.type = dtype::bf16, .n_elements = 0, .protocol = protocol});
      c.run(empty);
      c.run({.type = dtype::bf16, .n_elements = 9, .protocol = protocol});
    }
  }
}

// Messages of many megabytes whose count is prime or ends inside a vector, with the default slots.
inline void case_large_primes(case_run& c) {
  c.run({.type = dtype::bf16, .n_elements = 10556591});
  c.run({.type = dtype::bf16,
         .op = reduce_op::max,
         .n_elements = 10556587,
         .data = payload::bits,
         .in_offset = 1,
         .out_offset = 1});
  c.run({.type = dtype::f32, .n_elements = 2097169, .data = payload::wide, .in_place = true});
  c.run({.type = dtype::i32, .n_elements = 1299709, .data = payload::extremes});
  c.run({.type = dtype::f64, .n_elements = 786433, .data = payload::low_word_ones});
  c.run({.type = dtype::f16, .n_elements = 262139, .data = payload::sentinel_words, .protocol = protocol_id::sentinel});
  c.run({.type = dtype::f16, .n_elements = 262144, .data = payload::bits, .protocol = protocol_id::sentinel});
  c.run({.type = dtype::u32, .n_elements = 262144, .data = payload::bits, .protocol = protocol_id::flagged});
}

}  // namespace peerless::test
