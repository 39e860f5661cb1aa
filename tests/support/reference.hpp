// What an all-reduce must return, bit for bit, computed apart from the library: no function of it is used here.
//
// The rule: fold in rank order from rank 0's value in the accumulator type (f32 for f16, bf16 and f32; f64; integers
// wrap), one rounding to nearest even at the end. min and max: NaN wins, -0 < +0. Every NaN result is the canonical
// one (all bits set but the sign). A fold over one rank follows the same rule.
//
// How it is computed: an f32 addition as a double addition rounded to float (correctly rounded, since 53 >= 2 * 24 + 2;
// Figueroa 1995); two-byte formats are decoded by a table made from their definition, and encoded by rounding a double
// to a multiple of the format's spacing; min and max compare integer keys.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <peerless/core/types.hpp>

#include "payload.hpp"

namespace peerless::test {

using peerless::reduce_op;

namespace detail {

// The value of a bit pattern, from the definition of the format. Exact in double for the formats used here.
inline double decode(format f, std::uint64_t bits) {
  std::uint64_t const exponent = (bits >> f.mantissa_bits) & f.exponent_max();
  auto const mantissa = static_cast<double>(bits & f.mantissa_mask());
  double const sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  if (exponent == f.exponent_max()) {
    if (mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  int const bias = static_cast<int>(f.bias());
  int const shift = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - static_cast<int>(f.mantissa_bits);
  double const hidden = exponent == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(f.mantissa_bits));
  return sign * std::ldexp(hidden + mantissa, shift);
}

// The bit pattern of `value` rounded to nearest even in a two-byte format: |value| as a multiple of the spacing of the
// format around it, rounded to an integer by adding and subtracting 2^52.
inline std::uint64_t encode(format f, double value) {
  if (std::isnan(value)) return f.all_ones() >> 1;
  std::uint64_t const sign = std::signbit(value) ? f.sign() : 0;
  double const magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | f.infinity();
  int const least = 1 - static_cast<int>(f.bias());
  int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  if (exponent < least) exponent = least;
  int const spacing = exponent - static_cast<int>(f.mantissa_bits);
  double const scaled = magnitude * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - spacing) << 52);
  auto const steps = static_cast<std::uint64_t>((scaled + 0x1p52) - 0x1p52);
  std::uint64_t const bits = (static_cast<std::uint64_t>(exponent - least) << f.mantissa_bits) + steps;
  return sign | (bits >= f.infinity() ? f.infinity() : bits);
}

// Values of all patterns of a two-byte format.
class decode_table {
 public:
  explicit decode_table(format f) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(decode(f, i));
  }
  double operator[](std::uint16_t bits) const { return values_[bits]; }

 private:
  std::array<float, 65536> values_;
};

inline const decode_table& table_of(dtype type) {
  static const decode_table half(format_of(dtype::f16));
  static const decode_table brain(format_of(dtype::bf16));
  return type == dtype::f16 ? half : brain;
}

template <class Word>
Word load(const std::byte* from, std::size_t i) {
  Word word;
  std::memcpy(&word, from + i * sizeof(Word), sizeof(Word));
  return word;
}

template <class Word, class Fold>
void fold_words(std::size_t n, std::byte* out, Fold&& fold) {
  for (std::size_t i = 0; i < n; ++i) {
    auto const word = static_cast<Word>(fold(i));
    std::memcpy(out + i * sizeof(Word), &word, sizeof(Word));
  }
}

// min or max of floating-point patterns: by keys that grow with the value, -0 just below +0.
template <class Word>
std::uint64_t extreme_float(format f, const std::byte* const* inputs, int world, std::size_t i, bool greatest) {
  std::uint64_t best = 0, best_key = 0;
  for (int rank = 0; rank < world; ++rank) {
    std::uint64_t const bits = load<Word>(inputs[rank], i);
    if ((bits & ~f.sign()) > f.infinity()) return f.all_ones() >> 1;
    std::uint64_t const key = (bits & f.sign()) != 0 ? ~bits & f.all_ones() : bits | f.sign();
    if (rank == 0 || (greatest ? key > best_key : key < best_key)) best = bits, best_key = key;
  }
  return best;
}

inline std::uint32_t fold_integers(dtype type, reduce_op op, const std::byte* const* inputs, int world, std::size_t i) {
  std::uint32_t const flip = type == dtype::i32 ? 0x80000000u : 0u;  // the order of signed numbers
  std::uint32_t result = load<std::uint32_t>(inputs[0], i);
  for (int rank = 1; rank < world; ++rank) {
    std::uint32_t const next = load<std::uint32_t>(inputs[rank], i);
    if (op == reduce_op::sum) {
      result += next;
    } else if (((next ^ flip) > (result ^ flip)) == (op == reduce_op::max)) {
      result = next;
    }
  }
  return result;
}

