// Arithmetic with the same bits everywhere: conversions, the canonical NaN and one step of a fold. On the device the
// instructions are written out (.rn, no .ftz), so that a consumer's -use_fast_math changes nothing.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <peerless/core/float_formats.hpp>
#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// A reduction that is defined for a type: every one of this header's is, for every element type.
template <class T, class Op>
concept foldable = element<T> && reduction<Op> && Op::id <= reduce_op::avg;

namespace detail {

// A value of which a host compiler knows nothing, whatever its flags: no product with a reciprocal comes of a division.
template <class A>
inline A opaque(A value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(value));
#endif
  return value;
}

// Keeps a result from being reassociated where this translation unit is compiled with -ffast-math.
template <class A>
inline A as_written(A value) {
#if defined(__FAST_MATH__)
  return opaque(value);
#else
  return value;
#endif
}

// The same for a step of many values, whatever the flags (of which not all can be asked for): it has ended before the
// next begins.
template <class A, std::size_t N>
PEERLESS_HD inline void end_step([[maybe_unused]] A (&values)[N]) {
#if !defined(__CUDA_ARCH__)
  if constexpr (std::is_floating_point_v<A>) asm volatile("" : "+m"(values));
#endif
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

// One operation of IEEE arithmetic, rounded to nearest even, subnormal numbers included.
PEERLESS_HD inline float add(float left, float right) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
#else
  return as_written(left + right);
#endif
}
PEERLESS_HD inline double add(double left, double right) {
#if defined(__CUDA_ARCH__)
  double result;
  asm("add.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(left), "d"(right));
  return result;
#else
  return as_written(left + right);
#endif
}
PEERLESS_HD inline float multiply(float left, float right) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
#else
  return as_written(left * right);
#endif
}
PEERLESS_HD inline double multiply(double left, double right) {
#if defined(__CUDA_ARCH__)
  double result;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(left), "d"(right));
  return result;
#else
  return as_written(left * right);
#endif
}
PEERLESS_HD inline float divide(float left, float right) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
#else
  return as_written(opaque(left) / opaque(right));
#endif
}
PEERLESS_HD inline double divide(double left, double right) {
#if defined(__CUDA_ARCH__)
  double result;
  asm("div.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(left), "d"(right));
  return result;
#else
  return as_written(opaque(left) / opaque(right));
#endif
}

// Integers wrap in their own width.
template <std::integral A>
PEERLESS_HD constexpr A add(A left, A right) {
  return static_cast<A>(std::uint64_t(left) + std::uint64_t(right));
}
template <std::integral A>
PEERLESS_HD constexpr A multiply(A left, A right) {
  return static_cast<A>(std::uint64_t(left) * std::uint64_t(right));
}
// Towards zero; `right` is positive.
template <std::integral A>
PEERLESS_HD constexpr A divide(A left, A right) {
  return static_cast<A>(left / right);
}

}  // namespace detail

// Value of an element in the type in which ranks are folded; exact.
PEERLESS_HD constexpr float to_accumulator(bf16 value) { return detail::widen_bf16(value.bits); }
PEERLESS_HD inline float to_accumulator(f16 value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return detail::widen_f16(value.bits);
#endif
}
PEERLESS_HD inline float to_accumulator(f8_e5m2 value) {
  return to_accumulator(f16{static_cast<std::uint16_t>(std::uint32_t{value.bits} << 8)});
}
PEERLESS_HD inline float to_accumulator(f8_e4m3 value) {
#if PEERLESS_FP8_UNITS
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(std::uint16_t{value.bits}));
  return to_accumulator(f16{static_cast<std::uint16_t>(halves)});
#elif defined(__CUDA_ARCH__)
  // Its fields at those of a binary16 have an exponent that is too small by 8.
  if ((value.bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(0x7fffffffu);
  const std::uint32_t half = (value.bits & 0x80u) << 8 | (value.bits & 0x7fu) << 7;
  return detail::multiply(to_accumulator(f16{static_cast<std::uint16_t>(half)}), 256.0f);
#else
  return detail::widen_e4m3(value.bits);
#endif
}
template <element T>
  requires std::same_as<T, accumulator_of<T>>
PEERLESS_HD constexpr T to_accumulator(T value) {
  return value;
}

// A folded value as an element: one rounding to nearest even, and every NaN becomes the type's canonical NaN: all bits
// set but the sign. Types of one byte saturate: what is larger than their largest number becomes that number.
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
  } else if constexpr (std::same_as<T, f8_e4m3>) {
#if PEERLESS_FP8_UNITS
    std::uint16_t bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(value));
    return f8_e4m3{static_cast<std::uint8_t>(bits)};
#else
    return f8_e4m3{detail::narrow_e4m3(value)};
#endif
  } else if constexpr (std::same_as<T, f8_e5m2>) {
#if PEERLESS_FP8_UNITS
    std::uint16_t bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(value));
    return f8_e5m2{static_cast<std::uint8_t>(bits)};
#else
    return f8_e5m2{detail::narrow_e5m2(value)};
#endif
  } else if constexpr (std::same_as<T, float>) {
    return detail::is_nan(value) ? std::bit_cast<float>(0x7fffffffu) : value;
  } else if constexpr (std::same_as<T, double>) {
    return detail::is_nan(value) ? std::bit_cast<double>(0x7fffffffffffffffull) : value;
  } else {
    return value;
  }
}

namespace detail {

// Stands for any reduction, which is then chosen at run time: see operation_of.
struct any_op {
  static constexpr reduce_op id{0xff};
};

// What a transport compiles a call for. A sum, which inference consists of, has code of its own; the other reductions
// of a type share theirs, or a program with every type and reduction would take five times as long to compile.
template <class Op>
using compiled_op = std::conditional_t<Op::id == reduce_op::sum, Op, any_op>;

// The reduction of one call as its code carries it: nothing, unless it is chosen at run time.
template <reduction Op>
struct operation_of {
  PEERLESS_HD constexpr explicit operation_of(reduce_op = Op::id) {}
  // Calls f with the tag of the reduction.
  template <class F>
  PEERLESS_HD constexpr decltype(auto) visit(F&& f) const {
    return f(Op{});
  }
};
template <>
struct operation_of<any_op> {
  PEERLESS_HD constexpr explicit operation_of(reduce_op chosen) : chosen_(chosen) {}
  template <class F>
  PEERLESS_HD constexpr decltype(auto) visit(F&& f) const {
    switch (chosen_) {
      case reduce_op::prod: return f(op::prod{});
      case reduce_op::max: return f(op::max{});
      case reduce_op::min: return f(op::min{});
      case reduce_op::avg: return f(op::avg{});
      case reduce_op::sum: break;
    }
    return f(op::sum{});
  }

 private:
  reduce_op chosen_;
};

}  // namespace detail

// One step of a fold: `left` is the fold so far (lower ranks), `right` the next rank's value. Integers wrap; a NaN on
// either side wins min and max, and -0 is less than +0.
template <reduction Op, class A>
PEERLESS_HD inline A combine(A left, A right) {
  if constexpr (Op::id == reduce_op::sum || Op::id == reduce_op::avg) {
    return detail::add(left, right);
  } else if constexpr (Op::id == reduce_op::prod) {
    return detail::multiply(left, right);
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

// The last step of a fold over `n_ranks` ranks: an average is their sum divided once, integers towards zero.
template <reduction Op, class A>
PEERLESS_HD inline A conclude(A folded, std::uint32_t n_ranks) {
  if constexpr (Op::id == reduce_op::avg) return detail::divide(folded, static_cast<A>(n_ranks));
  return folded;
}

PEERLESS_END_NAMESPACE
