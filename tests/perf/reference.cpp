// The judge of peerless_all_reduce_perf: its data, its expected results and its tolerance.
#include "support/catch.hpp"

#include <cmath>
#include <cstring>
#include <set>

#include "names.hpp"
#include "problem.hpp"
#include "reference.hpp"
#include "support/reference.hpp"  // an independent computation, by another method

using namespace peerless;
using namespace peerless::bench;

namespace {

constexpr int worlds[] = {1, 2, 3, 4, 8, 16};
constexpr std::uint64_t seed = 0x5eed;

template <class F>
void for_all_types(F&& f) {
  for (const dtype type : all_types) {
    for (const reduce_op operation : all_operations) with_types(type, operation, f);
  }
}

}  // namespace

TEST_CASE("every number of one and two bytes survives widening and rounding") {
  using peerless::test::detail::decode;
  using peerless::test::detail::format_of;
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f8_e4m3, dtype::f8_e5m2}) {
    with_element(type, [&]<class T>() {
      if constexpr (narrow_float<T>) {
        for (std::uint32_t bits = 0; bits < 1u << (8 * sizeof(T)); ++bits) {
          const double value = decode(format_of(type), bits);
          if (!std::isfinite(value)) continue;
          const T element{static_cast<decltype(T::bits)>(bits)};
          REQUIRE(static_cast<double>(widen(element)) == value);
          REQUIRE(narrow<T>(widen(element)) == element);
        }
      }
    });
  }
}

TEST_CASE("rounding goes to the nearest, ties to even") {
  using peerless::test::detail::encode;
  using peerless::test::detail::format_of;
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f8_e4m3, dtype::f8_e5m2}) {
    with_element(type, [&]<class T>() {
      if constexpr (narrow_float<T>) {
        const unsigned dropped = 23 - fields_of<T>.fraction_bits;
        for (std::uint32_t i = 0; i < 200'000; ++i) {
          // Random bits; then exponents about those of the format, and the neighbourhood of a tie.
          std::uint32_t bits = static_cast<std::uint32_t>(random_bits(seed, 0, i) >> 32);
          if (i % 3 != 0) bits = (bits & 0x807fffffu) | (100 + (bits >> 24) % 50) << 23;
          if (i % 3 == 2) bits = (bits >> dropped << dropped) | ((1u << (dropped - 1)) - 2 + i % 5);
          const float value = std::bit_cast<float>(bits);
          if (std::isnan(value)) continue;
          REQUIRE(narrow<T>(value).bits == encode(format_of(type), static_cast<double>(value)));
        }
      }
    });
  }
}

TEST_CASE("inputs are finite, never -0, and differ between ranks, seeds and places") {
  for (const dtype type : {dtype::f8_e4m3, dtype::f8_e5m2, dtype::f16, dtype::bf16, dtype::f32, dtype::f64}) {
    with_element(type, [&]<class T>() {
      int n_negative = 0;
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        if constexpr (!std::is_integral_v<T>) {
          const auto value = widen(input_value<T>(seed, 1, i));
          REQUIRE(std::fabs(value) <= 8);
          REQUIRE((value != 0 || !std::signbit(value)));
          n_negative += value < 0;
        }
      }
      CHECK(n_negative > 9'000);
      CHECK(n_negative < 11'000);
    });
  }
  std::set<std::uint64_t> seen;
  for (std::uint64_t s = 0; s < 4; ++s) {
    for (int rank = 0; rank < 16; ++rank) {
      for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(random_bits(s, rank, i));
    }
  }
  CHECK(seen.size() == 64'000);
}

TEST_CASE("expected values are the fold in rank order with one rounding") {
  for_all_types([]<class T, class Op>() {
    constexpr std::size_t n = 3000;
    for (const int world : worlds) {
      std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(world),
                                                 std::vector<std::byte>(n * sizeof(T)));
      std::vector<const std::byte*> pointers;
      for (int rank = 0; rank < world; ++rank) {
        auto& input = inputs[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < n; ++i) {
          const T value = input_value<T>(seed, rank, i);
          std::memcpy(input.data() + i * sizeof(T), &value, sizeof(T));
        }
        pointers.push_back(input.data());
      }
      std::vector<std::byte> want(n * sizeof(T));
      peerless::test::reference_reduce(dtype_of<T>, Op::id, pointers.data(), world, n, want.data());
      for (std::size_t i = 0; i < n; ++i) {
        const T got = expected_value<T, Op>(seed, world, i);
        REQUIRE(std::memcmp(want.data() + i * sizeof(T), &got, sizeof(T)) == 0);
        REQUIRE(is_right<T, Op>(exactness::rank_order, got, seed, world, i));
        REQUIRE(is_right<T, Op>(exactness::any_order, got, seed, world, i));
      }
    }
  });
}

TEST_CASE("the order of ranks shows in the bits of f32 sums") {
  int n_different = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    float backwards = input_value<float>(seed, 3, i);
    for (int rank = 2; rank >= 0; --rank) backwards += input_value<float>(seed, rank, i);
    n_different += !is_right<float, op::sum>(exactness::rank_order, backwards, seed, 4, i);
    CHECK(is_right<float, op::sum>(exactness::any_order, backwards, seed, 4, i));
  }
  CHECK(n_different > 100);
}

TEST_CASE("rounding at every hop is right in any order, and wrong by the rule") {
  int n_different = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    bf16 hop = input_value<bf16>(seed, 5, i);
    for (int rank = 6; rank < 13; ++rank) hop = narrow<bf16>(widen(hop) + widen(input_value<bf16>(seed, rank % 8, i)));
    CHECK(is_right<bf16, op::sum>(exactness::any_order, hop, seed, 8, i));
    n_different += !is_right<bf16, op::sum>(exactness::rank_order, hop, seed, 8, i);
  }
  CHECK(n_different > 100);
}

TEST_CASE("poison, a missing rank and a rank counted twice are wrong by both rules") {
  for_all_types([]<class T, class Op>() {
    T poison;
    std::memset(static_cast<void*>(&poison), poison_byte, sizeof(T));
    for (const int world : worlds) {
      int n_missing = 0, n_twice = 0, n_poison = 0;
      for (std::uint64_t i = 0; i < 1000; ++i) {
        for (const exactness rule : {exactness::rank_order, exactness::any_order}) {
          n_poison += is_right<T, Op>(rule, poison, seed, world, i);
          // What any order may give hides a rank among many, in narrow types; in those of one byte among two.
          const int most = sizeof(T) == 1 && !std::is_integral_v<T> ? 1 : 2;
          if (world == 1 || Op::id != reduce_op::sum || (rule == exactness::any_order && world > most)) continue;
          n_missing += is_right<T, Op>(rule, expected_value<T, Op>(seed, world - 1, i), seed, world, i);
          n_twice += is_right<T, Op>(rule, expected_value<T, Op>(seed, world + 1, i), seed, world, i);
        }
      }
      // The poison's byte is a number in integer types, so a result of one byte may be it.
      CHECK(n_poison <= (std::is_integral_v<T> && sizeof(T) == 1 ? 200 : 0));
      // One rounding hides values that are far apart, too: of a thousand elements some, never most.
      CHECK(n_missing < 300);
      CHECK(n_twice < 300);
    }
  });
}
