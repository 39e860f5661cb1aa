// One problem to verify and to time, and the step from run-time codes to the types of the library's interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <peerless/core/error.hpp>
#include <peerless/core/types.hpp>

namespace peerless::bench {

// The same on every rank.
struct problem {
  dtype type = dtype::bf16;
  reduce_op operation = reduce_op::sum;
  std::size_t n_elements = 0;
  bool in_place = false;
  std::uint64_t seed = 0;  // of the input data: input_value() in reference.hpp

  std::size_t bytes() const { return n_elements * size_bytes(type); }
};

// Calls f.template operator()<T>() for the element type of `type`; errc::unsupported where there is none.
template <class F>
decltype(auto) with_element(dtype type, F&& f) {
  switch (type) {
    case dtype::f8_e4m3: return std::forward<F>(f).template operator()<f8_e4m3>();
    case dtype::f8_e5m2: return std::forward<F>(f).template operator()<f8_e5m2>();
    case dtype::f16: return std::forward<F>(f).template operator()<f16>();
    case dtype::bf16: return std::forward<F>(f).template operator()<bf16>();
    case dtype::f32: return std::forward<F>(f).template operator()<float>();
    case dtype::f64: return std::forward<F>(f).template operator()<double>();
    case dtype::i32: return std::forward<F>(f).template operator()<std::int32_t>();
    case dtype::u32: return std::forward<F>(f).template operator()<std::uint32_t>();
    case dtype::i8: return std::forward<F>(f).template operator()<std::int8_t>();
    case dtype::u8: return std::forward<F>(f).template operator()<std::uint8_t>();
    case dtype::i64: return std::forward<F>(f).template operator()<std::int64_t>();
    case dtype::u64: return std::forward<F>(f).template operator()<std::uint64_t>();
    default: throw error(errc::unsupported, "no all-reduce of type " + std::string(name_of(type)));
  }
}

// Calls f.template operator()<T, Op>() for the types of `type` and `operation`; errc::unsupported where there is none.
template <class F>
decltype(auto) with_types(dtype type, reduce_op operation, F&& f) {
  return with_element(type, [&]<class T>() -> decltype(auto) {
    switch (operation) {
      case reduce_op::sum: return f.template operator()<T, op::sum>();
      case reduce_op::min: return f.template operator()<T, op::min>();
      case reduce_op::max: return f.template operator()<T, op::max>();
      case reduce_op::prod: return f.template operator()<T, op::prod>();
      case reduce_op::avg: return f.template operator()<T, op::avg>();
      default: throw error(errc::unsupported, "no all-reduce with operation " + std::string(name_of(operation)));
    }
  });
}

}  // namespace peerless::bench
