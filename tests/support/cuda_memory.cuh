// Memory, a stream and graphs of one GPU for tests of CUDA backends. Everything is allocated before the communicator
// exists: allocation and release may synchronise a device on which peers' kernels wait for this rank.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <peerless/core/error.hpp>

#include "cuda_arena.cuh"
#include "cuda_driver.cuh"
#include "cuda_place.hpp"

namespace peerless::test {

// Rank r works on GPU r mod the number of GPUs, at place_of_this_rank.
class cuda_memory {
 public:
  static constexpr bool captures = true;
  static constexpr bool on_device = true;

  cuda_memory(int rank, std::size_t capacity_bytes) {
    int devices = 0;
    auto const counted = cudaGetDeviceCount(&devices);
    if (counted != cudaSuccess || devices == 0) {
      cudaGetLastError();
      devices = 0;
    }
    if (devices == 0) return;  // the communicator is to say so
    require_cuda(cudaSetDevice(rank % devices), "cudaSetDevice");
    context_.emplace(place_.multiprocessors);
    make_stream();
    arena_.emplace(place_.memory, capacity_bytes, stream_);
    require_cuda(cudaMallocHost(&staging_, capacity_bytes), "cudaMallocHost of the staging memory");
    require_cuda(cudaMallocHost(&fetched_, capacity_bytes), "cudaMallocHost of the fetched memory");
  }
  cuda_memory(const cuda_memory&) = delete;
  cuda_memory& operator=(const cuda_memory&) = delete;
  ~cuda_memory() {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    cudaFreeHost(fetched_);
    cudaFreeHost(staging_);
    arena_.reset();
    if (owns_stream_) cudaStreamDestroy(stream_);
  }

  cudaStream_t stream() const { return stream_; }
  std::byte* arena() { return arena_ ? arena_->get() : nullptr; }
  std::byte* staging() { return static_cast<std::byte*>(staging_); }
  void upload(std::size_t bytes) {
    require_cuda(cudaMemcpyAsync(arena(), staging_, bytes, cudaMemcpyDefault, stream_), "upload");
  }
  // After the communicator's bounded synchronize(): what remains is a copy.
  const std::byte* fetch(std::size_t bytes) {
    require_cuda(cudaMemcpyAsync(fetched_, arena(), bytes, cudaMemcpyDefault, stream_), "download");
    require_cuda(cudaStreamSynchronize(stream_), "download");
    return static_cast<const std::byte*>(fetched_);
  }

  int capture(const std::function<void()>& enqueue) {
    cudaGraph_t graph = nullptr;
    require_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of capture");
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    require_cuda(cudaStreamEndCapture(stream_, &graph), "end of capture");
    cudaGraphExec_t executable = nullptr;
    auto const made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    require_cuda(made, "cudaGraphInstantiate");
    require_cuda(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    graphs_.push_back(executable);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) {
    require_cuda(cudaGraphLaunch(graphs_[static_cast<std::size_t>(graph)], stream_), "cudaGraphLaunch");
  }

 private:
  void make_stream() {
    switch (place_.stream) {
      case stream_kind::null: return;
      case stream_kind::legacy: stream_ = cudaStreamLegacy; return;
      case stream_kind::of_the_thread: stream_ = cudaStreamPerThread; return;
      case stream_kind::blocking: require_cuda(cudaStreamCreate(&stream_), "cudaStreamCreate"); break;
      case stream_kind::own:
        if (*context_) {
          stream_ = context_->make_stream();
        } else {
          require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        }
        break;
    }
    owns_stream_ = true;
  }

  cuda_place place_ = place_of_this_rank;
  std::optional<green_context> context_;
  cudaStream_t stream_ = nullptr;
  bool owns_stream_ = false;
  std::optional<cuda_arena> arena_;
  void* staging_ = nullptr;
  void* fetched_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace peerless::test
