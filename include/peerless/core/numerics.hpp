// Arithmetic with the same bits everywhere: conversions, the canonical NaN and one step of a fold. On the device the
// instructions are written out (.rn, no .ftz), so that a consumer's -use_fast_math changes nothing.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// A reduction that is defined for a type.
template <class T, class Op>
concept foldable =
    element<T> && reduction<Op> && (Op::id == reduce_op::sum || Op::id == reduce_op::max || Op::id == reduce_op::min);

namespace detail {

// Keeps a sum from being reassociated where this translation unit's flags allow that.
template <class A>
inline A as_written(A sum) {
#if defined(__FAST_MATH__) && defined(__x86_64__)
  asm volatile("" : "+x"(sum));
#elif defined(__FAST_MATH__) && defined(__aarch64__)
  asm volatile("" : "+w"(sum));
#endif
  return sum;
}

// binary16 -> binary32, exact. Integer arithmetic only, so no floating-point mode can touch it.
PEERLESS_HD constexpr float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  if (fraction == 0) return std::bit_cast<float>(sign);
  std::uint32_t shifted = 113;  // a subnormal: normalise it
  while ((fraction & 0x400u) == 0) {
    fraction <<= 1;
    --shifted;
  }
  return std::bit_cast<float>(sign | shifted << 23 | (fraction & 0x3ffu) << 13);
}

// binary32 -> binary16, round to nearest even; every NaN becomes 0x7fff.
PEERLESS_HD constexpr std::uint16_t narrow_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                                                   // a normal result
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);  // below half of the least subnormal
  const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126 - (magnitude >> 23);
  const std::uint32_t kept = fraction >> shift;
  const std::uint32_t rest = fraction & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t up = rest > half || (rest == half && (kept & 1u) != 0) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (kept + up));
}

// binary32 -> bfloat16, round to nearest even; every NaN becomes 0x7fff.
PEERLESS_HD constexpr std::uint16_t narrow_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

PEERLESS_HD constexpr bool is_nan(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) > 0x7f800000u;
}
PEERLESS_HD constexpr bool is_nan(double value) {
  return (std::bit_cast<std::uint64_t>(value) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}

// Sign-magnitude bits as an integer that orders -inf < ... < -0 < +0 < ... < inf.
PEERLESS_HD constexpr std::int32_t order_key(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
PEERLESS_HD constexpr std::int64_t order_key(double value) {
  const auto bits = std::bit_cast<std::int64_t>(value);
  return bits ^ ((bits >> 63) & 0x7fffffffffffffffll);
}

}  // namespace detail

// Value of an element in the type in which ranks are folded; exact.
PEERLESS_HD constexpr float to_accumulator(bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }
PEERLESS_HD inline float to_accumulator(f16 value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return detail::widen_f16(value.bits);
#endif
}
template <element T>
  requires std::same_as<T, accumulator_of<T>>
PEERLESS_HD constexpr T to_accumulator(T value) {
  return value;
}

// A folded value as an element: one rounding to nearest even, and every NaN becomes the type's canonical NaN
// (0x7fff, 0x7fffffff, 0x7fffffffffffffff).
template <element T>
PEERLESS_HD inline T from_accumulator(accumulator_of<T> value) {
  if constexpr (std::same_as<T, bf16>) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bf16{bits};
#else
    return bf16{detail::narrow_bf16(value)};
#endif
  } else if constexpr (std::same_as<T, f16>) {
#if defined(__CUDA_ARCH__)
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return f16{bits};
#else
    return f16{detail::narrow_f16(value)};
#endif
  } else if constexpr (std::same_as<T, float>) {
    return detail::is_nan(value) ? std::bit_cast<float>(0x7fffffffu) : value;
  } else if constexpr (std::same_as<T, double>) {
    return detail::is_nan(value) ? std::bit_cast<double>(0x7fffffffffffffffull) : value;
  } else {
    return value;
  }
}

// One step of a fold: `left` is the fold so far (lower ranks), `right` the next rank's value. Integers wrap; a NaN on
// either side wins min and max, and -0 is less than +0.
template <reduction Op, class A>
PEERLESS_HD inline A combine(A left, A right) {
  if constexpr (Op::id == reduce_op::sum) {
    if constexpr (std::same_as<A, float>) {
#if defined(__CUDA_ARCH__)
      float sum;
      asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(left), "f"(right));
      return sum;
#else
      return detail::as_written(left + right);
#endif
    } else if constexpr (std::same_as<A, double>) {
#if defined(__CUDA_ARCH__)
      double sum;
      asm("add.rn.f64 %0, %1, %2;" : "=d"(sum) : "d"(left), "d"(right));
      return sum;
#else
      return detail::as_written(left + right);
#endif
    } else {
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(left) + static_cast<std::make_unsigned_t<A>>(right));
    }
  } else {
    static_assert(Op::id == reduce_op::max || Op::id == reduce_op::min, "this reduction is not defined for this type");
    if constexpr (std::is_floating_point_v<A>) {
      if (detail::is_nan(left)) return left;
      if (detail::is_nan(right)) return right;
      const bool less = detail::order_key(left) < detail::order_key(right);
      return less == (Op::id == reduce_op::max) ? right : left;
    } else {
      const bool less = left < right;
      return less == (Op::id == reduce_op::max) ? right : left;
    }
  }
}

PEERLESS_END_NAMESPACE
