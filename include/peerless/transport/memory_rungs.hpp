// What is tried, in order, when memory for the slots is short. Pure, so that all ranks walk the same way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <peerless/core/error.hpp>
#include <peerless/protocol/layout.hpp>

PEERLESS_BEGIN_NAMESPACE

// Where memory that all ranks use comes from.
enum class memory_origin : std::uint8_t {
  segment,     // a file that every rank maps and registers with its executor
  allocation,  // of the executor's own allocator, which takes no registration; ranks that are threads only
};

// The next smaller sizes: a quarter of each slot, an eighth of the rings; `s` itself when nothing is left to take. Four
// ranks fit into 1 MB then, and a slot still takes what decoding sends: 8 KB is a token's hidden state of 4096 two-byte
// values. The default takes three steps to get there: per rank 9 MiB, 1.8 MiB, 0.5 MiB, 0.2 MiB of two ranks.
constexpr layout_sizes smaller(const layout_sizes& s) {
  // Sizes that were below the least from the start stay as they are.
  const auto shrink = [](auto value, unsigned divisor, unsigned least, unsigned multiple) {
    using type = decltype(value);
    return std::min(value,
                    std::max(static_cast<type>(least), static_cast<type>(value / divisor / multiple * multiple)));
  };
  layout_sizes next = s;
  next.sentinel_slot_bytes = shrink(s.sentinel_slot_bytes, 4, 8 << 10, line_bytes);
  next.flagged_slot_bytes = shrink(s.flagged_slot_bytes, 4, 16 << 10, line_bytes);
  next.bulk_blocks = shrink(s.bulk_blocks, 2, 16, 1);
  next.bulk_depth = shrink(s.bulk_depth, 2, 4, 1);
  next.bulk_chunk_bytes = shrink(s.bulk_chunk_bytes, 2, 2 << 10, 16);
  return next;
}

// Whether the next rung may do better: too many bytes, or memory that the executor does not take at all.
inline bool is_short_of_memory(const error& e) noexcept {
  return e.code() == errc::out_of_memory || e.code() == errc::unsupported;
}

// One thing to try.
struct memory_rung {
  layout_sizes sizes;
  memory_origin origin = memory_origin::segment;
};

// All that may be tried for the sizes `wanted`, in order: segments of these and, if `shrink`, of ever smaller sizes;
// then, among threads, allocations of the same sizes.
inline std::vector<memory_rung> memory_rungs(const layout_sizes& wanted, bool shrink, bool same_process) {
  std::vector<memory_rung> rungs;
  for (const auto origin : {memory_origin::segment, memory_origin::allocation}) {
    if (origin == memory_origin::allocation && !same_process) break;
    for (layout_sizes sizes = wanted;; sizes = smaller(sizes)) {
      rungs.push_back({sizes, origin});
      if (!shrink || smaller(sizes) == sizes) break;
    }
  }
  return rungs;
}

// For people: "slots of 524288 and 1048576 bytes, 64 rings of 8 x 8192 bytes".
inline std::string describe(const layout_sizes& s) {
  return "slots of " + std::to_string(s.sentinel_slot_bytes) + " and " + std::to_string(s.flagged_slot_bytes) +
         " bytes, " + std::to_string(s.bulk_blocks) + " rings of " + std::to_string(s.bulk_depth) + " x " +
         std::to_string(s.bulk_chunk_bytes) + " bytes";
}

PEERLESS_END_NAMESPACE
