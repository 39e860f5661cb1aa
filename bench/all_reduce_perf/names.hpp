// Names of types and operations on the command line, nccl-tests' and our own.
#pragma once

#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <peerless/core/types.hpp>

namespace peerless::bench {

// In the order of "all".
inline constexpr dtype all_types[] = {dtype::f8_e4m3, dtype::f8_e5m2, dtype::f16, dtype::bf16, dtype::f32, dtype::f64,
                                      dtype::i8,      dtype::u8,      dtype::i32, dtype::u32,  dtype::i64, dtype::u64};
inline constexpr reduce_op all_operations[] = {reduce_op::sum, reduce_op::prod, reduce_op::min, reduce_op::max,
                                               reduce_op::avg};

// The parts of "a,b,c"; empty parts are kept.
inline std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = list.find(',');
    parts.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

// Reads "bf16", "half,float", "all". Throws std::invalid_argument with the legal names.
inline std::vector<dtype> parse_types(std::string_view list) {
  static constexpr struct {
    std::string_view name;
    dtype type;
  } names[] = {
      {"half", dtype::f16},       {"f16", dtype::f16},
      {"fp16", dtype::f16},       {"float16", dtype::f16},
      {"bfloat16", dtype::bf16},  {"bf16", dtype::bf16},
      {"float", dtype::f32},      {"f32", dtype::f32},
      {"fp32", dtype::f32},       {"float32", dtype::f32},
      {"double", dtype::f64},     {"f64", dtype::f64},
      {"float64", dtype::f64},    {"int32", dtype::i32},
      {"i32", dtype::i32},        {"int", dtype::i32},
      {"uint32", dtype::u32},     {"u32", dtype::u32},
      {"int8", dtype::i8},        {"i8", dtype::i8},
      {"uint8", dtype::u8},       {"u8", dtype::u8},
      {"int64", dtype::i64},      {"i64", dtype::i64},
      {"uint64", dtype::u64},     {"u64", dtype::u64},
      {"f8e4m3", dtype::f8_e4m3}, {"fp8_e4m3", dtype::f8_e4m3},
      {"f8e5m2", dtype::f8_e5m2}, {"fp8_e5m2", dtype::f8_e5m2},
  };
  std::vector<dtype> types;
  for (const std::string& part : split_list(list)) {
    const std::size_t before = types.size();
    if (part == "all") types.insert(types.end(), std::begin(all_types), std::end(all_types));
    for (const auto& known : names) {
      if (known.name == part) types.push_back(known.type);
    }
    if (types.size() == before) {
      throw std::invalid_argument(
          "data type '" + part +
          "' is not known; use half (f16), bfloat16 (bf16), float, double, f8e4m3, f8e5m2, int8, uint8, int32, uint32, "
          "int64, uint64 or all");
    }
  }
  return types;
}

// Reads "sum", "min,max", "all". Throws std::invalid_argument with the legal names.
inline std::vector<reduce_op> parse_operations(std::string_view list) {
  std::vector<reduce_op> operations;
  for (const std::string& part : split_list(list)) {
    const std::size_t before = operations.size();
    for (const reduce_op known : all_operations) {
      if (part == "all" || part == name_of(known)) operations.push_back(known);
    }
    if (operations.size() == before) {
      throw std::invalid_argument("operation '" + part + "' is not known; use sum, prod, min, max, avg or all");
    }
  }
  return operations;
}

// Reads "two-shot". Throws std::invalid_argument with the legal names.
inline protocol_id parse_protocol(std::string_view name) {
  std::string legal;
  for (int i = 1; i <= protocol_count; ++i) {
    const auto known = static_cast<protocol_id>(i);
    if (known == protocol_id::copied) continue;  // has a transport's name of its own, shm-copied
    if (name == name_of(known)) return known;
    legal += (legal.empty() ? "" : ", ") + std::string(name_of(known));
  }
  throw std::invalid_argument("protocol '" + std::string(name) + "' is not known; use " + legal);
}

}  // namespace peerless::bench
