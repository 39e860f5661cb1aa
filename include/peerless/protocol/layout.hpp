// Where everything lies in the shared segment: a pure function of the world and the sizes, the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <peerless/core/hash.hpp>
#include <peerless/core/page_bytes.hpp>
#include <peerless/protocol/control.hpp>
#include <peerless/protocol/fingerprint.hpp>

PEERLESS_BEGIN_NAMESPACE

// What a user may size. All ranks must give the same values.
struct layout_sizes {
  std::uint32_t world_size = 1;
  std::uint32_t bulk_blocks = max_blocks;       // blocks that have a ring
  std::uint32_t bulk_depth = 8;                 // chunks in each ring; a power of two
  std::uint32_t bulk_chunk_bytes = 8 << 10;     // multiple of 16
  std::size_t sentinel_slot_bytes = 512 << 10;  // multiple of line_bytes
  std::size_t flagged_slot_bytes = 1 << 20;     // multiple of line_bytes
  friend constexpr bool operator==(const layout_sizes&, const layout_sizes&) = default;
};

// Ranks below which a two-shot reads as much as a one-shot.
inline constexpr std::uint32_t least_two_shot_world = 3;

// A header, then one region a rank, in rank order. A region holds what its rank writes and the others read or poll, so
// that it can lie on the readers' NUMA node. The first two offsets are from the start of the segment, the others from
// the start of a region, in bytes. Trivially copyable: a kernel argument.
struct segment_layout {
  layout_sizes sizes;
  std::size_t regions;          // of rank 0's region; the others follow without gaps
  std::size_t total_bytes;      // end of the last region
  std::size_t region_bytes;     // a multiple of the alignment of regions, as is `regions`
  std::size_t sentinel_stride;  // bytes of one sentinel slot: a line for the header, then the data
  std::size_t entered_line;     // counter_line
  std::size_t shadows;          // uint32_t[sentinel_slots]: for race detectors only
  std::size_t flag_lines;       // flag_line[max_blocks]
  std::size_t ready_lines;      // flag_line[bulk_blocks]
  std::size_t consumed_lines;   // counter_line[writer][bulk_blocks]: what this rank has read of each writer's rings
  std::size_t sentinel_data;    // [sentinel_slots][sentinel_stride]
  std::size_t flagged_data;     // [flagged_slots][flagged_slot_bytes]
  std::size_t bulk_data;        // [bulk_blocks][bulk_depth][bulk_chunk_bytes]
  // Rings of the two-shot, of as many blocks, chunks and bytes; nothing where no world of three is.
  std::size_t two_shot_posted_lines;   // flag_line[bulk_blocks]
  std::size_t two_shot_reduced_lines;  // counter_line[bulk_blocks]
  std::size_t two_shot_data;           // [bulk_blocks][bulk_depth][bulk_chunk_bytes]
  std::size_t two_shot_results;        // [bulk_blocks][bulk_depth][two_shot_part_bytes]
  std::size_t two_shot_part_bytes;     // of a rank's part of a chunk
};

// A flag and the fingerprint of the call it belongs to, twice: consecutive epochs use alternate halves, since a peer
// may be one call ahead of its slowest reader. In a ready line `value` is the count of chunks, which needs no halves.
struct flag_line {
  struct half {
    std::uint64_t value;
    std::uint64_t fingerprint;
  };
  alignas(line_bytes) half parity[2];
};

struct counter_line {
  alignas(line_bytes) std::uint64_t value;
};

// First bytes of the segment: an attaching rank refuses one whose values differ from its own.
struct segment_header {
  std::uint64_t magic;
  std::uint64_t layout_hash;
  std::uint64_t total_bytes;
};
inline constexpr std::uint64_t segment_magic = 0x5053454c52454550ull;  // "PEERLESP"

namespace detail {
constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
}  // namespace detail

