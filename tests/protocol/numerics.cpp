// Conversions and fold steps against references computed apart from the library: double arithmetic, and the formats'
// definitions. Every 16-bit value is widened; narrowing is tried at every rounding boundary and at random values.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <peerless/protocol/fold.hpp>

#include "check.hpp"
#include "support/random.hpp"

namespace peerless::test {
namespace {

struct format {
  int mantissa_bits, exponent_bits;
};
constexpr format half{10, 5}, brain{7, 8};

// The value of a bit pattern by the definition of the format; NaN patterns give NaN.
double decode(format f, std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << f.mantissa_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  if (exponent == (1 << f.exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - bias - f.mantissa_bits);
}

// The nearest pattern by search: candidates are the two finite neighbours, ties go to the even one. `value` is positive
// or +0. The step above the largest finite number counts as infinity.
std::uint32_t nearest(format f, double value) {
  const std::uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  if (std::isinf(value)) return infinity;
  std::uint32_t low = 0, high = infinity;  // decode(low) <= value < decode(high)
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (decode(f, middle) <= value ? low : high) = middle;
  }
  const double below = decode(f, low);
  const double above = high == infinity ? 2 * below - decode(f, low - 1) : decode(f, high);
  const double to_below = value - below, to_above = above - value;
  if (to_below < to_above) return low;
  if (to_above < to_below) return high;
  return (low & 1u) == 0 ? low : high;
}

template <class T>
void check_narrow(format f, float value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const std::uint32_t expected = std::isnan(value) ? 0x7fffu : sign | nearest(f, std::fabs(static_cast<double>(value)));
  const std::uint32_t got = from_accumulator<T>(value).bits;
  PEERLESS_CHECK(got == expected, std::bit_cast<std::uint32_t>(value));
}

template <class T>
void check_conversions(format f, std::uint64_t seed) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = to_accumulator(T{static_cast<std::uint16_t>(bits)});
    const double expected = decode(f, bits);
    if (std::isnan(expected)) {
      PEERLESS_CHECK(std::isnan(wide), bits);
      PEERLESS_CHECK(from_accumulator<T>(wide).bits == 0x7fff, bits);
      continue;
    }
    PEERLESS_CHECK(static_cast<double>(wide) == expected && std::signbit(wide) == std::signbit(expected), bits);
    PEERLESS_CHECK(from_accumulator<T>(wide).bits == bits, bits);  // what came from the format goes back unchanged
    // Half way to the next pattern, and one float above and below it.
    if ((bits & 0x7fffu) < (((1u << f.exponent_bits) - 1) << f.mantissa_bits)) {
      const std::uint32_t next = (bits & 0x7fffu) + 1;
      const bool last = next == ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
      const double magnitude = std::fabs(expected);
      const double step = last ? magnitude - decode(f, next - 2) : decode(f, next) - magnitude;
      const auto middle = static_cast<float>(std::copysign(magnitude + step / 2, expected));
      if (!std::isinf(middle)) {
        check_narrow<T>(f, middle);
        check_narrow<T>(f, std::nextafter(middle, 0.0f));
        check_narrow<T>(f, std::nextafter(middle, std::copysign(std::numeric_limits<float>::infinity(), middle)));
      }
    }
  }
  random_choices random(seed);
  for (int i = 0; i < 100'000; ++i) check_narrow<T>(f, std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
  for (const std::uint32_t special : {0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0xffffffffu, 0u, 0x80000000u}) {
    check_narrow<T>(f, std::bit_cast<float>(special));
  }
}

template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<std::uint64_t>(value);
  else if constexpr (sizeof(T) == 4) return std::bit_cast<std::uint32_t>(value);
  else return value.bits;
}

// Two values through vector_fold, in the first lane.
template <class T, class Op>
std::uint64_t fold_two(T left, T right) {
  vec16 a{}, b{};
  detail::set_lane<T>(a, 0, left);
  detail::set_lane<T>(b, 0, right);
  vector_fold<T, Op> fold;
  fold.add(a);
  fold.add(b);
  return bits_of(detail::lane<T>(fold.result(), 0));
}

template <class T, class Word>
void check_minmax(std::uint64_t canonical, Word nan, Word negative_nan, Word one, Word sign) {
  const auto value = [](Word bits) { return std::bit_cast<T>(bits); };
  for (const Word number : {Word{0}, sign, one, static_cast<Word>(one | sign)}) {
    for (const Word quiet : {nan, negative_nan}) {
      PEERLESS_CHECK((fold_two<T, op::max>(value(quiet), value(number)) == canonical), quiet);
      PEERLESS_CHECK((fold_two<T, op::max>(value(number), value(quiet)) == canonical), quiet);
      PEERLESS_CHECK((fold_two<T, op::min>(value(quiet), value(number)) == canonical), quiet);
      PEERLESS_CHECK((fold_two<T, op::min>(value(number), value(quiet)) == canonical), quiet);
      PEERLESS_CHECK((fold_two<T, op::sum>(value(number), value(quiet)) == canonical), quiet);
      PEERLESS_CHECK((fold_two<T, op::sum>(value(quiet), value(number)) == canonical), quiet);
    }
  }
  PEERLESS_CHECK((fold_two<T, op::max>(value(0), value(sign)) == 0));
  PEERLESS_CHECK((fold_two<T, op::max>(value(sign), value(0)) == 0));
  PEERLESS_CHECK((fold_two<T, op::min>(value(0), value(sign)) == sign));
  PEERLESS_CHECK((fold_two<T, op::min>(value(sign), value(0)) == sign));
  PEERLESS_CHECK((fold_two<T, op::max>(value(one), value(static_cast<Word>(one | sign))) == one));
  PEERLESS_CHECK((fold_two<T, op::min>(value(one), value(static_cast<Word>(one | sign))) == static_cast<Word>(one | sign)));
  PEERLESS_CHECK((fold_two<T, op::sum>(value(sign), value(sign)) == sign));
}

