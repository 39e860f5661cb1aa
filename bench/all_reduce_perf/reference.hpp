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

// The fields of the formats of one and two bytes, from their definitions, and the bits of the largest finite number, of
// what a number beyond it becomes, and of the largest that is no NaN.
struct format_fields {
  std::uint32_t fraction_bits, bias, largest, beyond, greatest;
};
template <class T>
inline constexpr format_fields fields_of{};
template <>
inline constexpr format_fields fields_of<f16>{10, 15, 0x7bff, 0x7c00, 0x7c00};
template <>
inline constexpr format_fields fields_of<bf16>{7, 127, 0x7f7f, 0x7f80, 0x7f80};
template <>
inline constexpr format_fields fields_of<f8_e4m3>{3, 7, 0x7e, 0x7e, 0x7e};
template <>
inline constexpr format_fields fields_of<f8_e5m2>{2, 15, 0x7b, 0x7b, 0x7c};
template <class T>
concept narrow_float = fields_of<T>.bias != 0;

// To nearest even; not for NaNs. Below the least normal number the addition of a power of two that is 2^23 of the
// result's steps rounds by itself.
template <narrow_float T>
PEERLESS_HD constexpr T narrow(float value) {
  constexpr format_fields format = fields_of<T>;
  constexpr std::uint32_t dropped = 23 - format.fraction_bits;
  constexpr std::uint32_t least = 128 - format.bias;  // the exponent of the least normal number, in binary32
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if ((magnitude >> 23) >= least) {
    const std::uint32_t tie_to_even = (magnitude >> dropped) & 1u;
    rounded =
        ((magnitude + (1u << (dropped - 1)) - 1u + tie_to_even) >> dropped) - ((least - 1) << format.fraction_bits);
  } else {
    constexpr std::uint32_t anchor = (least + dropped) << 23;
    rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(anchor) + std::bit_cast<float>(magnitude)) - anchor;
  }
  if (rounded > format.largest) rounded = format.beyond;
  return T{static_cast<decltype(T::bits)>((bits >> 31) << (8 * sizeof(T) - 1) | rounded)};
}
template <class T>
  requires(!narrow_float<T>)
PEERLESS_HD constexpr T narrow(T value) {
  return value;
}

// Exact; finite values only. The bits are read as a binary32 of the same fraction and a biased exponent too small by
// 127 - bias, which a product with that power of two repairs, subnormal numbers included.
template <narrow_float T>
PEERLESS_HD constexpr float widen(T value) {
  constexpr format_fields format = fields_of<T>;
  constexpr std::uint32_t sign_bit = 1u << (8 * sizeof(T) - 1);
  const std::uint32_t magnitude = (value.bits & (sign_bit - 1u)) << (23 - format.fraction_bits);
  const float scale = std::bit_cast<float>((254u - format.bias) << 23);
  const float scaled = std::bit_cast<float>(magnitude) * scale;
  const std::uint32_t sign = (value.bits & sign_bit) != 0 ? 0x80000000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}
PEERLESS_HD constexpr float widen(float value) { return value; }
PEERLESS_HD constexpr double widen(double value) { return value; }

// Element `index` of rank `rank`. Floating point: both signs, magnitudes below 8 and mostly far apart, so that sums
// round and their order shows; never -0. Integers: any value, so that sums wrap.
template <element T>
PEERLESS_HD constexpr T input_value(std::uint64_t seed, int rank, std::uint64_t index) {
  const std::uint64_t bits = random_bits(seed, rank, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sizeof(T) == 8 ? bits : bits >> 32);
  } else {
    // Scales by 2^-4 ... 2^3; by 1 or 2 where a byte's rounding would hide what is far below.
    const auto exponent = static_cast<std::uint32_t>(sizeof(T) == 1 ? 4u + (bits & 1u) : bits & 7u);
    if constexpr (std::is_same_v<T, double>) {
      const double scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 - 52 - 4 + exponent) << 52);
      return static_cast<double>(static_cast<std::int64_t>(bits) >> 11) * scale;
    } else {
      const float scale = std::bit_cast<float>((127u - 23u - 4u + exponent) << 23);
      const T value = narrow<T>(static_cast<float>(static_cast<std::int32_t>(bits >> 32) >> 8) * scale);
      if constexpr (narrow_float<T>) return widen(value) == 0 ? T{} : value;
      return value;
    }
  }
}

