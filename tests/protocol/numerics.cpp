// Conversions and fold steps against references computed apart from the library: double arithmetic, and the formats'
// definitions. Every value of one and two bytes is widened; narrowing is tried at every rounding boundary and at random
// values.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <peerless/protocol/fold.hpp>

#include "check.hpp"
#include "support/random.hpp"

namespace peerless::test {
namespace {

// A format by its definition. The patterns above `largest` are an infinity and NaNs (e4m3: one NaN); what is larger than
// the largest number becomes `too_large`.
struct format {
  int bits, mantissa_bits, exponent_bits;
  std::uint32_t largest, infinity, too_large;  // infinity 0: there is none
  std::uint32_t sign() const { return 1u << (bits - 1); }
  std::uint32_t canonical() const { return sign() - 1; }
};
constexpr format half{16, 10, 5, 0x7bff, 0x7c00, 0x7c00}, brain{16, 7, 8, 0x7f7f, 0x7f80, 0x7f80},
    e4m3{8, 3, 4, 0x7e, 0, 0x7e}, e5m2{8, 2, 5, 0x7b, 0x7c, 0x7b};

// The value of a bit pattern; NaN patterns give NaN.
double decode(format f, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & ~f.sign();
  const double sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  if (magnitude > f.largest) {
    return f.infinity != 0 && magnitude == f.infinity ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude) & ((1 << f.mantissa_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - bias - f.mantissa_bits);
}

// The number that would follow pattern `bits` if the format had no end.
double above(format f, std::uint32_t bits) {
  return bits == f.largest ? 2 * decode(f, bits) - decode(f, bits - 1) : decode(f, bits + 1);
}

// The nearest pattern by search: candidates are the two neighbours, ties go to the even one. `value` is positive or +0.
std::uint32_t nearest(format f, double value) {
  if (value >= above(f, f.largest)) return f.too_large;
  std::uint32_t low = 0, high = f.largest + 1;  // decode(low) <= value < the number of `high`
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (decode(f, middle) <= value ? low : high) = middle;
  }
  const double to_low = value - decode(f, low), to_high = above(f, low) - value;
  const bool up = to_high < to_low || (to_high == to_low && (low & 1u) != 0);
  return !up ? low : low == f.largest ? f.too_large : low + 1;
}

template <class T>
void check_narrow(format f, float value) {
  const std::uint32_t sign = std::signbit(value) ? f.sign() : 0u;
  const std::uint32_t expected =
      std::isnan(value) ? f.canonical() : sign | nearest(f, std::fabs(static_cast<double>(value)));
  const std::uint32_t got = from_accumulator<T>(value).bits;
  PEERLESS_CHECK(got == expected, std::bit_cast<std::uint32_t>(value));
}

template <class T>
void check_conversions(format f, std::uint64_t seed) {
  using word = decltype(T::bits);
  for (std::uint32_t bits = 0; bits < 2 * f.sign(); ++bits) {
    const float wide = to_accumulator(T{static_cast<word>(bits)});
    const double expected = decode(f, bits);
    if (std::isnan(expected)) {
      PEERLESS_CHECK(std::isnan(wide), bits);
      PEERLESS_CHECK(from_accumulator<T>(wide).bits == f.canonical(), bits);
      continue;
    }
    PEERLESS_CHECK(static_cast<double>(wide) == expected && std::signbit(wide) == std::signbit(expected), bits);
    // What came from the format goes back unchanged, but for infinities of those that saturate.
    const std::uint32_t back = std::isinf(wide) ? (bits & f.sign()) | f.too_large : bits;
    PEERLESS_CHECK(from_accumulator<T>(wide).bits == back, bits);
    // Half way to the next pattern, and one float above and below it.
    if (!std::isinf(wide)) {
      const double magnitude = std::fabs(expected);
      const double step = above(f, bits & ~f.sign()) - magnitude;
      const auto middle = static_cast<float>(std::copysign(magnitude + step / 2, expected));
      if (!std::isinf(middle)) {
        check_narrow<T>(f, middle);
        check_narrow<T>(f, std::nextafter(middle, 0.0f));
        check_narrow<T>(f, std::nextafter(middle, std::copysign(std::numeric_limits<float>::infinity(), middle)));
      }
    }
  }
  random_choices random(seed);
  for (int i = 0; i < 100'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    check_narrow<T>(f, std::bit_cast<float>(bits));
    // And exponents about those of the format.
    check_narrow<T>(f, std::bit_cast<float>((bits & 0x807fffffu) | (127 - 24 + (bits >> 24) % 48) << 23));
  }
  for (const std::uint32_t special : {0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0xffffffffu, 0u, 0x80000000u, 1u, 0x80000001u}) {
    check_narrow<T>(f, std::bit_cast<float>(special));
  }
}

template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<std::uint64_t>(value);
  else if constexpr (sizeof(T) == 4) return std::bit_cast<std::uint32_t>(value);
  else if constexpr (sizeof(T) == 2) return std::bit_cast<std::uint16_t>(value);
  else return std::bit_cast<std::uint8_t>(value);
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

// Wrapping, order and truncation of one width, at its edges.
template <class T>
void check_integers() {
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const auto is = [](std::uint64_t got, T expected) { return got == bits_of(expected); };
  PEERLESS_CHECK(is(fold_two<T, op::sum>(most, 1), least));
  PEERLESS_CHECK(is(fold_two<T, op::sum>(most, most), static_cast<T>(-2)) || std::is_unsigned_v<T>);
  PEERLESS_CHECK(is(fold_two<T, op::max>(least, most), most));
  PEERLESS_CHECK(is(fold_two<T, op::min>(most, least), least));
  PEERLESS_CHECK(is(fold_two<T, op::max>(static_cast<T>(-1), 1), std::is_signed_v<T> ? T{1} : most));
  PEERLESS_CHECK(is(fold_two<T, op::prod>(most, 2), static_cast<T>(-2)));
  PEERLESS_CHECK(is(fold_two<T, op::prod>(most, most), 1));
  PEERLESS_CHECK(is(fold_two<T, op::prod>(static_cast<T>(-1), 7), static_cast<T>(-7)));
  PEERLESS_CHECK(is(fold_two<T, op::avg>(4, 3), 3));
  PEERLESS_CHECK(is(fold_two<T, op::avg>(most, 1), static_cast<T>(least / 2)));  // the sum has wrapped
  if constexpr (std::is_signed_v<T>) PEERLESS_CHECK(is(fold_two<T, op::avg>(-4, -3), -3));  // towards zero
}

// An average of `n` ranks that each have `value`, in the first lane.
template <class T>
T average(T value, int n) {
  vec16 v{};
  detail::set_lane<T>(v, 0, value);
  vector_fold<T, op::avg> fold;
  for (int i = 0; i < n; ++i) fold.add(v);
  return detail::lane<T>(fold.result(), 0);
}

// A division, rounded once: never a product with a rounded reciprocal, which is wrong for some of these.
void check_averages() {
  random_choices random(7);
  for (int i = 0; i < 100'000; ++i) {
    const int n = 1 + static_cast<int>(random.below(16));
    const auto value = std::bit_cast<float>(0x3f800000u | static_cast<std::uint32_t>(random.next() >> 41));
    double sum = value;
    for (int k = 1; k < n; ++k) sum = static_cast<double>(static_cast<float>(sum + static_cast<double>(value)));
    // A quotient in double rounds to the right float, since 53 >= 2 * 24 + 2.
    PEERLESS_CHECK(average(value, n) == static_cast<float>(sum / n), n);
    const auto wide = static_cast<double>(1 + random.below(1u << 26));
    double whole = wide;
    for (int k = 1; k < n; ++k) whole += wide;  // exact
    const double quotient = average(wide, n);
    PEERLESS_CHECK(std::fma(quotient, n, -whole) == 0 && whole / n == wide, n);
  }
  PEERLESS_CHECK((fold_two<float, op::avg>(1.0f, 2.0f)) == bits_of(1.5f));
  PEERLESS_CHECK((fold_two<float, op::avg>(std::bit_cast<float>(1u), 0.0f)) == 0);  // half the least number: even
  PEERLESS_CHECK((fold_two<bf16, op::avg>(bf16{0x7f7f}, bf16{0x7f7f})) == 0x7f80);  // the sum is too large
  PEERLESS_CHECK((fold_two<f16, op::avg>(f16{0x7bff}, f16{0x7bff})) == 0x7bff);     // in f32 it is not
  PEERLESS_CHECK((fold_two<f8_e4m3, op::avg>(f8_e4m3{0x7e}, f8_e4m3{0x7e})) == 0x7e);
}

// Products in the accumulator, rounded once.
void check_products() {
  PEERLESS_CHECK((fold_two<float, op::prod>(3.0f, -5.0f)) == bits_of(-15.0f));
  PEERLESS_CHECK((fold_two<double, op::prod>(0x1p-537, 0x1p-537)) == 1);  // the least subnormal number
  PEERLESS_CHECK((fold_two<float, op::prod>(0x1p-75f, 0x1p-74f)) == 1);
  PEERLESS_CHECK((fold_two<f16, op::prod>(f16{0x5c00}, f16{0x5c00})) == 0x7c00);  // 2^8 * 2^8 is too large
  PEERLESS_CHECK((fold_two<bf16, op::prod>(bf16{0x3f81}, bf16{0x3f81})) == 0x3f82);
  PEERLESS_CHECK((fold_two<float, op::prod>(std::numeric_limits<float>::infinity(), 0.0f)) == 0x7fffffffu);
  PEERLESS_CHECK((fold_two<f8_e4m3, op::prod>(f8_e4m3{0x7e}, f8_e4m3{0xfe})) == 0xfe);  // 448 * -448 saturates
  PEERLESS_CHECK((fold_two<f8_e5m2, op::prod>(f8_e5m2{0x7b}, f8_e5m2{0x7b})) == 0x7b);
  PEERLESS_CHECK((fold_two<f8_e5m2, op::max>(f8_e5m2{0x7c}, f8_e5m2{0x3c})) == 0x7b);   // an infinity as well
  PEERLESS_CHECK((fold_two<f8_e4m3, op::sum>(f8_e4m3{0xff}, f8_e4m3{0x38})) == 0x7f);
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
  t::check_conversions<peerless::f8_e4m3>(t::e4m3, 3);
  t::check_conversions<peerless::f8_e5m2>(t::e5m2, 4);
  t::check_minmax<float, std::uint32_t>(0x7fffffffu, 0x7fc00001u, 0xffffffffu, 0x3f800000u, 0x80000000u);
  t::check_minmax<double, std::uint64_t>(0x7fffffffffffffffu, 0x7ff8000000000001u, ~std::uint64_t{0}, 0x3ff0000000000000u,
                                         std::uint64_t{1} << 63);
  t::check_minmax<peerless::f16, std::uint16_t>(0x7fff, 0x7e01, 0xffff, 0x3c00, 0x8000);
  t::check_minmax<peerless::bf16, std::uint16_t>(0x7fff, 0x7fc1, 0xffff, 0x3f80, 0x8000);
  t::check_minmax<peerless::f8_e4m3, std::uint8_t>(0x7f, 0x7f, 0xff, 0x38, 0x80);
  t::check_minmax<peerless::f8_e5m2, std::uint8_t>(0x7f, 0x7d, 0xfe, 0x3c, 0x80);
  t::check_integers<std::int8_t>();
  t::check_integers<std::uint8_t>();
  t::check_integers<std::int32_t>();
  t::check_integers<std::uint32_t>();
  t::check_integers<std::int64_t>();
  t::check_integers<std::uint64_t>();
  t::check_averages();
  t::check_products();
  t::check_order();
  t::check_edges<peerless::bf16>();
  t::check_edges<float>();
  t::check_edges<double>();
  t::check_edges<std::int32_t>();
  t::check_edges<peerless::f8_e4m3>();
  t::check_edges<std::int8_t>();
  return t::report("numerics");
}
