// Owners of CUDA objects, and errors.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <peerless/core/error.hpp>

namespace peerless::bench {

inline void check_cuda(cudaError_t result, const char* what, source_location where = source_location::current()) {
  if (result == cudaSuccess) return;
  const errc code = result == cudaErrorMemoryAllocation ? errc::out_of_memory : errc::cuda_error;
  throw error(code, std::string(what) + ": " + cudaGetErrorString(result), -1, static_cast<int>(result), where);
}

// Move-only owner of one handle. Errors of releasing are dropped: the process ends soon.
template <class Handle, cudaError_t (*Release)(Handle)>
class cuda_owner {
 public:
  cuda_owner() = default;
  explicit cuda_owner(Handle handle) : handle_(handle) {}
  cuda_owner(cuda_owner&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  cuda_owner& operator=(cuda_owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~cuda_owner() {
    if (handle_ != Handle{}) (void)Release(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

using device_memory = cuda_owner<void*, cudaFree>;
using pinned_memory = cuda_owner<void*, cudaFreeHost>;
using cuda_event = cuda_owner<cudaEvent_t, cudaEventDestroy>;
using cuda_stream = cuda_owner<cudaStream_t, cudaStreamDestroy>;
using cuda_graph = cuda_owner<cudaGraph_t, cudaGraphDestroy>;
using executable_graph = cuda_owner<cudaGraphExec_t, cudaGraphExecDestroy>;

inline device_memory make_device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "device memory for a buffer");
  return device_memory(memory);
}

inline cuda_event make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "creating an event");
  return cuda_event(event);
}

inline cuda_stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return cuda_stream(stream);
}

// Captures what `enqueue(stream)` enqueues. Other threads may use CUDA meanwhile.
template <class Enqueue>
executable_graph capture(cudaStream_t stream, Enqueue&& enqueue) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  enqueue(stream);
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(stream, &captured), "ending a capture");
  const cuda_graph graph(captured);
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "instantiating a graph");
  executable_graph result(executable);
  check_cuda(cudaGraphUpload(result.get(), stream), "uploading a graph");
  return result;
}

}  // namespace peerless::bench
