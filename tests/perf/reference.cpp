// The judge of peerless_all_reduce_perf: its data, its expected results and its tolerance.
#include "support/catch.hpp"

#include <cmath>
#include <cstring>
#include <set>

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
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f32, dtype::f64, dtype::i32, dtype::u32}) {
    for (const reduce_op operation : {reduce_op::sum, reduce_op::min, reduce_op::max}) with_types(type, operation, f);
  }
}

}  // namespace

TEST_CASE("every two-byte number survives widening and rounding") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = f16{static_cast<std::uint16_t>(bits)};
    const auto brain = bf16{static_cast<std::uint16_t>(bits)};
    if ((bits & 0x7c00u) != 0x7c00u) {
      const double value = peerless::test::detail::decode(peerless::test::detail::format_of(dtype::f16), bits);
      REQUIRE(static_cast<double>(widen(half)) == value);
      REQUIRE(round_to_f16(widen(half)) == half);
    }
    if ((bits & 0x7f80u) != 0x7f80u) REQUIRE(round_to_bf16(widen(brain)) == brain);
  }
}

TEST_CASE("rounding goes to the nearest, ties to even") {
  using peerless::test::detail::encode;
  using peerless::test::detail::format_of;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    // Random bits, then the neighbourhood of a tie of each format.
    std::uint32_t bits = static_cast<std::uint32_t>(random_bits(seed, 0, i) >> 32);
    if (i % 3 == 1) bits = (bits & ~0xffffu) | (0x7fffu + i % 5);
    if (i % 3 == 2) bits = (bits & ~0x1fffu) | (0x0fffu + i % 5);
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value) || std::fabs(value) > 1e38f) continue;
    REQUIRE(round_to_bf16(value).bits == encode(format_of(dtype::bf16), static_cast<double>(value)));
    if (std::fabs(value) < 65520.0f) {
      REQUIRE(round_to_f16(value).bits == encode(format_of(dtype::f16), static_cast<double>(value)));
    }
  }
}

TEST_CASE("inputs are finite, never -0, and differ between ranks, seeds and places") {
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f32, dtype::f64}) {
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
    for (int rank = 6; rank < 13; ++rank) hop = round_to_bf16(widen(hop) + widen(input_value<bf16>(seed, rank % 8, i)));
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
      int n_missing = 0, n_twice = 0;
      for (std::uint64_t i = 0; i < 1000; ++i) {
        for (const exactness rule : {exactness::rank_order, exactness::any_order}) {
          REQUIRE(!is_right<T, Op>(rule, poison, seed, world, i));
          // What any order may give hides a rank among many, in two-byte types.
          if (world == 1 || Op::id != reduce_op::sum || (rule == exactness::any_order && world > 2)) continue;
          n_missing += is_right<T, Op>(rule, expected_value<T, Op>(seed, world - 1, i), seed, world, i);
          n_twice += is_right<T, Op>(rule, expected_value<T, Op>(seed, world + 1, i), seed, world, i);
        }
      }
      // One rounding hides values that are far apart, too: of a thousand elements some, never most.
      CHECK(n_missing < 300);
      CHECK(n_twice < 300);
    }
  });
}
