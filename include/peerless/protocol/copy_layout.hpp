// Where everything of protocol `copied` lies: places and counts in a segment that the ranks share, and what a rank
// keeps.
#pragma once

#include <peerless/core/page_bytes.hpp>
#include <peerless/protocol/call.hpp>

PEERLESS_BEGIN_NAMESPACE

// Fewest places of a rank, if it has any; half of them is the least that copy_lead and copy_scratch can do with.
inline constexpr std::uint32_t least_copy_depth = 2;

// Chunks that a rank may have sent on their way before it announces the first of them.
PEERLESS_HD constexpr std::uint32_t copy_lead(std::uint32_t depth) { return depth / 2; }
// Scratch buffers for chunks of one peer: those that come down, are folded, or wait for it.
PEERLESS_HD constexpr std::uint32_t copy_scratch(std::uint32_t depth) { return depth - copy_lead(depth); }

// What a user may size. All ranks must give the same values.
struct copy_sizes {
  std::uint32_t depth = 0;               // places of each rank, 4 for speed; 0: no calls by copy engines, no memory
  std::uint32_t chunk_bytes = 4u << 20;  // of a place; a multiple of 16
};

// Offsets in bytes from the start of the segment. Trivially copyable: a kernel argument.
struct copy_layout {
  copy_sizes sizes;
  std::uint32_t world_size;
  std::size_t ready_lines;     // flag_line[world]
  std::size_t taint_lines;     // counter_line[world]: 1 when the rank's places hold what nobody waited for
  std::size_t consumed_lines;  // counter_line[writer][reader]
  std::size_t data;            // [world][depth][chunk_bytes]
  std::size_t total_bytes;     // multiple of huge_page_bytes
};

constexpr copy_layout make_copy_layout(const copy_sizes& sizes, std::uint32_t world_size) {
  const std::size_t world = world_size;
  copy_layout l{};
  l.sizes = sizes;
  l.world_size = world_size;
  l.ready_lines = 4096;
  l.taint_lines = l.ready_lines + world * sizeof(flag_line);
  l.consumed_lines = l.taint_lines + world * sizeof(counter_line);
  l.data = detail::round_up(l.consumed_lines + world * world * sizeof(counter_line), 4096);
  l.total_bytes = detail::round_up(l.data + world * sizes.depth * sizes.chunk_bytes, huge_page_bytes);
  return l;
}

constexpr std::uint64_t layout_hash(const copy_layout& l) {
  return hash_values({sizeof(flag_line), sizeof(counter_line), l.sizes.depth, l.sizes.chunk_bytes, l.world_size,
                      l.ready_lines, l.taint_lines, l.consumed_lines, l.data, l.total_bytes});
}

// Chunks that count as sent before the first call: whole turns of the places.
constexpr std::uint64_t first_copy_base(const copy_sizes& sizes, std::uint64_t first_epoch) {
  return (first_epoch - 1) / sizes.depth * sizes.depth;
}

// Writes the start state of a fresh, zeroed segment but for its header. Called by one rank before any other may use it.
inline void initialise_copy_segment(std::byte* segment, const copy_layout& l, std::uint64_t first_epoch) {
  const std::uint64_t before = first_copy_base(l.sizes, first_epoch);
  const std::size_t world = l.world_size;
  auto* ready = reinterpret_cast<flag_line*>(segment + l.ready_lines);
  for (std::size_t r = 0; r < world; ++r) ready[r].parity[0].value = before;
  auto* consumed = reinterpret_cast<counter_line*>(segment + l.consumed_lines);
  for (std::size_t i = 0; i < world * world; ++i) consumed[i].value = before;
}

// Private to a rank, in the memory of its executor. Changed only by the rank's own calls, in stream order.
struct copy_state {
  alignas(line_bytes) std::uint64_t next_base;  // chunks before the next call; a multiple of the depth
  // The call that is running, for its steps.
  std::uint64_t base;
  std::uint64_t call, epoch, fingerprint;
};

constexpr copy_state make_copy_state(const copy_sizes& sizes, std::uint64_t first_epoch) {
  copy_state state{};
  state.next_base = first_copy_base(sizes, first_epoch);
  return state;
}

// Everything that a call needs. A trivially copyable handle, valid while the transport that made it lives. All pointers
// are addresses as the executor sees them.
struct copy_view {
  rank_view ranks;
  std::byte* segment;  // shared by the ranks
  copy_state* state;   // private to the rank
  std::byte* scratch;  // likewise: [copy_scratch(depth)][world - 1][chunk_bytes]
  copy_layout layout;

  PEERLESS_HD flag_line* ready(std::uint32_t r) const {
    return reinterpret_cast<flag_line*>(segment + layout.ready_lines) + r;
  }
  PEERLESS_HD std::uint64_t* taint(std::uint32_t r) const {
    return &(reinterpret_cast<counter_line*>(segment + layout.taint_lines) + r)->value;
  }
  PEERLESS_HD counter_line* consumed(std::uint32_t writer, std::uint32_t reader) const {
    return reinterpret_cast<counter_line*>(segment + layout.consumed_lines) + std::size_t{writer} * layout.world_size +
           reader;
  }
  // The place of chunk `c` of a call.
  PEERLESS_HD std::byte* place(std::uint32_t r, std::uint32_t c) const {
    return segment + layout.data +
           (std::size_t{r} * layout.sizes.depth + c % layout.sizes.depth) * layout.sizes.chunk_bytes;
  }
  // Where chunk `c` of `peer`, which is not this rank, comes down.
  PEERLESS_HD std::byte* scratch_of(std::uint32_t peer, std::uint32_t c) const {
    const std::size_t index = peer < ranks.rank ? peer : peer - 1;
    return scratch + (c % copy_scratch(layout.sizes.depth) * std::size_t{layout.world_size - 1} + index) *
                         layout.sizes.chunk_bytes;
  }
};

PEERLESS_END_NAMESPACE
