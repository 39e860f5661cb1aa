// The kernels of staging through host memory: one launch is one call. Which warps carry out which duty of a protocol.
#pragma once

#include <cstdint>

#include <peerless/protocol/bulk_ring.hpp>
#include <peerless/protocol/flagged_one_shot.hpp>
#include <peerless/protocol/sentinel_one_shot.hpp>
#include <peerless/protocol/two_shot.hpp>
#include <peerless/transport/kernel_frame.cuh>

PEERLESS_BEGIN_NAMESPACE

// Argument of every kernel.
template <element T>
struct call_arguments {
  rank_view view;
  message<T> msg;
  std::uint64_t fingerprint;
  std::uint32_t chunk_bytes;        // bulk and two-shot only
  std::uint32_t poll_delay_cycles;  // sentinel only
  bool clear_early;                 // sentinel only
};

namespace detail {

// One warp as a group.
struct warp_group {
  __device__ unsigned thread_rank() const { return threadIdx.x & 31u; }
  __device__ unsigned size() const { return 32; }
  __device__ void sync() const { __syncwarp(); }
  __device__ bool all(bool vote) const { return __all_sync(0xffffffffu, vote) != 0; }
};

// The data threads of all blocks; has no barrier, so it serves steps that need none.
struct data_threads {
  unsigned rank;
  unsigned count;
  __device__ unsigned thread_rank() const { return rank; }
  __device__ unsigned size() const { return count; }
  __device__ void sync() const {}
  __device__ bool all(bool vote) const { return vote; }
};

// The multiprocessor's clock; wraps.
__device__ inline std::uint32_t clock_cycles() {
  std::uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}

}  // namespace detail

// Threads of a sentinel block beside its data threads: three warps, so that no duty stands behind another. (In one warp
// the duties run one after the other, which was measured to cost 1.2 us.)
inline constexpr unsigned sentinel_duty_threads = 96;

// Most data threads of a sentinel block; more would leave a thread too few registers.
inline constexpr unsigned sentinel_most_data_threads = 384;

// Sentinel one-shot. Blocks of data_threads + sentinel_duty_threads threads.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void __launch_bounds__(sentinel_most_data_threads + sentinel_duty_threads)
    sentinel_kernel(const __grid_constant__ call_arguments<T> a) {
  await_earlier_kernels();
  admit_next_kernel();
  const unsigned n_data = blockDim.x - sentinel_duty_threads;
  const bool is_data = threadIdx.x < n_data;
  const detail::data_threads all{blockIdx.x * n_data + threadIdx.x, gridDim.x * n_data};
  const std::uint64_t vectors = a.msg.n_vectors();
  const cuda_memory m;
  using exchange = sentinel_one_shot<T, Op, cuda_memory>;
  // In flight while the block enters.
  vec16 own{};
  if (is_data && all.rank < vectors) own = load_vector(a.msg, all.rank);
  const auto in_use = exchange::load_extents(m, a.view);
  call_frame f;
  if (!enter_call(a.view, a.fingerprint, f)) return;
  const exchange call(m, a.view, f, a.msg);
  if (is_data) {
    // All stores before the first poll, so that both directions are busy.
    if (all.rank < vectors) call.post(all.rank, own);
    for (std::uint64_t i = all.rank + all.count; i < vectors; i += all.count) call.post(i, call.load(i));
    const std::uint32_t posted = detail::clock_cycles();
    if (a.clear_early) call.clear(all, in_use);
    while (detail::clock_cycles() - posted < a.poll_delay_cycles) {
    }
    for (std::uint64_t i = all.rank; i < vectors; i += all.count) {
      if (i != all.rank) own = call.load(i);
      if (!call.fold(i, own, call.look(i, own))) break;
    }
    if (!a.clear_early) call.clear(all, in_use);
  } else if (blockIdx.x == 0) {
    const unsigned duty = (threadIdx.x - n_data) / 32;
    const detail::warp_group warp;
    if (duty == 0 && warp.thread_rank() == 0) {
      call.release_entry();
      announce_call(m, a.view, f);
    }
    if (duty == 1) call.acquire_entries(warp);
    if (duty == 2) {
      if (warp.thread_rank() == 0) call.post_header();
      call.await_headers(warp);
    }
  }
  leave_call(a.view);
}