void check_integers() {
  PEERLESS_CHECK((fold_two<std::int32_t, op::sum>(0x7fffffff, 1) == 0x80000000u));
  PEERLESS_CHECK((fold_two<std::uint32_t, op::sum>(0xffffffffu, 2) == 1));
  PEERLESS_CHECK((fold_two<std::int32_t, op::max>(-1, 1) == 1));
  PEERLESS_CHECK((fold_two<std::uint32_t, op::max>(0xffffffffu, 1) == 0xffffffffu));
  PEERLESS_CHECK((fold_two<std::int32_t, op::min>(-1, 1) == 0xffffffffu));
}

// One rounding at the end, in rank order: bf16 1 + 2^-9 + 2^-9 is 1 + 2^-8 in f32, half way to 1 + 2^-7, so 1; and
// 2^24 + 1 + 1 in f32 stays 2^24 from the left.
void check_order() {
  const auto fold_three = [](float a, float b, float c) {
    vector_fold<float, op::sum> fold;
    for (const float x : {a, b, c}) fold.add({{std::bit_cast<std::uint32_t>(x), 0, 0, 0}});
    return std::bit_cast<float>(fold.result().word[0]);
  };
  PEERLESS_CHECK(fold_three(16777216.0f, 1.0f, 1.0f) == 16777216.0f);
  PEERLESS_CHECK(fold_three(1.0f, 1.0f, 16777216.0f) == 16777218.0f);
  PEERLESS_CHECK(fold_three(1e30f, -1e30f, 1.0f) == 1.0f);
  vector_fold<bf16, op::sum> fold;
  for (const std::uint32_t bits : {0x3f80u, 0x3b00u, 0x3b00u}) fold.add({{bits, 0, 0, 0}});
  PEERLESS_CHECK(fold.result().word[0] == 0x3f80u, fold.result().word[0]);
  vector_fold<bf16, op::sum> more;
  for (const std::uint32_t bits : {0x3f80u, 0x3b00u, 0x3b80u}) more.add({{bits, 0, 0, 0}});
  PEERLESS_CHECK(more.result().word[0] == 0x3f81u, more.result().word[0]);  // two roundings would have given 1
}

// Partial vectors: zeros behind the end of the input, nothing written behind the end of the output.
template <class T>
void check_edges() {
  constexpr unsigned lanes = 16 / sizeof(T);
  for (std::uint64_t n = 1; n <= 2 * lanes; ++n) {
    T in[2 * lanes + 1], out[2 * lanes + 1];
    std::memset(in, 0xa5, sizeof in);
    std::memset(out, 0x5a, sizeof out);
    const message<T> msg{in, out, n};
    PEERLESS_CHECK(msg.n_vectors() == (n + lanes - 1) / lanes, n);
    for (std::uint64_t i = 0; i < msg.n_vectors(); ++i) {
      const vec16 v = load_vector(msg, i);
      for (unsigned l = 0; l < lanes; ++l) {
        const std::uint64_t expected = i * lanes + l < n ? bits_of(in[0]) : 0;
        PEERLESS_CHECK(bits_of(detail::lane<T>(v, l)) == expected, n);
      }
      store_vector(msg, i, v);
    }
    PEERLESS_CHECK(std::memcmp(in, out, n * sizeof(T)) == 0, n);
    for (std::size_t byte = n * sizeof(T); byte < sizeof out; ++byte) {
      PEERLESS_CHECK(reinterpret_cast<unsigned char*>(out)[byte] == 0x5a, n);
    }
  }
}

}  // namespace
}  // namespace peerless::test

int main() {
  namespace t = peerless::test;
  t::check_conversions<peerless::f16>(t::half, 1);
  t::check_conversions<peerless::bf16>(t::brain, 2);
  t::check_minmax<float, std::uint32_t>(0x7fffffffu, 0x7fc00001u, 0xffffffffu, 0x3f800000u, 0x80000000u);
  t::check_minmax<double, std::uint64_t>(0x7fffffffffffffffu, 0x7ff8000000000001u, ~std::uint64_t{0}, 0x3ff0000000000000u,
                                         std::uint64_t{1} << 63);
  t::check_minmax<peerless::f16, std::uint16_t>(0x7fff, 0x7e01, 0xffff, 0x3c00, 0x8000);
  t::check_minmax<peerless::bf16, std::uint16_t>(0x7fff, 0x7fc1, 0xffff, 0x3f80, 0x8000);
  t::check_integers();
  t::check_order();
  t::check_edges<peerless::bf16>();
  t::check_edges<float>();
  t::check_edges<double>();
  t::check_edges<std::int32_t>();
  return t::report("numerics");
}
