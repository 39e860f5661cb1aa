// The kernels of protocol `copied`: one small launch a step; see copy_pipeline.hpp for what each is there for.
#pragma once

#include <cstdint>

#include <peerless/protocol/copy_pipeline.hpp>
#include <peerless/protocol/fold.hpp>
#include <peerless/transport/kernel_frame.cuh>

PEERLESS_BEGIN_NAMESPACE

// Argument of the kernels that wait.
struct copy_step_arguments {
  copy_view view;
  std::uint64_t fingerprint;
  std::uint32_t n;  // of the step
  std::uint32_t n_chunks;
  bool copies;  // whether the call has any
};

// Argument of the folds.
template <element T>
struct copy_fold_arguments {
  copy_view view;
  message<T> msg;
  std::uint32_t chunk_bytes;
  std::uint32_t n;
  std::uint32_t n_chunks;
  bool copies;
};

// Threads of the kernels that wait: one for every peer.
inline constexpr unsigned copy_step_threads = 32;
static_assert(copy_step_threads >= max_world_size);
// Most threads of a block that folds.
inline constexpr unsigned copy_fold_most_threads = 512;

// Step hand. One block; the first one enters the call.
template <unsigned Threads>
PEERLESS_HIDDEN __global__ void __launch_bounds__(Threads)
    copy_hand_kernel(const __grid_constant__ copy_step_arguments a) {
  const cuda_memory m;
  const rank_view& ranks = a.view.ranks;
  copy_pipeline<cuda_memory> call(m, a.view);
  bool good = true;
  if (a.n == 0) {
    call_frame f;
    good = enter_call(ranks, a.fingerprint, f, false);
    if (good && threadIdx.x == 0) {
      call.begin(f, a.n_chunks);
      announce_call(m, ranks, f);
    }
    __syncthreads();
  }
  good = good && call.resume();
  if (good && threadIdx.x < ranks.world_size() && threadIdx.x != ranks.rank) good = call.await_room(a.n, threadIdx.x);
  if (!__syncthreads_and(good) && threadIdx.x == 0 && a.copies) call.own_up();
}

// Step announce. One block.
template <unsigned Threads>
PEERLESS_HIDDEN __global__ void __launch_bounds__(Threads)
    copy_announce_kernel(const __grid_constant__ copy_step_arguments a) {
  copy_pipeline<cuda_memory> call(cuda_memory{}, a.view);
  if (threadIdx.x == 0 && call.resume()) call.publish(a.n);
}

// Step await. One block.
template <unsigned Threads>
PEERLESS_HIDDEN __global__ void __launch_bounds__(Threads)
    copy_await_kernel(const __grid_constant__ copy_step_arguments a) {
  copy_pipeline<cuda_memory> call(cuda_memory{}, a.view);
  const std::uint32_t peer = threadIdx.x;
  if (peer >= a.view.ranks.world_size() || peer == a.view.ranks.rank) return;
  if (call.resume()) call.await_chunk(a.n, peer);
}

// Step fold. Any number of blocks of at least max_world_size threads. The first one alone asks whether the chunk is
// sound: reads of one word of host memory by many blocks follow each other, 60 us for 64 of them. What the others fold
// of a chunk that is not is part of a call that has failed.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void __launch_bounds__(copy_fold_most_threads)
    copy_fold_kernel(const __grid_constant__ copy_fold_arguments<T> a) {
  constexpr unsigned at_once = 2;
  const cuda_memory m;
  const rank_view& ranks = a.view.ranks;
  bool good = true;
  if (threadIdx.x < ranks.world_size()) {
    const std::uint32_t peer = threadIdx.x;
    copy_pipeline<cuda_memory> call(m, a.view);
    good = call.resume();
    if (good && peer != ranks.rank && blockIdx.x == 0) {
      call.acknowledge(a.n, a.n + 1 == a.n_chunks, peer);
      if (a.copies) good = call.is_sound(peer);
    }
  }
  if (!__syncthreads_and(good)) return;
  const std::uint64_t chunk = a.chunk_bytes / sizeof(vec16), vectors = a.msg.n_vectors();
  const std::uint64_t first = a.n * chunk, end = first + chunk < vectors ? first + chunk : vectors;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const auto source = [&](std::uint32_t r, std::uint64_t i) {
    return reinterpret_cast<const vec16*>(a.view.scratch_of(r, a.n)) + (i - first);
  };
  for (std::uint64_t i = first + std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += at_once * threads)
    fold_payload<Op, at_once>(m, a.msg, ranks.rank, ranks.world_size(), i, threads, end, source);
}

// Last of all: leaves the call, even one that was refused or failed, since its copies have ended now.
template <unsigned Threads>
PEERLESS_HIDDEN __global__ void __launch_bounds__(Threads)
    copy_leave_kernel(const __grid_constant__ copy_step_arguments a) {
  leave_call(a.view.ranks);
}

PEERLESS_END_NAMESPACE
