// What a user may set when a communicator is made. All ranks must give the same values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <peerless/core/env.hpp>
#include <peerless/core/shared_segment.hpp>
#include <peerless/protocol/copy_layout.hpp>

PEERLESS_BEGIN_NAMESPACE

struct communicator_options {
  // Longest wait for a live peer within a call. Engines compile and load weights between calls, hence ten minutes.
  std::chrono::milliseconds deadline{600'000};
  // A live peer that has not entered a call by then is named on stderr, once; 0: never.
  std::chrono::milliseconds late_warning{10'000};
  // Longest time for construction.
  std::chrono::milliseconds setup_deadline{60'000};
  // Longest wait in a kernel on a GPU that drives a display: the driver ends kernels there after 2 s or more (CUDA
  // tells that there is a limit, not its length), and a wait must end before, with an error that can be handled.
  std::chrono::milliseconds display_deadline{1600};
  // Slot and ring sizes of staging transports; world_size is filled in. See layout.hpp for units.
  layout_sizes sizes{};
  // When memory for these sizes is short, take smaller ones (see memory_rungs.hpp) rather than fail; describe() tells.
  bool shrink = true;
  // Put each rank's slots on the NUMA node of those that read them, as far as nodes are known and the kernel permits
  // it (containers often do not); describe() tells. Rank 0's counts.
  bool numa = true;
  // Ask for huge pages for slots of the full sizes, which makes regions multiples of 2 MiB. Needs Linux 6.1, or
  // advise or always in /sys/kernel/mm/transparent_hugepage/shmem_enabled. Off: measured without an IOMMU they give
  // nothing (bench/NOTES.md); where one translates what GPUs access it may differ.
  // Must be equal on all ranks, since it moves regions: or every rank throws errc::rendezvous_mismatch.
  bool huge_pages = false;
  // Where shared memory comes from; for unusual boxes and for tests. May differ between ranks: rank 0's counts.
  segment_source segments{};
  // Places for bulk calls by copy engines, pinned host memory of world * depth * chunk_bytes; off unless depth is set.
  copy_sizes copies{};
  // Number of the first call; for tests of counters near their edges. At least 1.
  std::uint64_t first_epoch = 1;
  // Names of the transports to try, best first; empty: the order of the communicator's template arguments.
  std::vector<std::string> order;
  // GPUs of sm_90 and later: launch short calls as dependent ones, so that a kernel comes onto the device while the one
  // before it ends. It still waits for that end before it touches anything. Captured calls become programmatic edges of
  // the graph. Not used where ranks share a GPU. Ranks may differ.
  bool dependent_launch = true;
  // On a CPU: draw the order of a call's duties anew from this seed, for race detectors; 0: the natural order.
  std::uint64_t duty_seed = 0;
  // One line on stderr about what was chosen, from rank 0.
  bool log = false;

  // The defaults, changed by PEERLESS_DEADLINE_MS, PEERLESS_SETUP_DEADLINE_MS, PEERLESS_TRANSPORT (names,
  // comma-separated), PEERLESS_DEPENDENT_LAUNCH and PEERLESS_LOG. Throws errc::bad_environment for a value that is not
  // legal.
  static communicator_options from_environment() {
    communicator_options options;
    const auto span = [](const char* name, std::chrono::milliseconds& value) {
      const auto ms = env::get_between<std::int32_t>(name, 1, 0x7fffffff, "milliseconds");
      if (ms) value = std::chrono::milliseconds(*ms);
    };
    span("PEERLESS_DEADLINE_MS", options.deadline);
    span("PEERLESS_SETUP_DEADLINE_MS", options.setup_deadline);
    if (const auto on = env::get<bool>("PEERLESS_DEPENDENT_LAUNCH")) options.dependent_launch = *on;
    if (const auto on = env::get<bool>("PEERLESS_LOG")) options.log = *on;
    if (const auto names = env::get<std::vector<std::string>>("PEERLESS_TRANSPORT")) options.order = *names;
    return options;
  }
};

namespace detail {

// Throws errc::invalid_argument naming the first option that is out of range.
inline void require_valid(const communicator_options& options) {
  const auto require = [](bool good, const char* what) {
    if (!good) throw error(errc::invalid_argument, what);
  };
  const layout_sizes& s = options.sizes;
  constexpr auto longest = std::chrono::milliseconds(0x7fffffff);
  const auto is_span = [&](std::chrono::milliseconds span) { return span.count() > 0 && span <= longest; };
  require(is_span(options.deadline), "deadline must be 1 to 2147483647 ms");
  require(is_span(options.display_deadline), "display_deadline must be 1 to 2147483647 ms");
  require(is_span(options.setup_deadline), "setup_deadline must be 1 to 2147483647 ms");
  require(options.late_warning.count() >= 0 && options.late_warning <= longest,
          "late_warning must be 0 to 2147483647 ms");
  require(options.first_epoch >= 1 && options.first_epoch < ~std::uint64_t{0} / 2 + (std::uint64_t{1} << 62),
          "first_epoch is out of range");
  require(s.sentinel_slot_bytes >= line_bytes && s.sentinel_slot_bytes % line_bytes == 0 &&
              s.sentinel_slot_bytes <= (std::size_t{1} << 30),
          "sentinel_slot_bytes must be a multiple of 128, at most 1 GiB");
  require(s.flagged_slot_bytes >= line_bytes && s.flagged_slot_bytes % line_bytes == 0 &&
              s.flagged_slot_bytes <= (std::size_t{1} << 32),
          "flagged_slot_bytes must be a multiple of 128, at most 4 GiB");
  require(s.bulk_blocks >= 1 && s.bulk_blocks <= max_blocks, "bulk_blocks must be 1 to 64");
  require(s.bulk_depth >= 2 && (s.bulk_depth & (s.bulk_depth - 1)) == 0 && s.bulk_depth <= 1024,
          "bulk_depth must be a power of two, 2 to 1024");
  require(s.bulk_chunk_bytes >= 16 && s.bulk_chunk_bytes % 16 == 0 && s.bulk_chunk_bytes <= (1u << 24),
          "bulk_chunk_bytes must be a multiple of 16, at most 16 MiB");
  const copy_sizes& c = options.copies;
  require(c.depth == 0 || (c.depth >= least_copy_depth && (c.depth & (c.depth - 1)) == 0 && c.depth <= 64),
          ("copies.depth must be 0 or a power of two, " + std::to_string(least_copy_depth) + " to 64").c_str());
  require(c.chunk_bytes >= 16 && c.chunk_bytes % 16 == 0 && c.chunk_bytes <= (1u << 28),
          "copies.chunk_bytes must be a multiple of 16, at most 256 MiB");
}

}  // namespace detail

PEERLESS_END_NAMESPACE
