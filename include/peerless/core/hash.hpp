// Small, stable hashes for keys, options and layouts that different processes compare.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// FNV-1a, 64 bits, by the byte.
inline constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325ull;
constexpr std::uint64_t fnv1a_step(std::uint64_t hash, unsigned char byte) noexcept {
  return (hash ^ byte) * 0x100000001b3ull;
}

// FNV-1a, then the finaliser of MurmurHash3, so that short texts differ in all bits. `seed` gives independent hashes of
// one text. Not against attackers: what it names is guarded by credentials.
constexpr std::uint64_t stable_hash(std::string_view text, std::uint64_t seed = 0) noexcept {
  std::uint64_t hash = fnv1a_start ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char letter : text) hash = fnv1a_step(hash, static_cast<unsigned char>(letter));
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdull;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53ull;
  hash ^= hash >> 33;
  return hash;
}

}  // namespace detail

// FNV-1a over the values and the library version: two ranks that agree on it agree on what was hashed.
constexpr std::uint64_t hash_values(std::initializer_list<std::uint64_t> values) {
  std::uint64_t hash = detail::fnv1a_start;
  const auto mix = [&hash](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash = detail::fnv1a_step(hash, value >> (8 * byte) & 0xff);
  };
  mix(PEERLESS_VERSION_MAJOR * 1000000ull + PEERLESS_VERSION_MINOR * 1000ull + PEERLESS_VERSION_PATCH);
  for (const std::uint64_t value : values) mix(value);
  return hash;
}

PEERLESS_END_NAMESPACE