// The layout for these sizes and pages of `alignment` bytes. In a region, words and counters lie in front, data behind.
constexpr segment_layout make_layout(const layout_sizes& sizes, std::size_t alignment = page_bytes) {
  const std::size_t world = sizes.world_size;
  segment_layout l{};
  l.sizes = sizes;
  l.sentinel_stride = line_bytes + detail::round_up(sizes.sentinel_slot_bytes, line_bytes);
  std::size_t at = 0;
  const auto place = [&at](std::size_t bytes, std::size_t multiple) {
    at = detail::round_up(at, multiple);
    const std::size_t offset = at;
    at += bytes;
    return offset;
  };
  l.entered_line = place(sizeof(counter_line), line_bytes);
  l.shadows = place(sentinel_slots * sizeof(std::uint32_t), line_bytes);
  l.flag_lines = place(max_blocks * sizeof(flag_line), line_bytes);
  l.ready_lines = place(sizes.bulk_blocks * sizeof(flag_line), line_bytes);
  l.consumed_lines = place(world * sizes.bulk_blocks * sizeof(counter_line), line_bytes);
  l.sentinel_data = place(sentinel_slots * l.sentinel_stride, page_bytes);
  l.flagged_data = place(flagged_slots * detail::round_up(sizes.flagged_slot_bytes, line_bytes), page_bytes);
  l.bulk_data = place(std::size_t{sizes.bulk_blocks} * sizes.bulk_depth * sizes.bulk_chunk_bytes, page_bytes);
  if (world >= least_two_shot_world) {
    const std::size_t vectors = sizes.bulk_chunk_bytes / sizeof(vec16);
    l.two_shot_part_bytes = (vectors + world - 1) / world * sizeof(vec16);
    const std::size_t chunks = std::size_t{sizes.bulk_blocks} * sizes.bulk_depth;
    l.two_shot_posted_lines = place(sizes.bulk_blocks * sizeof(flag_line), line_bytes);
    l.two_shot_reduced_lines = place(sizes.bulk_blocks * sizeof(counter_line), line_bytes);
    l.two_shot_data = place(chunks * sizes.bulk_chunk_bytes, page_bytes);
    l.two_shot_results = place(chunks * l.two_shot_part_bytes, page_bytes);
  }
  l.region_bytes = detail::round_up(at, alignment);
  l.regions = detail::round_up(page_bytes, alignment);
  l.total_bytes = l.regions + world * l.region_bytes;
  return l;
}

// Over every size and offset and the structures' sizes: the meaning of every byte of a segment.
constexpr std::uint64_t layout_hash(const segment_layout& l) {
  return hash_values({sizeof(flag_line),
                      sizeof(counter_line),
                      sentinel_slots,
                      flagged_slots,
                      max_blocks,
                      l.sizes.world_size,
                      l.sizes.bulk_blocks,
                      l.sizes.bulk_depth,
                      l.sizes.bulk_chunk_bytes,
                      l.sizes.sentinel_slot_bytes,
                      l.sizes.flagged_slot_bytes,
                      l.regions,
                      l.region_bytes,
                      l.sentinel_stride,
                      l.entered_line,
                      l.shadows,
                      l.flag_lines,
                      l.ready_lines,
                      l.consumed_lines,
                      l.sentinel_data,
                      l.flagged_data,
                      l.bulk_data,
                      l.two_shot_posted_lines,
                      l.two_shot_reduced_lines,
                      l.two_shot_data,
                      l.two_shot_results,
                      l.two_shot_part_bytes,
                      l.total_bytes});
}

// Writes the start state of a fresh, zeroed segment but for its header: sentinel slots all ones, every counter one
// below `first_epoch`. Called by one rank before any other may use the segment.
inline void initialise_segment(std::byte* segment, const segment_layout& l, std::uint64_t first_epoch) {
  const std::uint64_t before = first_epoch - 1;
  const std::size_t world = l.sizes.world_size;
  for (std::size_t r = 0; r < world; ++r) {
    std::byte* const region = segment + l.regions + r * l.region_bytes;
    reinterpret_cast<counter_line*>(region + l.entered_line)->value = before;
    const auto fill = [&](std::size_t offset, std::size_t lines) {
      auto* line = reinterpret_cast<flag_line*>(region + offset);
      for (std::size_t i = 0; i < lines; ++i) line[i].parity[0].value = line[i].parity[1].value = before;
    };
    fill(l.flag_lines, max_blocks);
    fill(l.ready_lines, l.sizes.bulk_blocks);
    auto* consumed = reinterpret_cast<counter_line*>(region + l.consumed_lines);
    for (std::size_t i = 0; i < world * l.sizes.bulk_blocks; ++i) consumed[i].value = before;
    if (world >= least_two_shot_world) {
      fill(l.two_shot_posted_lines, l.sizes.bulk_blocks);
      auto* reduced = reinterpret_cast<counter_line*>(region + l.two_shot_reduced_lines);
      for (std::size_t i = 0; i < l.sizes.bulk_blocks; ++i) reduced[i].value = before;
    }
    std::memset(region + l.sentinel_data, 0xff, sentinel_slots * l.sentinel_stride);
  }
}

