// Conversions between binary32 and the floating-point formats of one and two bytes, by integer arithmetic on bits: the
// same on every executor, whatever the floating-point mode and the flags of a translation unit.
#pragma once

#include <bit>
#include <cstdint>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

PEERLESS_HD constexpr bool is_nan(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) > 0x7f800000u;
}
PEERLESS_HD constexpr bool is_nan(double value) {
  return (std::bit_cast<std::uint64_t>(value) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}

// A number of an IEEE-like format as binary32; exact. `exponent` and `fraction` are its fields, the exponent's bias is
// 127 - Offset. Not for infinities and NaNs.
template <unsigned FractionBits, std::uint32_t Offset>
PEERLESS_HD constexpr float widen_number(std::uint32_t sign, std::uint32_t exponent, std::uint32_t fraction) {
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + Offset) << 23 | fraction << (23 - FractionBits));
  if (fraction == 0) return std::bit_cast<float>(sign);
  std::uint32_t shifted = Offset + 1;  // a subnormal: normalise it
  while ((fraction >> FractionBits) == 0) {
    fraction <<= 1;
    --shifted;
  }
  const std::uint32_t kept = fraction & ((1u << FractionBits) - 1u);
  return std::bit_cast<float>(sign | shifted << 23 | kept << (23 - FractionBits));
}

// The bits without the sign of |value| in such a format, rounded to nearest even, as if its exponents had no end: what
// lies beyond the largest number gives more than that number's bits. Not for a NaN.
template <unsigned FractionBits, std::uint32_t Offset>
PEERLESS_HD constexpr std::uint32_t round_magnitude(float value) {
  constexpr std::uint32_t dropped = 23 - FractionBits;
  constexpr std::uint32_t least_normal = (Offset + 1) << 23;
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  if (magnitude >= least_normal) {
    const std::uint32_t rounded = magnitude + ((1u << (dropped - 1)) - 1u) + ((magnitude >> dropped) & 1u);
    return (rounded - (Offset << 23)) >> dropped;
  }
  const std::uint32_t shift = dropped + (Offset + 1) - (magnitude >> 23);
  if (shift > 24) return 0;  // below half of the least subnormal
  const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t kept = fraction >> shift;
  const std::uint32_t rest = fraction & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1u) != 0) ? 1u : 0u);
}

PEERLESS_HD constexpr std::uint32_t sign_of(float value) { return std::bit_cast<std::uint32_t>(value) >> 31; }

// Exact; a NaN stays one.
PEERLESS_HD constexpr float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  return widen_number<10, 112>(sign, exponent, fraction);
}
PEERLESS_HD constexpr float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
PEERLESS_HD constexpr float widen_e5m2(std::uint8_t bits) {
  return widen_f16(static_cast<std::uint16_t>(std::uint32_t{bits} << 8));
}
PEERLESS_HD constexpr float widen_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fffffffu);
  return widen_number<3, 120>(sign, (bits >> 3) & 0xfu, bits & 0x7u);
}

// Rounded to nearest even; every NaN becomes the positive one with all fraction bits set. What is too large becomes an
// infinity in the two-byte formats, the largest finite number in those of one byte, infinities included.
PEERLESS_HD constexpr std::uint16_t narrow_f16(float value) {
  if (is_nan(value)) return 0x7fff;
  const std::uint32_t magnitude = round_magnitude<10, 112>(value);
  return static_cast<std::uint16_t>(sign_of(value) << 15 | (magnitude < 0x7c00u ? magnitude : 0x7c00u));
}
PEERLESS_HD constexpr std::uint16_t narrow_bf16(float value) {
  if (is_nan(value)) return 0x7fff;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
PEERLESS_HD constexpr std::uint8_t narrow_e5m2(float value) {
  if (is_nan(value)) return 0x7f;
  const std::uint32_t magnitude = round_magnitude<2, 112>(value);
  return static_cast<std::uint8_t>(sign_of(value) << 7 | (magnitude < 0x7bu ? magnitude : 0x7bu));
}
PEERLESS_HD constexpr std::uint8_t narrow_e4m3(float value) {
  if (is_nan(value)) return 0x7f;
  const std::uint32_t magnitude = round_magnitude<3, 120>(value);
  return static_cast<std::uint8_t>(sign_of(value) << 7 | (magnitude < 0x7eu ? magnitude : 0x7eu));
}

}  // namespace detail

PEERLESS_END_NAMESPACE
