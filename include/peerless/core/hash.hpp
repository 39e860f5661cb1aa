// A small, stable hash for keys and fingerprints that different processes compare.
#pragma once

#include <cstdint>
#include <string_view>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// FNV-1a, 64 bits, then the finaliser of MurmurHash3, so that short texts differ in all bits. `seed` gives independent
// hashes of one text. Not against attackers: what it names is guarded by credentials.
constexpr std::uint64_t stable_hash(std::string_view text, std::uint64_t seed = 0) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3ull;
  }
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdull;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53ull;
  hash ^= hash >> 33;
  return hash;
}

}  // namespace detail

PEERLESS_END_NAMESPACE
