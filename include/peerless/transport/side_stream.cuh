// Small copies beside the user's streams, with an end to every wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include <peerless/core/deadline.hpp>
#include <peerless/transport/cuda_error.cuh>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Lets this thread make calls that another thread's capture of a stream would forbid, and that would invalidate the
// capture: registration, allocation, copies on streams of our own.
class relaxed_capture {
 public:
  relaxed_capture() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~relaxed_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Polls `stream` until it is empty or `limit` has passed; true when it is empty. Throws errc::cuda_error.
inline bool drain(cudaStream_t stream, deadline limit) {
  for (unsigned polls = 0;; ++polls) {
    const cudaError_t code = cudaStreamQuery(stream);
    if (code == cudaSuccess) return true;
    if (code != cudaErrorNotReady) require_cuda(code, "cudaStreamQuery");
    if (limit.expired()) return false;
    if (polls > 1000) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Owns a stream of the current device that waits for no other.
class side_stream {
 public:
  side_stream() { require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~side_stream() { cudaStreamDestroy(stream_); }
  side_stream(const side_stream&) = delete;
  side_stream& operator=(const side_stream&) = delete;

  // Copies between device and pinned memory; false when it had not ended at the limit. Throws errc::cuda_error.
  bool copy(void* to, const void* from, std::size_t bytes, deadline limit) {
    const relaxed_capture scope;
    require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
    return drain(stream_, limit);
  }

  // True once the device is lost to this process (a kernel that trapped, a bad address, ...): all calls fail from then.
  bool is_lost() const noexcept {
    const relaxed_capture scope;
    const cudaError_t code = cudaStreamQuery(stream_);
    if (code == cudaSuccess || code == cudaErrorNotReady) return false;
    cudaGetLastError();
    return true;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
