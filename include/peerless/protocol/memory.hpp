// The two policies a protocol is written over: how memory is accessed, and which threads execute a step together.
#pragma once

#include <concepts>
#include <cstdint>

#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// How a protocol touches memory. All addresses are naturally aligned. "Relaxed" accesses may be observed in any order
// by other ranks; a 16-byte one need only be single-copy atomic by 4-byte words. "Payload" accesses are ordered by a
// flag that the reader acquires first, so a policy may make them plain. `acquire` and `release` have system scope;
// the `group` pair orders threads of one block only. `claim` sets a word of the rank's own memory from 0 to `value`
// and tells whether this thread did it: the only read-modify-write, and never on memory shared between ranks.
template <class M>
concept memory_policy = requires(const M m, const std::uint32_t* from4, std::uint32_t* to4, const std::uint64_t* from8,
                                 std::uint64_t* to8, const vec16* from16, vec16* to16, vec16 vector, unsigned spin) {
  { m.load4(from4) } -> std::same_as<std::uint32_t>;
  { m.store4(to4, 1u) };
  { m.load8(from8) } -> std::same_as<std::uint64_t>;
  { m.store8(to8, std::uint64_t{1}) };
  { m.load8_acquire(from8) } -> std::same_as<std::uint64_t>;
  { m.store8_release(to8, std::uint64_t{1}) };
  { m.load16(from16) } -> std::same_as<vec16>;
  { m.store16(to16, vector) };
  { m.load16_payload(from16) } -> std::same_as<vec16>;
  { m.store16_payload(to16, vector) };
  { m.load4_acquire_group(from4) } -> std::same_as<std::uint32_t>;
  { m.store4_release_group(to4, 1u) };
  { m.claim(to4, 1u) } -> std::same_as<bool>;
  // Nanoseconds of a clock that is monotone on the executor; the origin is arbitrary.
  { m.now_ns() } -> std::same_as<std::uint64_t>;
  // Called once a fruitless poll; gives way to other threads where that helps.
  { m.relax(spin) };
  // A reader is about to take slot data, or its owner to overwrite it: lets a race detector see what polling hides.
  { m.note_read(to4) };
  { m.note_overwrite(to4) };
};

// The threads that execute one step together. `all` is a barrier that returns the conjunction of the votes to every
// member, so that a step which failed in one thread ends in all of them.
template <class G>
concept execution_group = requires(const G g, bool vote) {
  { g.thread_rank() } -> std::same_as<unsigned>;
  { g.size() } -> std::same_as<unsigned>;
  { g.sync() };
  { g.all(vote) } -> std::same_as<bool>;
};

PEERLESS_END_NAMESPACE
