// Input data that every rank can make for every other one, and what an all-reduce of it must give. Host and device
// compute the same bits. Written apart from the library's own arithmetic, which is what it judges.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <peerless/core/types.hpp>

namespace peerless::bench {

// 64 well-mixed bits from (seed, rank, index): the 64-bit finalizer of MurmurHash3 (public domain) over their sum with
// odd multiples.
PEERLESS_HD constexpr std::uint64_t random_bits(std::uint64_t seed, int rank, std::uint64_t index) {
  std::uint64_t x =
      seed + (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ull + index * 0xd1342543de82ef95ull;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// binary32 -> bfloat16, round to nearest even; finite values only.
PEERLESS_HD constexpr bf16 round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t tie_to_even = (bits >> 16) & 1u;
  return bf16{static_cast<std::uint16_t>((bits + 0x7fffu + tie_to_even) >> 16)};
}

// binary32 -> binary16, round to nearest even; |value| < 65520. Adding a power of two that is 2^13 units of the
// result's spacing away makes the addition itself round to that spacing.
PEERLESS_HD constexpr f16 round_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const std::uint32_t exponent = (bits >> 23) & 0xffu;
  const std::uint32_t normal = exponent < 113 ? 113 : exponent;  // 2^-14 is the least normal number
  const float anchor = std::bit_cast<float>((normal + 13) << 23);
  const std::uint32_t steps = std::bit_cast<std::uint32_t>(anchor + magnitude) - std::bit_cast<std::uint32_t>(anchor);
  return f16{static_cast<std::uint16_t>(sign | (((normal - 113) << 10) + steps))};
}

PEERLESS_HD constexpr float widen(bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

// binary16 -> binary32, exact; finite values only. The bits are read as a binary32 of the same fraction and a biased
// exponent too small by 112, which a product with 2^112 repairs, subnormal numbers included.
PEERLESS_HD constexpr float widen(f16 value) {
  const std::uint32_t magnitude = std::uint32_t{value.bits & 0x7fffu} << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | (std::uint32_t{value.bits & 0x8000u} << 16));
}
PEERLESS_HD constexpr float widen(float value) { return value; }
PEERLESS_HD constexpr double widen(double value) { return value; }

template <class T>
PEERLESS_HD constexpr T narrow(accumulator_of<T> value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return round_to_bf16(value);
  } else if constexpr (std::is_same_v<T, f16>) {
    return round_to_f16(value);
  } else {
    return static_cast<T>(value);
  }
}

// Element `index` of rank `rank`. Floating point: both signs, magnitudes below 8 and mostly far apart, so that sums
// round and their order shows; finite and never -0. Integers: any value, so that sums wrap.
template <element T>
PEERLESS_HD constexpr T input_value(std::uint64_t seed, int rank, std::uint64_t index) {
  const std::uint64_t bits = random_bits(seed, rank, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint32_t>(bits >> 32));
  } else {
    const auto exponent = static_cast<std::uint32_t>(bits & 7u);  // scales by 2^-4 ... 2^3
    if constexpr (std::is_same_v<T, double>) {
      const double scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 - 52 - 4 + exponent) << 52);
      return static_cast<double>(static_cast<std::int64_t>(bits) >> 11) * scale;
    } else {
      const float scale = std::bit_cast<float>((127u - 23u - 4u + exponent) << 23);
      return narrow<T>(static_cast<float>(static_cast<std::int32_t>(bits >> 32) >> 8) * scale);
    }
  }
}

// The result by the library's rule: fold in rank order in the accumulator type, one rounding at the end.
template <element T, reduction Op>
PEERLESS_HD constexpr T expected_value(std::uint64_t seed, int world, std::uint64_t index) {
  if constexpr (std::is_integral_v<T>) {
    T fold = input_value<T>(seed, 0, index);
    for (int rank = 1; rank < world; ++rank) {
      const T next = input_value<T>(seed, rank, index);
      if constexpr (Op::id == reduce_op::sum) {
        fold = static_cast<T>(static_cast<std::uint32_t>(fold) + static_cast<std::uint32_t>(next));
      } else {
        fold = (next < fold) == (Op::id == reduce_op::min) ? next : fold;
      }
    }
    return fold;
  } else {
    auto fold = widen(input_value<T>(seed, 0, index));
    for (int rank = 1; rank < world; ++rank) {
      const auto next = widen(input_value<T>(seed, rank, index));
      if constexpr (Op::id == reduce_op::sum) {
        fold += next;
      } else {
        fold = (next < fold) == (Op::id == reduce_op::min) ? next : fold;
      }
    }
    return narrow<T>(fold);
  }
}

// True when both have the same bits.
template <element T>
PEERLESS_HD constexpr bool same_bits(T a, T b) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  } else {
    return a == b;
  }
}

// Half a unit in the last place of 1: the relative error of one rounding to T.
template <element T>
PEERLESS_HD constexpr double unit_roundoff() {
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-11;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  return 0x1p-53;
}

// Whether `got` is a sum that may come out when the order of ranks is free and every step rounds to T: the distance to
// the sum in f64 is at most world - 1 roundings of the largest partial sum there can be (twice that, because the f64
// sum rounds too). What has one right answer, integers and extremes, must have its bits.
template <element T, reduction Op>
PEERLESS_HD constexpr bool within_any_order(T got, std::uint64_t seed, int world, std::uint64_t index) {
  if constexpr (std::is_integral_v<T> || Op::id != reduce_op::sum) {
    return same_bits(got, expected_value<T, Op>(seed, world, index));
  } else {
    double sum = 0, magnitudes = 0;
    for (int rank = 0; rank < world; ++rank) {
      const double value = static_cast<double>(widen(input_value<T>(seed, rank, index)));
      sum += value;
      magnitudes += value < 0 ? -value : value;
    }
    double distance = static_cast<double>(widen(got)) - sum;
    if (distance < 0) distance = -distance;
    return distance <= 2 * (world - 1) * unit_roundoff<T>() * magnitudes;  // false for a NaN
  }
}

// What judges an element.
enum class exactness { rank_order, any_order };

template <element T, reduction Op>
PEERLESS_HD constexpr bool is_right(exactness rule, T got, std::uint64_t seed, int world, std::uint64_t index) {
  return rule == exactness::rank_order ? same_bits(got, expected_value<T, Op>(seed, world, index))
                                       : within_any_order<T, Op>(got, seed, world, index);
}

// The byte that outputs are filled with beforehand: a NaN in every floating type, and of the kind that no result has.
inline constexpr int poison_byte = 0xff;

}  // namespace peerless::bench
