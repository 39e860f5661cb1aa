// Random numbers that every rank can draw alike: a stateless hash for data, and a small generator for choices.
#pragma once

#include <cstdint>
#include <string_view>

namespace peerless::test {

// Spreads the bits of x (the finaliser of splitmix64): nearby inputs give unrelated outputs.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a: a seed from a name, the same in every process.
constexpr std::uint64_t seed_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// A generator of choices. Ranks that seed it alike and draw alike choose alike, so a schedule needs no exchange.
class random_choices {
 public:
  explicit constexpr random_choices(std::uint64_t seed) : state_(mix(seed)) {}

  constexpr std::uint64_t next() { return mix(state_++); }
  // Uniform in [0, limit); limit > 0. The bias of the modulus is of no interest here.
  constexpr std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  // True once in `period` draws on average.
  constexpr bool once_in(std::uint64_t period) { return below(period) == 0; }

  // A size in [0, limit] whose logarithm is about uniform, so that small sizes are common and large ones occur.
  constexpr std::uint64_t log_uniform(std::uint64_t limit) {
    unsigned bits = 0;
    while (bits < 63 && (limit >> bits) != 0) ++bits;
    std::uint64_t const width = below(bits + 1);
    std::uint64_t const value =
        width == 0 ? 0 : (std::uint64_t{1} << (width - 1)) + below(std::uint64_t{1} << (width - 1));
    return value > limit ? limit : value;
  }

 private:
  std::uint64_t state_;
};

}  // namespace peerless::test
