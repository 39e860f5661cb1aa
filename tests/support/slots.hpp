// The sizes of slots and rings with which tests make communicators.
#pragma once

#include <chrono>

#include <peerless/transport/options.hpp>

#include "run_ranks.hpp"

namespace peerless::test {

// Slots of a few kilobytes and a ring of three blocks: a message of 13 KB passes every slot, one of 5 KB fills a ring.
inline communicator_options small_slots() {
  communicator_options options;
  options.deadline = std::chrono::seconds(20 * (under_tsan ? 4 : 1));
  options.sizes.sentinel_slot_bytes = 4096;
  options.sizes.flagged_slot_bytes = 8192;
  options.sizes.bulk_blocks = 3;
  options.sizes.bulk_depth = 2;
  options.sizes.bulk_chunk_bytes = 512;
  return options;
}

// The slots that users have, with a deadline that a test can wait for.
inline communicator_options default_slots() {
  communicator_options options;
  options.deadline = std::chrono::seconds(60);
  return options;
}

}  // namespace peerless::test
