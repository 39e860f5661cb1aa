// The words beside the data: what ranks tell each other (shared), what a rank keeps for itself (private), and what a
// failed call leaves for the host to read.
#pragma once

#include <cstddef>
#include <cstdint>

#include <peerless/core/errc.hpp>
#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// Writers and readers of different words never share a line of this size (a GPU's L2 line; two of a CPU's).
inline constexpr std::size_t line_bytes = 128;

// Host-visible account of the first failure of a rank. `ready` is released last.
struct failure_record {
  std::uint64_t ready;     // 0, then 1
  std::uint64_t call;      // communicator-wide number of the call
  std::uint64_t awaited;   // the epoch, counter or fingerprint that was waited for
  std::uint64_t seen;      // what was there instead
  std::uint32_t code;      // errc
  std::uint32_t about;     // the rank awaited, or the one that a peer's verdict names
  std::uint32_t protocol;  // protocol_id
};

// One a rank, in memory that all ranks of a communicator share, whatever transport a call takes. One writer a word.
struct control_block {
  // The call that the rank is in, written at the start of every call by its kernel and read by a peer only after a
  // millisecond of waiting, to tell a mismatch across protocols from a late rank. Each word carries the low half of the
  // communicator-wide call number above 32 bits of the fingerprint (upper, lower), so that a torn pair is told.
  alignas(line_bytes) std::uint64_t call_line[2];
  // 0, or the verdict of a call that failed on this rank (see encode_verdict), and its account. Written by its kernel.
  alignas(line_bytes) std::uint64_t kernel_verdict;
  failure_record failure;
  // 0, or why the rank's host ended the communicator: abort, a death that its watcher saw, an orderly close.
  alignas(line_bytes) std::uint64_t host_verdict;
  // For copies between the rank's own host and executor.
  alignas(line_bytes) std::byte scratch[line_bytes];
};

// A verdict between ranks: an errc and the rank it is about, never 0 and never all ones.
PEERLESS_HD constexpr std::uint64_t encode_verdict(errc code, std::uint32_t about) {
  return std::uint64_t{about} << 32 | static_cast<std::uint32_t>(code);
}
PEERLESS_HD constexpr errc verdict_code(std::uint64_t verdict) { return static_cast<errc>(verdict & 0xffffffffu); }
PEERLESS_HD constexpr std::uint32_t verdict_about(std::uint64_t verdict) {
  return static_cast<std::uint32_t>(verdict >> 32);
}

// Sentinel slots per rank and protocol constants that belong together: see sentinel_one_shot.hpp for the argument.
inline constexpr std::uint64_t sentinel_slots = 6;
static_assert(sentinel_slots <= 8);
// Flagged slots: finishing call k means that every peer has finished call k - 1.
inline constexpr std::uint64_t flagged_slots = 2;
// Most blocks of a launch, in every protocol.
inline constexpr std::uint32_t max_blocks = 64;

// Private to a rank, in the memory of its executor (device memory for a GPU): what all transports of a communicator
// share.
struct call_state {
  alignas(line_bytes) std::uint64_t next_call;  // communicator-wide number of the next call
  // 0, or the errc of the failure that ended the communicator: once set, every later call returns at once.
  std::uint32_t poison;
  // Kernels only: which blocks have entered and left, so that overlapping calls are told. See kernel_frame.cuh.
  std::uint32_t blocks_left;
  std::uint64_t gate;
};

// The gate between two calls: the low 16 bits of the count of blocks that ever entered one, and tags (12 bits): the low
// two bits of the next call's number and of each protocol's next epoch, from below.
static_assert(2 * (protocol_count + 1) <= 12);
PEERLESS_HD constexpr std::uint64_t closed_gate(std::uint64_t blocks_entered, std::uint32_t tags) {
  return blocks_entered << 48 | std::uint64_t{tags & 0xfffu} << 36;
}

// Start state of the words above.
constexpr call_state make_call_state(std::uint64_t first_call) {
  call_state state{};
  state.next_call = first_call;
  state.gate = closed_gate(0, static_cast<std::uint32_t>(first_call & 3u) * 0x555u);
  return state;
}

// Private to a rank and a transport, in the memory of its executor. Changed only by the rank's own calls, in stream
// order: a captured call therefore replays with the right epoch.
struct protocol_state {
  // Of each protocol, indexed by protocol_id - 1; advanced by its calls only.
  alignas(line_bytes) std::uint64_t next_epoch[protocol_count];
  // Vectors written into each sentinel slot when it was last used, the header's included: what must be cleared.
  alignas(line_bytes) std::uint32_t sentinel_extent[8];  // of which sentinel_slots are used
  // Chunks that each block has sent through its ring so far; the same on all ranks.
  alignas(line_bytes) std::uint64_t chunks_sent[max_blocks];
  // The same before each block's last call: chunks that every rank is known to have consumed. See bulk_ring.hpp.
  alignas(line_bytes) std::uint64_t chunks_consumed[max_blocks];
  // Chunks that each block has sent through its two-shot rings so far; the same on all ranks.
  alignas(line_bytes) std::uint64_t two_shot_chunks[max_blocks];
};

PEERLESS_END_NAMESPACE
