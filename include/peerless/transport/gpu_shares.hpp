// How many blocks every rank may launch when GPUs differ, or when ranks share one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <peerless/protocol/control.hpp>

PEERLESS_BEGIN_NAMESPACE

// The GPU of one rank.
struct gpu_of_rank {
  std::array<std::byte, 16> uuid{};
  std::uint32_t multiprocessors = 0;  // that the rank's context may use; at least 1
};

// The same on all ranks.
struct gpu_shares {
  std::uint32_t most_blocks = max_blocks;  // of a launch, at most max_blocks and at least 1
  std::uint32_t most_sharing = 1;          // ranks on one GPU
};

// From the GPUs of all ranks, one entry a rank. A block waits for the same block of every peer, so every rank launches
// the same number, and all blocks of the ranks on a GPU must fit on it together: one on each multiprocessor. What the
// smallest share allows counts for all. Pure.
constexpr gpu_shares share_gpus(std::span<const gpu_of_rank> ranks) {
  gpu_shares shares;
  for (const gpu_of_rank& each : ranks) {
    std::uint32_t sharing = 0;
    for (const gpu_of_rank& other : ranks) sharing += other.uuid == each.uuid ? 1 : 0;
    shares.most_blocks = std::min(shares.most_blocks, std::max(1u, each.multiprocessors / sharing));
    shares.most_sharing = std::max(shares.most_sharing, sharing);
  }
  return shares;
}

PEERLESS_END_NAMESPACE
