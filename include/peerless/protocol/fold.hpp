// Elements in 16-byte vectors: taking them from an array, putting them back, and folding ranks' vectors together.
#pragma once

#include <bit>
#include <cstring>

#include <peerless/core/numerics.hpp>
#include <peerless/protocol/call.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

template <element T>
inline constexpr unsigned lanes_of = 16 / sizeof(T);

template <element T>
PEERLESS_HD inline T lane(const vec16& v, unsigned i) {
  if constexpr (sizeof(T) == 1) {
    return std::bit_cast<T>(static_cast<std::uint8_t>(v.word[i / 4] >> (8 * (i & 3u))));
  } else if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(static_cast<std::uint16_t>(v.word[i / 2] >> (16 * (i & 1u))));
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(v.word[i]);
  } else {
    return std::bit_cast<T>(v.word[2 * i] | std::uint64_t{v.word[2 * i + 1]} << 32);
  }
}

// Puts an element into a lane that is still zero.
template <element T>
PEERLESS_HD inline void set_lane(vec16& v, unsigned i, T value) {
  if constexpr (sizeof(T) == 1) {
    v.word[i / 4] |= std::uint32_t{std::bit_cast<std::uint8_t>(value)} << (8 * (i & 3u));
  } else if constexpr (sizeof(T) == 2) {
    v.word[i / 2] |= std::uint32_t{std::bit_cast<std::uint16_t>(value)} << (16 * (i & 1u));
  } else if constexpr (sizeof(T) == 4) {
    v.word[i] = std::bit_cast<std::uint32_t>(value);
  } else {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    v.word[2 * i] = static_cast<std::uint32_t>(bits);
    v.word[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
}

PEERLESS_HD inline bool is_aligned16(const void* p) { return (reinterpret_cast<std::uintptr_t>(p) & 15u) == 0; }

}  // namespace detail

// Vector `index` of the input; lanes behind the last element are zero.
template <element T>
PEERLESS_HD inline vec16 load_vector(const message<T>& msg, std::uint64_t index) {
  constexpr unsigned lanes = detail::lanes_of<T>;
  const T* from = msg.in + index * lanes;
  vec16 v{};
  if ((index + 1) * lanes <= msg.n_elements) {
#if defined(__CUDA_ARCH__)
    if (detail::is_aligned16(from)) return *reinterpret_cast<const vec16*>(from);
#else
    std::memcpy(&v, from, 16);
    return v;
#endif
  }
  for (unsigned i = 0; i < lanes; ++i) {
    if (index * lanes + i < msg.n_elements) detail::set_lane<T>(v, i, from[i]);
  }
  return v;
}

// Stores vector `index` of the output, the elements that exist only.
template <element T>
PEERLESS_HD inline void store_vector(const message<T>& msg, std::uint64_t index, const vec16& v) {
  constexpr unsigned lanes = detail::lanes_of<T>;
  T* to = msg.out + index * lanes;
  if ((index + 1) * lanes <= msg.n_elements) {
#if defined(__CUDA_ARCH__)
    if (detail::is_aligned16(to)) {
      *reinterpret_cast<vec16*>(to) = v;
      return;
    }
#else
    std::memcpy(to, &v, 16);
    return;
#endif
  }
  for (unsigned i = 0; i < lanes; ++i) {
    if (index * lanes + i < msg.n_elements) to[i] = detail::lane<T>(v, i);
  }
}

// A fold of vectors in rank order: add() every rank's vector from rank 0 up, then take result().
template <element T, reduction Op>
class vector_fold {
 public:
  // `operation` is that of the call, where Op stands for several.
  PEERLESS_HD explicit vector_fold(reduce_op operation = Op::id) : operation_(operation) {}
  PEERLESS_HD explicit vector_fold(const message<T>& msg) : operation_(msg.operation) {}

  PEERLESS_HD void add(const vec16& v) {
    accumulator_of<T> values[lanes];
    PEERLESS_UNROLL
    for (unsigned i = 0; i < lanes; ++i) values[i] = to_accumulator(detail::lane<T>(v, i));
    if (n_ranks_ != 0) {
      operation_.visit([&](auto tag) {
        PEERLESS_UNROLL
        for (unsigned i = 0; i < lanes; ++i) sum_[i] = combine<decltype(tag)>(sum_[i], values[i]);
      });
      detail::end_step(sum_);
    } else {
      PEERLESS_UNROLL
      for (unsigned i = 0; i < lanes; ++i) sum_[i] = values[i];
    }
    ++n_ranks_;
  }
  // The last step over as many ranks as were added, and one rounding to nearest even, a lane; NaNs are canonical.
  PEERLESS_HD vec16 result() const {
    accumulator_of<T> folded[lanes];
    operation_.visit([&](auto tag) {
      PEERLESS_UNROLL
      for (unsigned i = 0; i < lanes; ++i) folded[i] = conclude<decltype(tag)>(sum_[i], n_ranks_);
    });
    vec16 v{};
    PEERLESS_UNROLL
    for (unsigned i = 0; i < lanes; ++i) detail::set_lane<T>(v, i, from_accumulator<T>(folded[i]));
    return v;
  }

 private:
  static constexpr unsigned lanes = detail::lanes_of<T>;
  accumulator_of<T> sum_[lanes] = {};
  std::uint32_t n_ranks_ = 0;
  [[no_unique_address]] detail::operation_of<Op> operation_;
};

// Folds the vectors index, index + stride, ... below `end`, at most Vectors of them, and gives each result to
// `sink(i, vector)`. The own rank's come from the message, rank r's vector i from `source(r, i)`, which a flag that
// this thread's group has acquired covers. Loads of several ranks and vectors are in flight together: a read through
// PCIe takes longer than everything else.
PEERLESS_EXEC_CHECK_DISABLE
template <reduction Op, unsigned Vectors, element T, memory_policy Memory, class Source, class Sink>
PEERLESS_HD inline void fold_payload(Memory m, const message<T>& msg, std::uint32_t rank, std::uint32_t world_size,
                                     std::uint64_t index, std::uint64_t stride, std::uint64_t end, const Source& source,
                                     const Sink& sink) {
  constexpr std::uint32_t ranks_at_once = 2;
  vector_fold<T, Op> sums[Vectors];
  PEERLESS_UNROLL
  for (unsigned n = 0; n < Vectors; ++n) sums[n] = vector_fold<T, Op>(msg);
  for (std::uint32_t first = 0; first < world_size; first += ranks_at_once) {
    vec16 theirs[ranks_at_once][Vectors] = {};
    PEERLESS_UNROLL
    for (std::uint32_t j = 0; j < ranks_at_once; ++j) {
      const std::uint32_t r = first + j;
      PEERLESS_UNROLL
      for (unsigned n = 0; n < Vectors; ++n) {
        const std::uint64_t i = index + n * stride;
        if (r < world_size && i < end) theirs[j][n] = r == rank ? load_vector(msg, i) : m.load16_payload(source(r, i));
      }
    }
    PEERLESS_UNROLL
    for (std::uint32_t j = 0; j < ranks_at_once; ++j) {
      PEERLESS_UNROLL
      for (unsigned n = 0; n < Vectors; ++n) {
        if (first + j < world_size && index + n * stride < end) sums[n].add(theirs[j][n]);
      }
    }
  }
  PEERLESS_UNROLL
  for (unsigned n = 0; n < Vectors; ++n) {
    if (index + n * stride < end) sink(index + n * stride, sums[n].result());
  }
}

// The same, into the output.
PEERLESS_EXEC_CHECK_DISABLE
template <reduction Op, unsigned Vectors, element T, memory_policy Memory, class Source>
PEERLESS_HD inline void fold_payload(Memory m, const message<T>& msg, std::uint32_t rank, std::uint32_t world_size,
                                     std::uint64_t index, std::uint64_t stride, std::uint64_t end,
                                     const Source& source) {
  fold_payload<Op, Vectors>(m, msg, rank, world_size, index, stride, end, source,
                            [&msg](std::uint64_t i, const vec16& v) { store_vector(msg, i, v); });
}

PEERLESS_END_NAMESPACE
