// One hash a (world, type, operation): what every transport, protocol, launch shape, compiler flag and GPU must
// produce.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <peerless/core/types.hpp>

#include "support/payload.hpp"
#include "support/random.hpp"

namespace peerless::test {

using peerless::reduce_op;

inline constexpr std::array golden_worlds = {1, 2, 3, 4, 5, 7, 8, 12, 16};
inline constexpr std::array golden_types = {dtype::f8_e4m3, dtype::f8_e5m2, dtype::f16, dtype::bf16,
                                            dtype::f32,     dtype::f64,     dtype::i8,  dtype::u8,
                                            dtype::i32,     dtype::u32,     dtype::i64, dtype::u64};
inline constexpr std::array golden_ops = {reduce_op::sum, reduce_op::prod, reduce_op::min, reduce_op::max,
                                          reduce_op::avg};

// The input of a rank: several kinds of data in turn, a number of elements that ends inside a vector of every type.
inline constexpr std::size_t golden_elements = 2003;
inline void golden_input(dtype type, int rank, std::span<std::byte> out) {
  constexpr std::array kinds = {payload::uniform,  payload::wide,         payload::bits,
                                payload::extremes, payload::signed_zeros, payload::sentinel_words};
  std::size_t const width = size_bytes(type), part = (golden_elements + kinds.size() - 1) / kinds.size();
  for (std::size_t k = 0, first = 0; first < golden_elements; ++k, first += part) {
    std::size_t const n = std::min(part, golden_elements - first);
    fill(type, kinds[k], 0x60 + static_cast<std::uint64_t>(type), rank, first, out.subspan(first * width, n * width));
  }
}

inline std::uint64_t hash_of(std::span<const std::byte> data) {
  std::uint64_t hash = data.size();
  for (std::byte const b : data) hash = mix(hash ^ static_cast<std::uint64_t>(b));
  return hash;
}

// The file of hashes: lines "world type operation hash".
class golden_hashes {
 public:
  explicit golden_hashes(const std::string& path) {
    std::ifstream file(path);
    std::string type, operation;
    std::uint64_t hash = 0;
    for (int world = 0; file >> world >> type >> operation >> std::hex >> hash >> std::dec;)
      hashes_[{world, type, operation}] = hash;
    if (hashes_.empty()) throw std::runtime_error("no hashes in " + path);
  }

  std::uint64_t of(int world, dtype type, reduce_op operation) const {
    return hashes_.at({world, std::string(name_of(type)), std::string(name_of(operation))});
  }
  std::size_t size() const { return hashes_.size(); }

 private:
  std::map<std::tuple<int, std::string, std::string>, std::uint64_t> hashes_;
};

}  // namespace peerless::test
