// Input data of the tests. Every element is a pure function of (type, kind, seed, rank, index), so each rank can make
// the inputs of all ranks by itself and no exchange is needed to know what must come out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <peerless/core/types.hpp>

#include "random.hpp"

namespace peerless::test {

using peerless::dtype;

// What the elements look like.
enum class payload : std::uint8_t {
  uniform,         // moderate values of both signs, all mantissa bits random; integers: any value
  wide,            // values over the whole exponent range: cancellation, overflow and underflow; integers: any value
  bits,            // any bit pattern at all, NaNs and infinities as they come
  nans,            // about one element in eight a NaN with random payload and sign, half of them signalling
  infinities,      // infinities of both signs between moderate values
  signed_zeros,    // +0 and -0, now and then the least number
  sentinel_words,  // aligned and shifted 4-byte words of all ones between moderate values
  low_word_ones,   // f64: 1 - 2^-53 and others whose low word is all ones; other types as sentinel_words
  extremes,        // largest and least finite values, 1 and -1; integers: minimum, maximum, 0, 1, -1
  subnormals,      // numbers below the least normal one, of both signs
  counted,         // small integers with a closed sum: (1 + rank % 2) * (1 + index % 3)
  partial_sums,    // 40000, 40000, -60000, 0 by rank % 4: in f16 the partial sum overflows, the result need not
  last_,
};

constexpr const char* name_of(payload kind) {
  constexpr const char* names[] = {"uniform",    "wide",         "bits",           "nans",
                                   "infinities", "signed zeros", "sentinel words", "low word ones",
                                   "extremes",   "subnormals",   "counted",        "partial sums"};
  return kind < payload::last_ ? names[static_cast<unsigned>(kind)] : "?";
}

namespace detail {

// The fields of a binary floating-point format, as bit patterns in the low bits of a 64-bit word. With `infinite` the
// largest exponent holds infinities and NaNs; else there is one NaN a sign, all ones, and no infinity.
struct format {
  unsigned bits, mantissa_bits, exponent_bits;
  bool infinite = true;
  constexpr std::uint64_t mantissa_mask() const { return (std::uint64_t{1} << mantissa_bits) - 1; }
  constexpr std::uint64_t exponent_max() const { return (std::uint64_t{1} << exponent_bits) - 1; }
  constexpr std::uint64_t bias() const { return exponent_max() >> 1; }
  constexpr std::uint64_t all_ones() const { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }
  constexpr std::uint64_t sign() const { return std::uint64_t{1} << (bits - 1); }
  constexpr std::uint64_t one() const { return bias() << mantissa_bits; }
  constexpr std::uint64_t largest() const {  // finite
    return infinite ? (exponent_max() << mantissa_bits) - 1 : (all_ones() >> 1) - 1;
  }
  // What a number beyond the largest becomes: an infinity, but in formats of one byte the largest.
  constexpr std::uint64_t beyond() const { return bits == 8 ? largest() : largest() + 1; }
  constexpr bool is_nan(std::uint64_t word) const { return (word & ~sign()) > largest() + (infinite ? 1 : 0); }
};

constexpr format format_of(dtype type) {
  switch (type) {
    case dtype::f8_e4m3: return {8, 3, 4, false};
    case dtype::f8_e5m2: return {8, 2, 5};
    case dtype::f16: return {16, 10, 5};
    case dtype::bf16: return {16, 7, 8};
    case dtype::f32: return {32, 23, 8};
    default: return {64, 52, 11};
  }
}

constexpr bool is_integer(dtype type) { return type <= dtype::u64; }
constexpr bool is_signed_integer(dtype type) { return type == dtype::i8 || type == dtype::i32 || type == dtype::i64; }

// The closed forms, as integers.
constexpr std::int64_t counted_value(int rank, std::size_t index) {
  return (1 + rank % 2) * (1 + static_cast<std::int64_t>(index % 3));
}
constexpr std::int64_t partial_sums_value(int rank) {
  constexpr std::int64_t values[] = {40000, 40000, -60000, 0};
  return values[rank % 4];
}

// The bits of an integer of at most 53 significant bits; what the mantissa cannot hold is cut, and what is too large
// becomes the largest number.
constexpr std::uint64_t from_integer(format f, std::int64_t value) {
  if (value == 0) return 0;
  std::uint64_t const sign = value < 0 ? f.sign() : 0;
  auto const magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  unsigned const top = 63u - static_cast<unsigned>(std::countl_zero(magnitude));
  std::uint64_t const rest = magnitude ^ std::uint64_t{1} << top;
  std::uint64_t const mantissa =
      top <= f.mantissa_bits ? rest << (f.mantissa_bits - top) : rest >> (top - f.mantissa_bits);
  std::uint64_t const bits = (f.bias() + top) << f.mantissa_bits | mantissa;
  return sign | (bits < f.largest() ? bits : f.largest());
}

// A number of either sign with an exponent in [bias - below, bias + above] and random mantissa. `h` is random.
constexpr std::uint64_t moderate(format f, std::uint64_t h, std::uint64_t below, std::uint64_t above) {
  std::uint64_t const exponent = f.bias() - below + (h >> 58) % (below + above + 1);
  return ((h & 1) != 0 ? f.sign() : 0) | exponent << f.mantissa_bits | ((h >> 1) & f.mantissa_mask());
}

constexpr std::uint64_t float_element(format f, payload kind, std::uint64_t h, std::uint64_t word_hash, bool low) {
  std::uint64_t const plain = moderate(f, h, 4, 4);
  std::uint64_t const choice = (h >> 54) & 15;  // not the bits that `plain` takes its exponent from
  switch (kind) {
    case payload::uniform: return plain;
    case payload::wide: {
      std::uint64_t const exponent = (h >> 32) % f.exponent_max();  // finite
      return (plain & (f.sign() | f.mantissa_mask())) | exponent << f.mantissa_bits;
    }
    case payload::bits: return h & f.all_ones();
    case payload::nans: {
      if (choice > 1) return plain;
      std::uint64_t const quiet = std::uint64_t{1} << (f.mantissa_bits - 1);
      std::uint64_t mantissa = (h >> 1) & f.mantissa_mask();
      mantissa = choice == 0 ? mantissa | quiet : mantissa & ~quiet;
      if (mantissa == 0) mantissa = 1;
      if (!f.infinite) mantissa = f.mantissa_mask();
      return ((h & 1) != 0 ? f.sign() : 0) | f.exponent_max() << f.mantissa_bits | mantissa;
    }
    case payload::infinities:
      return choice < 3 ? ((h & 1) != 0 ? f.sign() : 0) | (f.largest() + (f.infinite ? 1 : 0)) : plain;
    case payload::signed_zeros: return ((h & 1) != 0 ? f.sign() : 0) | (choice == 0 ? 1 : 0);
    case payload::low_word_ones:
      if (f.bits == 64) {
        constexpr std::uint64_t below_one = 0x3fefffffffffffffu;  // 1 - 2^-53
        return choice < 8 ? below_one : (plain | 0xffffffffu);
      }
      [[fallthrough]];
    case payload::sentinel_words: {
      // A word of all ones: all elements of a word of narrow ones, by the word's hash; either half of an f64.
      if (f.bits <= 16) return (word_hash & 3) == 0 ? f.all_ones() : plain;
      if (f.bits == 32) return choice < 4 ? f.all_ones() : plain;
      return choice < 2   ? f.all_ones()
             : choice < 6 ? (plain | 0xffffffffu)
             : low        ? (plain & f.sign()) | 0x7fffffffffffffffu
                          : plain;
    }
    case payload::extremes: {
      std::uint64_t const sign = (h & 1) != 0 ? f.sign() : 0;
      switch (choice & 3) {
        case 0: return sign | f.largest();
        case 1: return sign | 1;                                    // least subnormal
        case 2: return sign | std::uint64_t{1} << f.mantissa_bits;  // least normal
        default: return sign | f.one();
      }
    }
    case payload::subnormals: return ((h & 1) != 0 ? f.sign() : 0) | ((h >> 1) & f.mantissa_mask());
    default: return plain;
  }
}

// `word_hash` is the same for all elements of a 4-byte word.
template <class Word>
constexpr Word integer_element(payload kind, std::uint64_t h, std::uint64_t word_hash) {
  constexpr Word most = ~Word{0}, high = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  auto const any = static_cast<Word>(sizeof(Word) == 8 ? mix(h) : h >> 16);
  switch (kind) {
    case payload::sentinel_words:
    case payload::low_word_ones:
    case payload::nans: return (word_hash & 3) == 0 ? most : any;
    case payload::extremes:
    case payload::infinities: {
      constexpr Word values[] = {high, high - 1, 0, 1, most, high + 1, most - 1, 2};
      return values[h & 7];
    }
    case payload::signed_zeros:
    case payload::subnormals: return static_cast<Word>((h & 1) != 0 ? h >> 60 : 0 - (h >> 60));
    default: return any;
  }
}

template <class Word, class Element>
void fill_words(std::byte* out, std::size_t n, Element&& element) {
  for (std::size_t i = 0; i < n; ++i) {
    auto const word = static_cast<Word>(element(i));
    std::memcpy(out + i * sizeof(Word), &word, sizeof(Word));
  }
}

inline void fill_closed_form(dtype type, payload kind, int rank, std::size_t first, std::span<std::byte> out) {
  auto const value = [&](std::size_t i) {
    return kind == payload::counted ? counted_value(rank, first + i) : partial_sums_value(rank);
  };
  bool const integer = is_integer(type);
  format const f = format_of(type);
  std::size_t const width = peerless::size_bytes(type);
  for (std::size_t i = 0; i < out.size() / width; ++i) {
    std::uint64_t const bits = integer ? static_cast<std::uint64_t>(value(i)) : from_integer(f, value(i));
    std::memcpy(out.data() + i * width, &bits, width);  // little-endian
  }
}

}  // namespace detail

// Writes the elements [first, first + n) of rank `rank`'s input to `out`, which holds n elements of `type` (of any
// alignment), n = out.size() / size_bytes(type).
inline void fill(dtype type, payload kind, std::uint64_t seed, int rank, std::size_t first, std::span<std::byte> out) {
  if (kind == payload::counted || kind == payload::partial_sums)
    return detail::fill_closed_form(type, kind, rank, first, out);
  std::uint64_t const stream = mix(seed ^ mix(static_cast<std::uint64_t>(rank) + 1));
  std::size_t const n = out.size() / peerless::size_bytes(type);
  auto const hash = [stream, first](std::size_t i) { return mix(stream + (first + i)); };
  // Narrow elements that share a word mostly do so in aligned words of the message; in every eighth group of 64 not.
  std::size_t const per_word = peerless::size_bytes(type) < 4 ? 4 / peerless::size_bytes(type) : 1;
  auto const word_hash = [stream, first, per_word](std::size_t i) {
    std::uint64_t const index = first + i;
    std::uint64_t const shift = (index >> 6) % 8 == 7 ? 1 : 0;
    return mix(~stream + (index + shift) / per_word);
  };
  auto const integers = [&]<class Word>(Word) {
    detail::fill_words<Word>(out.data(), n, [&](std::size_t i) {
      std::uint64_t const h = hash(i);
      return detail::integer_element<Word>(kind, h, sizeof(Word) < 4 ? word_hash(i) : h);
    });
  };
  auto const floats = [&]<class Word>(Word) {
    detail::fill_words<Word>(out.data(), n, [&](std::size_t i) {
      bool const grouped = sizeof(Word) < 4 && kind >= payload::sentinel_words;
      std::uint64_t const h = hash(i);
      return detail::float_element(detail::format_of(type), kind, h, grouped ? word_hash(i) : 0, (h & 2) != 0);
    });
  };
  switch (type) {
    case dtype::i8:
    case dtype::u8: return integers(std::uint8_t{});
    case dtype::i32:
    case dtype::u32: return integers(std::uint32_t{});
    case dtype::i64:
    case dtype::u64: return integers(std::uint64_t{});
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return floats(std::uint8_t{});
    case dtype::f16:
    case dtype::bf16: return floats(std::uint16_t{});
    case dtype::f32: return floats(std::uint32_t{});
    case dtype::f64: return floats(std::uint64_t{});
  }
}

}  // namespace peerless::test