inline double sum_in_f32(double sum, double next) { return static_cast<double>(static_cast<float>(sum + next)); }

}  // namespace detail

// Writes to `out` the reduction of n elements of inputs[0] ... inputs[world - 1]; no alignment is asked for.
// `op` is sum, min or max; `type` one of f16 bf16 f32 f64 i32 u32.
inline void reference_reduce(dtype type, reduce_op op, const std::byte* const* inputs, int world, std::size_t n,
                             std::byte* out) {
  using namespace detail;
  bool const greatest = op == reduce_op::max;
  format const f = format_of(type);
  switch (type) {
    case dtype::i32:
    case dtype::u32:
      fold_words<std::uint32_t>(n, out, [&](std::size_t i) { return fold_integers(type, op, inputs, world, i); });
      return;
    case dtype::f16:
    case dtype::bf16: {
      if (op != reduce_op::sum) {
        fold_words<std::uint16_t>(
            n, out, [&](std::size_t i) { return extreme_float<std::uint16_t>(f, inputs, world, i, greatest); });
        return;
      }
      decode_table const& values = table_of(type);
      fold_words<std::uint16_t>(n, out, [&](std::size_t i) {
        double sum = values[load<std::uint16_t>(inputs[0], i)];
        for (int rank = 1; rank < world; ++rank) sum = sum_in_f32(sum, values[load<std::uint16_t>(inputs[rank], i)]);
        return encode(f, sum);
      });
      return;
    }
    case dtype::f32:
      if (op != reduce_op::sum) {
        fold_words<std::uint32_t>(
            n, out, [&](std::size_t i) { return extreme_float<std::uint32_t>(f, inputs, world, i, greatest); });
        return;
      }
      fold_words<std::uint32_t>(n, out, [&](std::size_t i) {
        double sum = load<float>(inputs[0], i);
        for (int rank = 1; rank < world; ++rank) sum = sum_in_f32(sum, load<float>(inputs[rank], i));
        return std::isnan(sum) ? std::uint32_t{0x7fffffffu} : std::bit_cast<std::uint32_t>(static_cast<float>(sum));
      });
      return;
    default:
      if (op != reduce_op::sum) {
        fold_words<std::uint64_t>(
            n, out, [&](std::size_t i) { return extreme_float<std::uint64_t>(f, inputs, world, i, greatest); });
        return;
      }
      fold_words<std::uint64_t>(n, out, [&](std::size_t i) {
        double sum = load<double>(inputs[0], i);
        for (int rank = 1; rank < world; ++rank) sum += load<double>(inputs[rank], i);
        return std::isnan(sum) ? std::uint64_t{0x7fffffffffffffffu} : std::bit_cast<std::uint64_t>(sum);
      });
      return;
  }
}

// The value of element i of `data`, in long double: exact for every floating-point and integer type used here.
inline long double value_at(dtype type, const std::byte* data, std::size_t i) {
  switch (type) {
    case dtype::i32: return detail::load<std::int32_t>(data, i);
    case dtype::u32: return detail::load<std::uint32_t>(data, i);
    case dtype::f16:
    case dtype::bf16: return detail::decode(detail::format_of(type), detail::load<std::uint16_t>(data, i));
    case dtype::f32: return detail::load<float>(data, i);
    default: return detail::load<double>(data, i);
  }
}

// How far a sum of `world` values may lie from the exact one, by the standard bound: (world - 1) roundings in the
// accumulator, each at most half a unit of the largest partial sum, and one to the element type.
inline long double sum_tolerance(dtype type, int world, long double sum_of_magnitudes, long double exact) {
  detail::format const f = detail::format_of(type);
  long double const accumulator_unit = type == dtype::f64 ? 0x1p-53L : 0x1p-24L;
  long double const folding = (world - 1) * accumulator_unit * sum_of_magnitudes * (1 + 16 * accumulator_unit);
  long double const half_unit = (std::fabs(exact) + folding) * std::ldexp(1.0L, -static_cast<int>(f.mantissa_bits) - 1);
  long double const half_least = std::ldexp(1.0L, -static_cast<int>(f.bias()) - static_cast<int>(f.mantissa_bits));
  return folding + (half_unit > half_least ? half_unit : half_least);
}

}  // namespace peerless::test
