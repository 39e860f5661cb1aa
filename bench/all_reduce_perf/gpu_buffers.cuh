// Input, output and the judge of the output, on one GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "gpu_support.cuh"
#include "problem.hpp"
#include "reference.hpp"

namespace peerless::bench {

// Any launch shape. Writes the input of `rank`.
template <element T>
PEERLESS_HIDDEN __global__ void fill_kernel(T* to, std::size_t n_elements, std::uint64_t seed, int rank) {
  const std::size_t n_threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n_elements; i += n_threads) {
    to[i] = input_value<T>(seed, rank, i);
  }
}

// Any launch shape. Adds the number of wrong elements to *n_wrong.
template <element T, reduction Op>
PEERLESS_HIDDEN __global__ void judge_kernel(const T* got, std::size_t n_elements, std::uint64_t seed, int world,
                                             exactness rule, unsigned long long* n_wrong) {
  const std::size_t n_threads = std::size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n_elements; i += n_threads) {
    if (!is_right<T, Op>(rule, got[i], seed, world, i)) ++mine;
  }
  if (mine > 0) atomicAdd(n_wrong, mine);
}

// One a rank, shared by its arms. All members enqueue on `stream` and return.
class gpu_buffers {
 public:
  gpu_buffers(int rank, int world, std::size_t max_bytes)
      : rank_(rank),
        world_(world),
        in_(make_device_memory(std::max<std::size_t>(max_bytes, 16))),
        out_(make_device_memory(std::max<std::size_t>(max_bytes, 16))),
        counter_(make_device_memory(sizeof(unsigned long long))) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, sizeof(unsigned long long)), "pinned memory for a counter");
    n_wrong_ = pinned_memory(memory);
  }

  // What the all-reduce of `p` reads, and writes.
  void* input(const problem& p) const { return p.in_place ? out_.get() : in_.get(); }
  void* output() const { return out_.get(); }

  void prepare(const problem& p, cudaStream_t stream) {
    if (!p.in_place) check_cuda(cudaMemsetAsync(out_.get(), poison_byte, p.bytes(), stream), "poisoning the output");
    with_element(p.type, [&]<class T>() {
      fill_kernel<T><<<n_blocks(p), n_threads, 0, stream>>>(static_cast<T*>(input(p)), p.n_elements, p.seed, rank_);
    });
    check_cuda(cudaGetLastError(), "making input data");
  }

  // n_wrong() has the answer once the stream has come to here.
  void judge(const problem& p, exactness rule, cudaStream_t stream) {
    auto* counter = static_cast<unsigned long long*>(counter_.get());
    check_cuda(cudaMemsetAsync(counter, 0, sizeof(*counter), stream), "clearing a counter");
    with_types(p.type, p.operation, [&]<class T, class Op>() {
      judge_kernel<T, Op><<<n_blocks(p), n_threads, 0, stream>>>(static_cast<const T*>(out_.get()), p.n_elements,
                                                                 p.seed, world_, rule, counter);
    });
    check_cuda(cudaGetLastError(), "judging the output");
    check_cuda(cudaMemcpyAsync(n_wrong_.get(), counter, sizeof(*counter), cudaMemcpyDeviceToHost, stream),
               "reading a counter");
  }

  std::uint64_t n_wrong() const { return *static_cast<const unsigned long long*>(n_wrong_.get()); }

 private:
  static constexpr unsigned n_threads = 256;
  static unsigned n_blocks(const problem& p) {
    return static_cast<unsigned>(std::clamp<std::size_t>(p.n_elements / (4 * n_threads), 1, 2048));
  }

  int rank_, world_;
  device_memory in_, out_, counter_;
  pinned_memory n_wrong_;
};

}  // namespace peerless::bench
