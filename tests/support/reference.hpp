// What an all-reduce must return, bit for bit, computed apart from the library: no function of it is used here.
//
// The rule: fold in rank order from rank 0's value in the accumulator type (f32 for f16, bf16, fp8 and f32; f64;
// integers wrap), one rounding to nearest even at the end; fp8 saturates. avg: the sum, divided once in the
// accumulator, integers towards zero. min and max: NaN wins, -0 < +0. Every NaN result is the canonical one (all bits
// set but the sign). A fold over one rank follows the same rule.
//
// How it is computed: an f32 operation as one of doubles rounded to float (correctly rounded, since 53 >= 2 * 24 + 2;
// Figueroa 1995; a product is exact, and a quotient by at most 16 is never near enough to half a subnormal step);
// narrow formats are decoded by a table made from their definition, and encoded by rounding a double to a multiple of
// the format's spacing; min and max compare integer keys.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <peerless/core/types.hpp>

#include "payload.hpp"

namespace peerless::test {

using peerless::reduce_op;

namespace detail {

// The value of a bit pattern, from the definition of the format. Exact in double for the formats used here.
inline double decode(format f, std::uint64_t bits) {
  if (f.is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
  double const sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  if ((bits & ~f.sign()) > f.largest()) return sign * std::numeric_limits<double>::infinity();
  std::uint64_t const exponent = (bits >> f.mantissa_bits) & f.exponent_max();
  auto const mantissa = static_cast<double>(bits & f.mantissa_mask());
  int const bias = static_cast<int>(f.bias());
  int const shift = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - static_cast<int>(f.mantissa_bits);
  double const hidden = exponent == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(f.mantissa_bits));
  return sign * std::ldexp(hidden + mantissa, shift);
}

// The bit pattern of `value` rounded to nearest even in a format of one or two bytes: |value| as a multiple of the
// spacing of the format around it, rounded to an integer by adding and subtracting 2^52.
inline std::uint64_t encode(format f, double value) {
  if (std::isnan(value)) return f.all_ones() >> 1;
  std::uint64_t const sign = std::signbit(value) ? f.sign() : 0;
  double const magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | f.beyond();
  int const least = 1 - static_cast<int>(f.bias());
  int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  if (exponent < least) exponent = least;
  int const spacing = exponent - static_cast<int>(f.mantissa_bits);
  double const scaled = magnitude * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - spacing) << 52);
  auto const steps = static_cast<std::uint64_t>((scaled + 0x1p52) - 0x1p52);
  std::uint64_t const bits = (static_cast<std::uint64_t>(exponent - least) << f.mantissa_bits) + steps;
  return sign | (bits > f.largest() ? f.beyond() : bits);
}

// Values of all patterns of a format of one or two bytes.
class decode_table {
 public:
  explicit decode_table(format f) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(decode(f, i & f.all_ones()));
  }
  double operator[](std::uint64_t bits) const { return values_[bits]; }

 private:
  std::array<float, 65536> values_;
};

inline const decode_table& table_of(dtype type) {
  static const decode_table half(format_of(dtype::f16)), brain(format_of(dtype::bf16)), e4m3(format_of(dtype::f8_e4m3)),
      e5m2(format_of(dtype::f8_e5m2));
  return type == dtype::f16 ? half : type == dtype::bf16 ? brain : type == dtype::f8_e4m3 ? e4m3 : e5m2;
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
    if (f.is_nan(bits)) return f.all_ones() >> 1;
    std::uint64_t const key = (bits & f.sign()) != 0 ? ~bits & f.all_ones() : bits | f.sign();
    if (rank == 0 || (greatest ? key > best_key : key < best_key)) best = bits, best_key = key;
  }
  return (best & ~f.sign()) > f.largest() ? (best & f.sign()) | f.beyond() : best;
}

// sum, prod and avg. `value(bits)` is a pattern's value; `rounded(x)` the result of one operation in the accumulator
// type, given exactly or, for f64, as rounded already.
template <class Word, class Value, class Rounded>
double fold_floats(reduce_op op, const std::byte* const* inputs, int world, std::size_t i, const Value& value,
                   const Rounded& rounded) {
  double folded = value(load<Word>(inputs[0], i));
  for (int rank = 1; rank < world; ++rank) {
    double const next = value(load<Word>(inputs[rank], i));
    folded = rounded(op == reduce_op::prod ? folded * next : folded + next);
  }
  return op == reduce_op::avg ? rounded(folded / world) : folded;
}