// Flagged one-shot. Blocks of any multiple of 32 threads, at least the world size.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void __launch_bounds__(1024) flagged_kernel(const __grid_constant__ call_arguments<T> a) {
  await_earlier_kernels();
  admit_next_kernel();
  call_frame f;
  if (!enter_call(a.view, a.fingerprint, f)) return;
  const cuda_memory m;
  if (blockIdx.x == 0 && threadIdx.x == blockDim.x - 1) announce_call(m, a.view, f);
  const flagged_one_shot<T, Op, cuda_memory> call(m, a.view, f, a.msg, blockIdx.x, gridDim.x);
  const block_group block;
  call.post(block);
  if (call.await(block)) call.fold(block);
  leave_call(a.view);
}

// Warps of a bulk block: 8 write, 1 publishes, 8 read, 1 acknowledges.
inline constexpr unsigned bulk_role_threads = 256;
inline constexpr unsigned bulk_block_threads = 2 * (bulk_role_threads + 32);

// Bulk ring. Blocks of bulk_block_threads threads.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void __launch_bounds__(bulk_block_threads)
    bulk_kernel(const __grid_constant__ call_arguments<T> a) {
  using writers = warp_range_group<1, 0, bulk_role_threads>;
  using handoff = warp_range_group<2, 0, bulk_role_threads + 32>;
  using readers = warp_range_group<3, bulk_role_threads + 32, bulk_role_threads>;
  using receipt = warp_range_group<4, bulk_role_threads + 32, bulk_role_threads + 32>;
  await_earlier_kernels();
  admit_next_kernel();
  __shared__ std::uint32_t posted;
  if (threadIdx.x == 0) posted = 0;
  call_frame f;
  if (!enter_call(a.view, a.fingerprint, f)) return;
  const cuda_memory m;
  const bulk_ring<T, Op, cuda_memory> ring(m, a.view, f, a.msg, blockIdx.x, gridDim.x, a.chunk_bytes, &posted);
  if (threadIdx.x < bulk_role_threads) {
    ring.run_writer(writers{}, handoff{});
  } else if (threadIdx.x < bulk_role_threads + 32) {
    const bool speaks = threadIdx.x == bulk_role_threads;
    if (speaks && blockIdx.x == 0) announce_call(m, a.view, f);
    ring.run_publisher(handoff{}, speaks);
  } else if (threadIdx.x < 2 * bulk_role_threads + 32) {
    ring.run_reader(readers{}, receipt{});
  } else {
    ring.run_acknowledger(detail::warp_group{}, receipt{});
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.finish();
  leave_call(a.view);
}

// Warps of a two-shot block: 6 write, 1 publishes, 6 reduce, 1 publishes results, 6 gather.
inline constexpr unsigned two_shot_role_threads = 192;
inline constexpr unsigned two_shot_block_threads = 3 * two_shot_role_threads + 64;

// Two-shot. Blocks of two_shot_block_threads threads.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void __launch_bounds__(two_shot_block_threads)
    two_shot_kernel(const __grid_constant__ call_arguments<T> a) {
  constexpr unsigned first_reducer = two_shot_role_threads + 32, first_gatherer = 2 * first_reducer;
  using writers = warp_range_group<1, 0, two_shot_role_threads>;
  using handoff = warp_range_group<2, 0, first_reducer>;
  using reducers = warp_range_group<3, first_reducer, two_shot_role_threads>;
  using receipt = warp_range_group<4, first_reducer, first_reducer>;
  using gatherers = warp_range_group<5, first_gatherer, two_shot_role_threads>;
  await_earlier_kernels();
  admit_next_kernel();
  __shared__ std::uint32_t gathered;
  if (threadIdx.x == 0) gathered = 0;
  call_frame f;
  if (!enter_call(a.view, a.fingerprint, f)) return;
  const cuda_memory m;
  const two_shot<T, Op, cuda_memory> exchange(m, a.view, f, a.msg, blockIdx.x, gridDim.x, a.chunk_bytes, &gathered);
  if (threadIdx.x < two_shot_role_threads) {
    exchange.run_writer(writers{}, handoff{});
  } else if (threadIdx.x < first_reducer) {
    const bool speaks = threadIdx.x == two_shot_role_threads;
    if (speaks && blockIdx.x == 0) announce_call(m, a.view, f);
    exchange.run_publisher(handoff{}, speaks);
  } else if (threadIdx.x < first_reducer + two_shot_role_threads) {
    exchange.run_reducer(reducers{}, receipt{});
  } else if (threadIdx.x < first_gatherer) {
    exchange.run_result_publisher(receipt{}, threadIdx.x == first_gatherer - 32);
  } else {
    exchange.run_gatherer(gatherers{});
  }
  __syncthreads();
  if (threadIdx.x == 0) exchange.finish();
  leave_call(a.view);
}

PEERLESS_END_NAMESPACE
