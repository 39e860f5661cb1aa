// What a call is, in 60 bits, and the header that carries it in band in a sentinel slot.
#pragma once

#include <cstdint>

#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// Most elements of one call: 49 bits of a fingerprint.
inline constexpr std::uint64_t max_elements = (std::uint64_t{1} << 49) - 1;

// A call as its peers must have made it too.
struct call_signature {
  std::uint64_t n_elements;
  dtype type;
  reduce_op operation;
  protocol_id protocol;
};

// 60 bits: count (49), type (4), operation (3), protocol (4). Equal signatures have equal fingerprints and no others
// do.
PEERLESS_HD constexpr std::uint64_t fingerprint_of(call_signature call) {
  return (call.n_elements & max_elements) << 11 | static_cast<std::uint64_t>(call.type) << 7 |
         static_cast<std::uint64_t>(call.operation) << 4 | static_cast<std::uint64_t>(call.protocol);
}

// The inverse of fingerprint_of.
PEERLESS_HD constexpr call_signature signature_of(std::uint64_t fingerprint) {
  return {fingerprint >> 11 & max_elements, static_cast<dtype>(fingerprint >> 7 & 15),
          static_cast<reduce_op>(fingerprint >> 4 & 7), static_cast<protocol_id>(fingerprint & 15)};
}

// The word that means "not arrived": a NaN that no arithmetic produces, and what a failed PCIe read returns.
inline constexpr std::uint32_t sentinel_word = 0xffffffffu;

// True when every word of the vector has arrived.
PEERLESS_HD constexpr bool has_arrived(const vec16& v) {
  return v.word[0] != sentinel_word && v.word[1] != sentinel_word && v.word[2] != sentinel_word &&
         v.word[3] != sentinel_word;
}

// The first 16 bytes of a slot: the low 64 bits of epoch and the 60 of the fingerprint, 31 bits a word, so that no word
// can equal the sentinel whatever they hold. (The plain low half of an epoch is all ones once in 2^32 calls.)
struct slot_header {
  std::uint64_t epoch;
  std::uint64_t fingerprint;
  friend constexpr bool operator==(const slot_header&, const slot_header&) = default;
};

PEERLESS_HD constexpr vec16 encode(slot_header header) {
  constexpr std::uint64_t low31 = 0x7fffffffu;
  return {{static_cast<std::uint32_t>(header.epoch & low31), static_cast<std::uint32_t>(header.epoch >> 31 & low31),
           static_cast<std::uint32_t>(header.epoch >> 62 | (header.fingerprint & 0x1fffffffu) << 2),
           static_cast<std::uint32_t>(header.fingerprint >> 29 & low31)}};
}

PEERLESS_HD constexpr slot_header decode(const vec16& v) {
  return {v.word[0] | std::uint64_t{v.word[1]} << 31 | std::uint64_t{v.word[2] & 3u} << 62,
          std::uint64_t{v.word[2]} >> 2 | std::uint64_t{v.word[3]} << 29};
}

PEERLESS_END_NAMESPACE