template <class Word>
void reduce_integers(dtype type, reduce_op op, const std::byte* const* inputs, int world, std::size_t n,
                     std::byte* out) {
  bool const has_sign = is_signed_integer(type);
  Word const flip = has_sign ? static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1)) : Word{0};  // the order of signs
  fold_words<Word>(n, out, [&](std::size_t i) {
    Word folded = load<Word>(inputs[0], i);
    for (int rank = 1; rank < world; ++rank) {
      Word const next = load<Word>(inputs[rank], i);
      if (op == reduce_op::sum || op == reduce_op::avg) {
        folded = static_cast<Word>(folded + next);
      } else if (op == reduce_op::prod) {
        folded = static_cast<Word>(std::uint64_t{folded} * next);
      } else if ((static_cast<Word>(next ^ flip) > static_cast<Word>(folded ^ flip)) == (op == reduce_op::max)) {
        folded = next;
      }
    }
    if (op != reduce_op::avg) return folded;
    using signed_word = std::make_signed_t<Word>;
    return has_sign ? static_cast<Word>(static_cast<signed_word>(folded) / static_cast<signed_word>(world))
                    : static_cast<Word>(folded / static_cast<Word>(world));
  });
}

template <class Word>
void reduce_floats(dtype type, reduce_op op, const std::byte* const* inputs, int world, std::size_t n, std::byte* out) {
  format const f = format_of(type);
  if (op == reduce_op::min || op == reduce_op::max) {
    return fold_words<Word>(
        n, out, [&](std::size_t i) { return extreme_float<Word>(f, inputs, world, i, op == reduce_op::max); });
  }
  auto const in_f32 = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  if constexpr (sizeof(Word) <= 2) {
    decode_table const& values = table_of(type);
    auto const value = [&](Word bits) { return values[bits]; };
    fold_words<Word>(n, out,
                     [&](std::size_t i) { return encode(f, fold_floats<Word>(op, inputs, world, i, value, in_f32)); });
  } else if constexpr (sizeof(Word) == 4) {
    auto const value = [](Word bits) { return static_cast<double>(std::bit_cast<float>(bits)); };
    fold_words<Word>(n, out, [&](std::size_t i) {
      double const folded = fold_floats<Word>(op, inputs, world, i, value, in_f32);
      return std::isnan(folded) ? Word{0x7fffffffu} : std::bit_cast<Word>(static_cast<float>(folded));
    });
  } else {
    auto const value = [](Word bits) { return std::bit_cast<double>(bits); };
    fold_words<Word>(n, out, [&](std::size_t i) {
      double const folded = fold_floats<Word>(op, inputs, world, i, value, [](double x) { return x; });
      return std::isnan(folded) ? Word{0x7fffffffffffffffu} : std::bit_cast<Word>(folded);
    });
  }
}

}  // namespace detail

// Writes to `out` the reduction of n elements of inputs[0] ... inputs[world - 1]; no alignment is asked for.
inline void reference_reduce(dtype type, reduce_op op, const std::byte* const* inputs, int world, std::size_t n,
                             std::byte* out) {
  switch (type) {
    case dtype::i8:
    case dtype::u8: return detail::reduce_integers<std::uint8_t>(type, op, inputs, world, n, out);
    case dtype::i32:
    case dtype::u32: return detail::reduce_integers<std::uint32_t>(type, op, inputs, world, n, out);
    case dtype::i64:
    case dtype::u64: return detail::reduce_integers<std::uint64_t>(type, op, inputs, world, n, out);
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return detail::reduce_floats<std::uint8_t>(type, op, inputs, world, n, out);
    case dtype::f16:
    case dtype::bf16: return detail::reduce_floats<std::uint16_t>(type, op, inputs, world, n, out);
    case dtype::f32: return detail::reduce_floats<std::uint32_t>(type, op, inputs, world, n, out);
    case dtype::f64: return detail::reduce_floats<std::uint64_t>(type, op, inputs, world, n, out);
  }
}

// The value of element i of `data`, in long double: exact for every type.
inline long double value_at(dtype type, const std::byte* data, std::size_t i) {
  using namespace detail;
  switch (type) {
    case dtype::i8: return load<std::int8_t>(data, i);
    case dtype::u8: return load<std::uint8_t>(data, i);
    case dtype::i32: return load<std::int32_t>(data, i);
    case dtype::u32: return load<std::uint32_t>(data, i);
    case dtype::i64: return static_cast<long double>(load<std::int64_t>(data, i));
    case dtype::u64: return static_cast<long double>(load<std::uint64_t>(data, i));
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return decode(format_of(type), load<std::uint8_t>(data, i));
    case dtype::f16:
    case dtype::bf16: return decode(format_of(type), load<std::uint16_t>(data, i));
    case dtype::f32: return load<float>(data, i);
    case dtype::f64: return load<double>(data, i);
  }
  return 0;
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
