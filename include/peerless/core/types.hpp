// Element types, their names and sizes, and the reduction operations. No CUDA header is needed: the floating-point
// types of one and two bytes are own structs that have the layout of the vendor's.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

// IEEE binary16, as bits. Layout-compatible with __half.
struct f16 {
  std::uint16_t bits;
  friend constexpr bool operator==(f16, f16) = default;
};

// bfloat16 (the upper half of a binary32), as bits. Layout-compatible with __nv_bfloat16.
struct bf16 {
  std::uint16_t bits;
  friend constexpr bool operator==(bf16, bf16) = default;
};

// The 8-bit format with 4 exponent and 3 mantissa bits (OCP E4M3, "fn"), as bits: no infinity, largest value 448, NaN
// 0x7f and 0xff. Layout-compatible with __nv_fp8_e4m3.
struct f8_e4m3 {
  std::uint8_t bits;
  friend constexpr bool operator==(f8_e4m3, f8_e4m3) = default;
};

// The 8-bit format with 5 exponent and 2 mantissa bits (OCP E5M2: the upper half of a binary16), as bits; largest
// finite value 57344. Layout-compatible with __nv_fp8_e5m2.
struct f8_e5m2 {
  std::uint8_t bits;
  friend constexpr bool operator==(f8_e5m2, f8_e5m2) = default;
};

// Four 32-bit words: what one 16-byte access moves. The protocols see every message as a sequence of these.
struct alignas(16) vec16 {
  std::uint32_t word[4];
};

// Element types at run time. The values are those of ncclDataType_t, so that codes can be passed through.
enum class dtype : std::uint8_t {
  i8 = 0,
  u8 = 1,
  i32 = 2,
  u32 = 3,
  i64 = 4,
  u64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
  f8_e4m3 = 10,
  f8_e5m2 = 11
};

// Reductions at run time. The values are those of ncclRedOp_t.
enum class reduce_op : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

// Reductions at compile time: an empty tag a call, as in all_reduce(in, out, op::sum{}, stream).
namespace op {
struct sum {
  static constexpr reduce_op id = reduce_op::sum;
};
struct prod {
  static constexpr reduce_op id = reduce_op::prod;
};
struct max {
  static constexpr reduce_op id = reduce_op::max;
};
struct min {
  static constexpr reduce_op id = reduce_op::min;
};
struct avg {
  static constexpr reduce_op id = reduce_op::avg;
};
}  // namespace op

namespace detail {
// Facts of an element type: its run-time code, and the type in which ranks are folded.
template <dtype Id, class Accumulator>
struct element_facts {
  static constexpr dtype id = Id;
  using accumulator = Accumulator;
};
template <class T>
struct element_traits;
template <>
struct element_traits<f8_e4m3> : element_facts<dtype::f8_e4m3, float> {};
template <>
struct element_traits<f8_e5m2> : element_facts<dtype::f8_e5m2, float> {};
template <>
struct element_traits<f16> : element_facts<dtype::f16, float> {};
template <>
struct element_traits<bf16> : element_facts<dtype::bf16, float> {};
template <>
struct element_traits<float> : element_facts<dtype::f32, float> {};
template <>
struct element_traits<double> : element_facts<dtype::f64, double> {};
template <>
struct element_traits<std::int8_t> : element_facts<dtype::i8, std::int8_t> {};
template <>
struct element_traits<std::uint8_t> : element_facts<dtype::u8, std::uint8_t> {};
template <>
struct element_traits<std::int32_t> : element_facts<dtype::i32, std::int32_t> {};
template <>
struct element_traits<std::uint32_t> : element_facts<dtype::u32, std::uint32_t> {};
template <>
struct element_traits<std::int64_t> : element_facts<dtype::i64, std::int64_t> {};
template <>
struct element_traits<std::uint64_t> : element_facts<dtype::u64, std::uint64_t> {};
}  // namespace detail

// A type whose arrays can be reduced.
template <class T>
concept element = requires { detail::element_traits<T>::id; } && std::is_trivially_copyable_v<T>;

// A tag type that names a reduction.
template <class Op>
concept reduction = std::is_empty_v<Op> && requires {
  { Op::id } -> std::convertible_to<reduce_op>;
};

template <element T>
inline constexpr dtype dtype_of = detail::element_traits<T>::id;

template <element T>
using accumulator_of = typename detail::element_traits<T>::accumulator;

// Largest number of ranks of one communicator.
inline constexpr int max_world_size = 16;

// The exchange protocols. The values travel in fingerprints between ranks: append, never renumber.
enum class protocol_id : std::uint8_t {
  sentinel = 1,  // one-shot, data words are their own flags; small messages of types with a sentinel
  flagged = 2,   // one-shot, data then a release flag a block; every type
  bulk = 3,      // bounded ring in one kernel; messages larger than the slots
  copied = 4,    // chunks by copy engines both ways; the largest messages
  two_shot = 5,  // reduce-scatter and all-gather through bounded rings in one kernel; three ranks or more
};
inline constexpr int protocol_count = 5;

constexpr std::string_view name_of(protocol_id protocol) {
  switch (protocol) {
    case protocol_id::sentinel: return "sentinel";
    case protocol_id::flagged: return "flagged";
    case protocol_id::bulk: return "bulk";
    case protocol_id::copied: return "copied";
    case protocol_id::two_shot: return "two-shot";
  }
  return "?";
}

// True for the types in which an aligned 4-byte word of all ones is a NaN that no arithmetic produces, so that the
// word can stand for "not arrived". Never f64 (the low word of 1 - 2^-53 is all ones) and never an integer.
constexpr bool has_sentinel(dtype type) {
  switch (type) {
    case dtype::f16:
    case dtype::bf16:
    case dtype::f32:
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return true;
    default: return false;
  }
}

// Bytes of one element; 0 for a value outside the enumeration.
constexpr std::size_t size_bytes(dtype type) {
  switch (type) {
    case dtype::i8:
    case dtype::u8:
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return 1;
    case dtype::f16:
    case dtype::bf16: return 2;
    case dtype::i32:
    case dtype::u32:
    case dtype::f32: return 4;
    case dtype::i64:
    case dtype::u64:
    case dtype::f64: return 8;
  }
  return 0;
}

// The name as nccl-tests prints it; "?" for a value outside the enumeration.
constexpr std::string_view name_of(dtype type) {
  switch (type) {
    case dtype::i8: return "int8";
    case dtype::u8: return "uint8";
    case dtype::i32: return "int32";
    case dtype::u32: return "uint32";
    case dtype::i64: return "int64";
    case dtype::u64: return "uint64";
    case dtype::f16: return "half";
    case dtype::f32: return "float";
    case dtype::f64: return "double";
    case dtype::bf16: return "bfloat16";
    case dtype::f8_e4m3: return "f8e4m3";
    case dtype::f8_e5m2: return "f8e5m2";
  }
  return "?";
}

constexpr std::string_view name_of(reduce_op operation) {
  switch (operation) {
    case reduce_op::sum: return "sum";
    case reduce_op::prod: return "prod";
    case reduce_op::max: return "max";
    case reduce_op::min: return "min";
    case reduce_op::avg: return "avg";
  }
  return "?";
}

PEERLESS_END_NAMESPACE
