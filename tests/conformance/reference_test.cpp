// The reference against closed forms and against long double: what all other tests lean on.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "support/catch.hpp"
#include "support/payload.hpp"
#include "support/reference.hpp"

using namespace peerless::test;
using peerless::dtype;
using peerless::reduce_op;

namespace {

// The reduction of one element a rank, given and returned as bits.
std::uint64_t reduced(dtype type, reduce_op operation, std::initializer_list<std::uint64_t> bits) {
  std::vector<std::uint64_t> const inputs(bits);
  std::vector<const std::byte*> pointers;
  for (auto const& input : inputs) pointers.push_back(reinterpret_cast<const std::byte*>(&input));
  std::uint64_t result = 0;
  reference_reduce(type, operation, pointers.data(), static_cast<int>(pointers.size()), 1,
                   reinterpret_cast<std::byte*>(&result));
  return result;
}

std::uint64_t f32(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint64_t f64(double value) { return std::bit_cast<std::uint64_t>(value); }

constexpr std::uint64_t half_40000 = 0x78e2, half_minus_60000 = 0xfb53, half_20000 = 0x74e2, half_infinity = 0x7c00;

}  // namespace

TEST_CASE("decoding follows the definition of the formats") {
  auto const half = detail::format_of(dtype::f16);
  auto const brain = detail::format_of(dtype::bf16);
  CHECK(detail::decode(half, 0x3c00) == 1.0);
  CHECK(detail::decode(half, 0xc000) == -2.0);
  CHECK(detail::decode(half, 0x7bff) == 65504.0);
  CHECK(detail::decode(half, 0x0001) == 0x1p-24);
  CHECK(detail::decode(half, 0x03ff) == 1023 * 0x1p-24);
  CHECK(detail::decode(half, 0x0400) == 0x1p-14);
  CHECK(std::isinf(detail::decode(half, 0xfc00)));
  CHECK(std::isnan(detail::decode(half, 0x7c01)));
  CHECK(detail::decode(brain, 0x3f80) == 1.0);
  CHECK(detail::decode(brain, 0x0001) == 0x1p-133);
  CHECK(detail::decode(brain, 0x7f7f) == 0x1.fep127);
  CHECK(std::isnan(detail::decode(brain, 0xffff)));
  auto const e4m3 = detail::format_of(dtype::f8_e4m3);
  auto const e5m2 = detail::format_of(dtype::f8_e5m2);
  CHECK(detail::decode(e4m3, 0x38) == 1.0);
  CHECK(detail::decode(e4m3, 0x7e) == 448.0);
  CHECK(detail::decode(e4m3, 0x78) == 256.0);
  CHECK(detail::decode(e4m3, 0x81) == -0x1p-9);
  CHECK(std::isnan(detail::decode(e4m3, 0x7f)));
  CHECK(detail::decode(e5m2, 0x3c) == 1.0);
  CHECK(detail::decode(e5m2, 0xfb) == -57344.0);
  CHECK(detail::decode(e5m2, 0x01) == 0x1p-16);
  CHECK(std::isinf(detail::decode(e5m2, 0x7c)));
  CHECK(std::isnan(detail::decode(e5m2, 0x7d)));
}

TEST_CASE("encoding inverts decoding and rounds ties to even") {
  for (dtype type : {dtype::f16, dtype::bf16, dtype::f8_e4m3, dtype::f8_e5m2}) {
    auto const f = detail::format_of(type);
    unsigned wrong = 0;
    for (std::uint64_t bits = 0; bits <= f.all_ones(); ++bits) {
      double const value = detail::decode(f, bits);
      std::uint64_t const back = std::isnan(value)   ? f.all_ones() >> 1
                                 : std::isinf(value) ? (bits & f.sign()) | f.beyond()
                                                     : bits;
      if (detail::encode(f, value) != back) ++wrong;
    }
    CHECK(wrong == 0);
    // Half-way points of neighbours go to the even one; a little less or more goes to the nearer one.
    for (std::uint64_t bits = 0; bits < f.largest(); ++bits) {
      double const low = detail::decode(f, bits), high = detail::decode(f, bits + 1), middle = low + (high - low) / 2;
      if (detail::encode(f, middle) != bits + (bits & 1)) ++wrong;
      if (detail::encode(f, std::nextafter(middle, low)) != bits) ++wrong;
      if (detail::encode(f, -std::nextafter(middle, high)) != (f.sign() | (bits + 1))) ++wrong;
    }
    CHECK(wrong == 0);
  }
  auto const e4m3 = detail::format_of(dtype::f8_e4m3);
  CHECK(detail::encode(e4m3, 463.9) == 0x7e);
  CHECK(detail::encode(e4m3, 1e9) == 0x7e);
  CHECK(detail::encode(e4m3, -std::numeric_limits<double>::infinity()) == 0xfe);
  CHECK(detail::encode(detail::format_of(dtype::f8_e5m2), 61440.0) == 0x7b);
  auto const half = detail::format_of(dtype::f16);
  CHECK(detail::encode(half, 65519.99) == 0x7bff);
  CHECK(detail::encode(half, 65520.0) == half_infinity);
  CHECK(detail::encode(half, -1e300) == 0xfc00);
  CHECK(detail::encode(half, 0x1p-25) == 0);
  CHECK(detail::encode(half, -0x1p-26) == 0x8000);
  CHECK(detail::encode(half, 0x1.8p-25) == 1);
}

TEST_CASE("f16 sums are folded in f32 and rounded once") {
  CHECK(reduced(dtype::f16, reduce_op::sum, {half_40000, half_40000, half_minus_60000, 0}) == half_20000);
  CHECK(reduced(dtype::f16, reduce_op::sum, {half_minus_60000, half_40000, 0, half_40000}) == half_20000);
  CHECK(reduced(dtype::f16, reduce_op::sum, {half_40000, half_40000}) == half_infinity);
  // 2048 + 1 + 1: each f16 addition would round back to 2048; the f32 fold gives 2050.
  CHECK(reduced(dtype::f16, reduce_op::sum, {0x6800, 0x3c00, 0x3c00}) == 0x6801);
  // bf16: 256 + 1 + 1 = 258.
  CHECK(reduced(dtype::bf16, reduce_op::sum, {0x4380, 0x3f80, 0x3f80}) == 0x4381);
}

TEST_CASE("the order of the fold is that of the ranks") {
  CHECK(reduced(dtype::f32, reduce_op::sum, {f32(0x1p24f), f32(1), f32(1)}) == f32(0x1p24f));
  CHECK(reduced(dtype::f32, reduce_op::sum, {f32(1), f32(1), f32(0x1p24f)}) == f32(0x1p24f + 2));
  CHECK(reduced(dtype::f32, reduce_op::sum, {f32(0x1p24f), f32(1), f32(-0x1p24f)}) == f32(0));
  CHECK(reduced(dtype::f64, reduce_op::sum, {f64(0x1p53), f64(1), f64(1)}) == f64(0x1p53));
  CHECK(reduced(dtype::f64, reduce_op::sum, {f64(1), f64(1), f64(0x1p53)}) == f64(0x1p53 + 2));
  CHECK(reduced(dtype::f32, reduce_op::sum, {f32(3e38f), f32(3e38f), f32(-3e38f)}) == 0x7f800000);
}

TEST_CASE("fp8 is folded in f32, rounded once and saturates") {
  // 16 + 1 + 1: each e4m3 addition would round back to 16 (spacing 2, to even); the f32 fold gives 18.
  CHECK(reduced(dtype::f8_e4m3, reduce_op::sum, {0x58, 0x38, 0x38}) == 0x59);
  CHECK(reduced(dtype::f8_e4m3, reduce_op::sum, {0x7e, 0x7e, 0xfe, 0}) == 0x7e);
  CHECK(reduced(dtype::f8_e4m3, reduce_op::sum, {0x7e, 0x7e}) == 0x7e);
  CHECK(reduced(dtype::f8_e5m2, reduce_op::sum, {0xfb, 0xfb}) == 0xfb);
  CHECK(reduced(dtype::f8_e5m2, reduce_op::max, {0x7c, 0}) == 0x7b);
  CHECK(reduced(dtype::f8_e5m2, reduce_op::min, {0xfc, 0x7d}) == 0x7f);
  CHECK(reduced(dtype::f8_e4m3, reduce_op::prod, {0x40, 0xc0, 0x40}) == 0xd0);  // 2 * -2 * 2
}

TEST_CASE("products and averages") {
  CHECK(reduced(dtype::f32, reduce_op::prod, {f32(3), f32(-5)}) == f32(-15));
  CHECK(reduced(dtype::f32, reduce_op::prod, {f32(0x1p-75f), f32(0x1p-74f)}) == 1);
  CHECK(reduced(dtype::f64, reduce_op::prod, {f64(0x1p-537), f64(-0x1p-537)}) == 0x8000000000000001);
  CHECK(reduced(dtype::f16, reduce_op::prod, {0x5c00, 0x5c00}) == half_infinity);
  CHECK(reduced(dtype::f32, reduce_op::prod, {0x7f800000, 0}) == 0x7fffffff);
  CHECK(reduced(dtype::f32, reduce_op::avg, {f32(1), f32(0), f32(0)}) == f32(1.0f / 3.0f));
  CHECK(reduced(dtype::f64, reduce_op::avg, {f64(2), f64(0), f64(0)}) == f64(2.0 / 3.0));
  CHECK(reduced(dtype::f16, reduce_op::avg, {0x7bff, 0x7bff}) == 0x7bff);
  CHECK(reduced(dtype::f16, reduce_op::avg, {half_40000, half_40000, half_minus_60000, 0}) == 0x6ce2);  // 5000
  CHECK(reduced(dtype::i8, reduce_op::avg, {0xfc, 0xfd}) == 0xfd);                                      // (-4 - 3) / 2
  CHECK(reduced(dtype::u8, reduce_op::avg, {0xfc, 0xfd}) == 0x7c);  // 249 / 2: the sum has wrapped
  CHECK(reduced(dtype::i64, reduce_op::avg, {std::uint64_t(-7), 0}) == std::uint64_t(-3));
  CHECK(reduced(dtype::u64, reduce_op::avg, {~std::uint64_t{0}, 0}) == ~std::uint64_t{0} >> 1);
  CHECK(reduced(dtype::i8, reduce_op::prod, {0x80, 0xff}) == 0x80);
  CHECK(reduced(dtype::u32, reduce_op::prod, {0x10001, 0x10001}) == 0x20001);
  CHECK(reduced(dtype::u64, reduce_op::prod, {std::uint64_t{1} << 63, 3}) == std::uint64_t{1} << 63);
}

TEST_CASE("every NaN is the canonical one, zeros keep their signs") {
  for (reduce_op operation : {reduce_op::sum, reduce_op::prod, reduce_op::min, reduce_op::max, reduce_op::avg}) {
    CHECK(reduced(dtype::f8_e4m3, operation, {0x38, 0xff}) == 0x7f);
    CHECK(reduced(dtype::f8_e5m2, operation, {0xfd}) == 0x7f);
    CHECK(reduced(dtype::f16, operation, {0xfe01}) == 0x7fff);
    CHECK(reduced(dtype::f16, operation, {0x3c00, 0x7c01}) == 0x7fff);
    CHECK(reduced(dtype::bf16, operation, {0xffff, 0x3f80}) == 0x7fff);
    CHECK(reduced(dtype::f32, operation, {f32(1), 0xffffffff, f32(2)}) == 0x7fffffff);
    CHECK(reduced(dtype::f64, operation, {f64(1), 0x7ff0000000000001}) == 0x7fffffffffffffff);
  }
  CHECK(reduced(dtype::f32, reduce_op::sum, {0x7f800000, 0xff800000}) == 0x7fffffff);
  CHECK(reduced(dtype::f16, reduce_op::sum, {0x7c00, 0xfc00}) == 0x7fff);
  CHECK(reduced(dtype::f32, reduce_op::sum, {0x80000000}) == 0x80000000);
  CHECK(reduced(dtype::f32, reduce_op::sum, {0x80000000, 0x80000000}) == 0x80000000);
  CHECK(reduced(dtype::f32, reduce_op::sum, {0x80000000, 0}) == 0);
  CHECK(reduced(dtype::f16, reduce_op::min, {0, 0x8000}) == 0x8000);
  CHECK(reduced(dtype::f16, reduce_op::max, {0x8000, 0, 0x8000}) == 0);
  CHECK(reduced(dtype::f64, reduce_op::max, {0x8000000000000000, 0xfff0000000000000}) == 0x8000000000000000);
  CHECK(reduced(dtype::bf16, reduce_op::min, {0x7f80, 0xff80, 0}) == 0xff80);
}

TEST_CASE("integers wrap and compare in their own order") {
  CHECK(reduced(dtype::u32, reduce_op::sum, {0xffffffff, 2}) == 1);
  CHECK(reduced(dtype::i32, reduce_op::sum, {0x7fffffff, 1}) == 0x80000000);
  CHECK(reduced(dtype::i32, reduce_op::max, {0xffffffff, 0}) == 0);
  CHECK(reduced(dtype::u32, reduce_op::max, {0xffffffff, 0}) == 0xffffffff);
  CHECK(reduced(dtype::i32, reduce_op::min, {0x80000000, 0x7fffffff}) == 0x80000000);
  CHECK(reduced(dtype::u32, reduce_op::min, {0x80000000, 0x7fffffff}) == 0x7fffffff);
}

TEST_CASE("sums lie within the standard bound of the exact value") {
  constexpr std::size_t n = 4096;
  unsigned wrong = 0, compared = 0;
  for (dtype type : {dtype::f8_e4m3, dtype::f8_e5m2, dtype::f16, dtype::bf16, dtype::f32, dtype::f64}) {
    auto const largest =
        static_cast<long double>(detail::decode(detail::format_of(type), detail::format_of(type).largest()));
    for (payload data :
         {payload::uniform, payload::wide, payload::subnormals, payload::counted, payload::signed_zeros}) {
      for (int world : {1, 2, 3, 8, 16}) {
        std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(world),
                                                   std::vector<std::byte>(n * peerless::size_bytes(type)));
        std::vector<const std::byte*> pointers;
        for (int rank = 0; rank < world; ++rank) {
          fill(type, data, 5, rank, 0, inputs[static_cast<std::size_t>(rank)]);
          pointers.push_back(inputs[static_cast<std::size_t>(rank)].data());
        }
        std::vector<std::byte> result(n * peerless::size_bytes(type));
        reference_reduce(type, reduce_op::sum, pointers.data(), world, n, result.data());
        for (std::size_t i = 0; i < n; ++i) {
          long double exact = 0, magnitudes = 0;
          for (auto const* input : pointers)
            exact += value_at(type, input, i), magnitudes += std::fabs(value_at(type, input, i));
          long double const got = value_at(type, result.data(), i);
          if (std::fabs(got) >= largest) continue;  // overflow is the business of the closed forms
          ++compared;
          if (std::fabs(got - exact) > sum_tolerance(type, world, magnitudes, exact)) ++wrong;
        }
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(compared > 300000);
}

TEST_CASE("payloads hold what they promise, the same from any starting index") {
  for (int code = 0; code <= static_cast<int>(dtype::f8_e5m2); ++code) {
    auto const type = static_cast<dtype>(code);
    std::size_t const width = peerless::size_bytes(type);
    for (int kind = 0; kind < static_cast<int>(payload::last_); ++kind) {
      std::vector<std::byte> whole(4096 * width), parts(4096 * width);
      fill(type, static_cast<payload>(kind), 9, 1, 0, whole);
      for (std::size_t first = 0; first < 4096; first += 512) {
        fill(type, static_cast<payload>(kind), 9, 1, first, {parts.data() + first * width, 512 * width});
      }
      CHECK(whole == parts);
    }
    // Aligned words of all ones are there.
    std::vector<std::byte> words(4096 * width);
    fill(type, payload::sentinel_words, 9, 1, 0, words);
    std::size_t found = 0;
    for (std::size_t i = 0; i + 4 <= words.size(); i += 4)
      found += detail::load<std::uint32_t>(words.data() + i, 0) == 0xffffffffu;
    CHECK(found > 100);
  }
  std::vector<std::byte> doubles(4096 * 8);
  fill(dtype::f64, payload::low_word_ones, 9, 1, 0, doubles);
  std::size_t found = 0;
  for (std::size_t i = 0; i < 4096; ++i) found += detail::load<double>(doubles.data(), i) == 1 - 0x1p-53;
  CHECK(found > 100);
}