// Start state of a rank's private words.
constexpr protocol_state make_protocol_state(std::uint64_t first_epoch) {
  protocol_state state{};
  for (auto& epoch : state.next_epoch) epoch = first_epoch;
  for (auto& chunks : state.chunks_sent) chunks = first_epoch - 1;
  for (auto& chunks : state.chunks_consumed) chunks = first_epoch - 1;
  for (auto& chunks : state.two_shot_chunks) chunks = first_epoch - 1;
  return state;
}

// Everything that a call needs. A trivially copyable handle, valid while the communicator and the transport that made
// it live. All pointers are addresses as the executor sees them.
struct rank_view {
  control_block* controls;    // [world], shared by the ranks of the communicator
  call_state* calls;          // private to the rank
  std::byte* segment;         // shared by the ranks, of this transport
  protocol_state* protocols;  // private to the rank, of this transport
  segment_layout layout;
  std::uint64_t deadline_ns;  // longest wait for a peer
  std::uint32_t rank;

  PEERLESS_HD std::uint32_t world_size() const { return layout.sizes.world_size; }
  PEERLESS_HD control_block* control(std::uint32_t r) const { return controls + r; }
  PEERLESS_HD std::byte* region(std::uint32_t r) const { return segment + layout.regions + r * layout.region_bytes; }
  PEERLESS_HD std::uint64_t* entered(std::uint32_t r) const {
    return &reinterpret_cast<counter_line*>(region(r) + layout.entered_line)->value;
  }
  PEERLESS_HD std::uint32_t* shadow(std::uint64_t slot, std::uint32_t r) const {
    return reinterpret_cast<std::uint32_t*>(region(r) + layout.shadows) + slot;
  }
  // The header's vector; data begins line_bytes behind it.
  PEERLESS_HD vec16* sentinel_slot(std::uint64_t slot, std::uint32_t r) const {
    return reinterpret_cast<vec16*>(region(r) + layout.sentinel_data + slot * layout.sentinel_stride);
  }
  PEERLESS_HD flag_line* flag(std::uint32_t r, std::uint32_t block) const {
    return reinterpret_cast<flag_line*>(region(r) + layout.flag_lines) + block;
  }
  PEERLESS_HD vec16* flagged_slot(std::uint64_t slot, std::uint32_t r) const {
    return reinterpret_cast<vec16*>(region(r) + layout.flagged_data + slot * layout.sizes.flagged_slot_bytes);
  }
  PEERLESS_HD flag_line* ready(std::uint32_t r, std::uint32_t block) const {
    return reinterpret_cast<flag_line*>(region(r) + layout.ready_lines) + block;
  }
  // Written by the reader, in its region.
  PEERLESS_HD counter_line* consumed(std::uint32_t writer, std::uint32_t reader, std::uint32_t block) const {
    return reinterpret_cast<counter_line*>(region(reader) + layout.consumed_lines) +
           std::size_t{writer} * layout.sizes.bulk_blocks + block;
  }
  // Chunk `n` of the count that never restarts.
  PEERLESS_HD vec16* bulk_chunk(std::uint32_t r, std::uint32_t block, std::uint64_t n) const {
    return reinterpret_cast<vec16*>(region(r) + layout.bulk_data + place_of(block, n) * layout.sizes.bulk_chunk_bytes);
  }
  PEERLESS_HD flag_line* two_shot_posted(std::uint32_t r, std::uint32_t block) const {
    return reinterpret_cast<flag_line*>(region(r) + layout.two_shot_posted_lines) + block;
  }
  PEERLESS_HD counter_line* two_shot_reduced(std::uint32_t r, std::uint32_t block) const {
    return reinterpret_cast<counter_line*>(region(r) + layout.two_shot_reduced_lines) + block;
  }
  // Chunk `n` of the counts that never restart: what rank r contributes, and its part as reduced.
  PEERLESS_HD vec16* two_shot_data(std::uint32_t r, std::uint32_t block, std::uint64_t n) const {
    return reinterpret_cast<vec16*>(region(r) + layout.two_shot_data +
                                    place_of(block, n) * layout.sizes.bulk_chunk_bytes);
  }
  PEERLESS_HD vec16* two_shot_results(std::uint32_t r, std::uint32_t block, std::uint64_t n) const {
    return reinterpret_cast<vec16*>(region(r) + layout.two_shot_results +
                                    place_of(block, n) * layout.two_shot_part_bytes);
  }

 private:
  // Of a chunk in the rings of all blocks.
  PEERLESS_HD std::size_t place_of(std::uint32_t block, std::uint64_t n) const {
    return std::size_t{block} * layout.sizes.bulk_depth + (n & (layout.sizes.bulk_depth - 1));
  }
};

PEERLESS_END_NAMESPACE