// One step of a fold, and an average's last: the compiler's own arithmetic, in the accumulator type.
template <reduction Op, class A>
PEERLESS_HD constexpr A step(A fold, A next) {
  if constexpr (Op::id == reduce_op::min || Op::id == reduce_op::max) {
    return (next < fold) == (Op::id == reduce_op::min) ? next : fold;
  } else if constexpr (std::is_integral_v<A>) {
    using word = std::make_unsigned_t<A>;
    constexpr bool product = Op::id == reduce_op::prod;
    const auto left = static_cast<std::uint64_t>(static_cast<word>(fold));
    const auto right = static_cast<std::uint64_t>(static_cast<word>(next));
    return static_cast<A>(product ? left * right : left + right);
  } else {
    return Op::id == reduce_op::prod ? fold * next : fold + next;
  }
}

// The result by the library's rule: fold in rank order in the accumulator type, one rounding at the end.
template <element T, reduction Op>
PEERLESS_HD constexpr T expected_value(std::uint64_t seed, int world, std::uint64_t index) {
  const auto value = [&](int rank) {
    if constexpr (std::is_integral_v<T>) {
      return input_value<T>(seed, rank, index);
    } else {
      return widen(input_value<T>(seed, rank, index));
    }
  };
  auto fold = value(0);
  for (int rank = 1; rank < world; ++rank) fold = step<Op>(fold, value(rank));
  if constexpr (Op::id == reduce_op::avg) fold = static_cast<decltype(fold)>(fold / static_cast<decltype(fold)>(world));
  return narrow<T>(fold);
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
  if constexpr (narrow_float<T>) return 0.5 / (1u << fields_of<T>.fraction_bits);
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  return 0x1p-53;
}

// The absolute error of a rounding to T below its least normal number; 0 where sums of inputs cannot come there.
template <element T>
PEERLESS_HD constexpr double half_least() {
  if constexpr (narrow_float<T> && !std::is_same_v<T, bf16>) {
    constexpr std::uint32_t exponent = 1023 - fields_of<T>.bias - fields_of<T>.fraction_bits;
    return std::bit_cast<double>(std::uint64_t{exponent} << 52);
  }
  return 0;
}

// Whether `got` may come out when the order of ranks is free and every step rounds to T: the distance to the result in
// f64 is at most one rounding a step, of the largest partial sum there can be or of the product; an average takes two
// more. (Twice that, because the f64 result rounds too.) What a partial product loses below the least normal number,
// the factors after it, below 8, make larger; a product beyond the range of T may be anything that is large. What has
// one right answer, integers and extremes, must have its bits.
template <element T, reduction Op>
PEERLESS_HD constexpr bool within_any_order(T got, std::uint64_t seed, int world, std::uint64_t index) {
  if constexpr (std::is_integral_v<T> || Op::id == reduce_op::min || Op::id == reduce_op::max) {
    return same_bits(got, expected_value<T, Op>(seed, world, index));
  } else {
    constexpr bool product = Op::id == reduce_op::prod;
    if constexpr (narrow_float<T>) {
      if ((got.bits & ((1u << (8 * sizeof(T) - 1)) - 1u)) > fields_of<T>.greatest) return false;
    }
    double result = product ? 1 : 0, magnitudes = 0;
    for (int rank = 0; rank < world; ++rank) {
      const double value = static_cast<double>(widen(input_value<T>(seed, rank, index)));
      result = product ? result * value : result + value;
      magnitudes += value < 0 ? -value : value;
    }
    double steps = world - 1, lost = half_least<T>();
    if constexpr (product) {
      magnitudes = result < 0 ? -result : result;
      for (int rank = 2; rank < world; ++rank) lost *= 8;
      if constexpr (narrow_float<T>) {
        const auto largest = static_cast<double>(widen(T{static_cast<decltype(T::bits)>(fields_of<T>.largest)}));
        const auto value = static_cast<double>(widen(got));
        if (magnitudes > largest) return value >= largest / 2 || value <= -largest / 2;
      }
    }
    if constexpr (Op::id == reduce_op::avg) {
      result /= world;
      magnitudes /= world;
      steps += 2;
    }
    double distance = static_cast<double>(widen(got)) - result;
    if (distance < 0) distance = -distance;
    return distance <= 2 * steps * (unit_roundoff<T>() * magnitudes + lost);  // false for a NaN
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
