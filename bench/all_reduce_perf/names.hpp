// Names of types and operations on the command line, nccl-tests' and our own.
#pragma once

#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <peerless/core/types.hpp>

namespace peerless::bench {

// What this program can measure, in the order of "all".
inline constexpr dtype all_types[] = {dtype::f16, dtype::bf16, dtype::f32, dtype::f64, dtype::i32, dtype::u32};
inline constexpr reduce_op all_operations[] = {reduce_op::sum, reduce_op::min, reduce_op::max};

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
      {"half", dtype::f16},      {"f16", dtype::f16},     {"fp16", dtype::f16},   {"float16", dtype::f16},
      {"bfloat16", dtype::bf16}, {"bf16", dtype::bf16},   {"float", dtype::f32},  {"f32", dtype::f32},
      {"fp32", dtype::f32},      {"float32", dtype::f32}, {"double", dtype::f64}, {"f64", dtype::f64},
      {"float64", dtype::f64},   {"int32", dtype::i32},   {"i32", dtype::i32},    {"int", dtype::i32},
      {"uint32", dtype::u32},    {"u32", dtype::u32},
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
          "' is not supported; use half (f16), bfloat16 (bf16), float, double, int32, uint32 or all");
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
      throw std::invalid_argument("operation '" + part + "' is not supported; use sum, min, max or all");
    }
  }
  return operations;
}

}  // namespace peerless::bench
