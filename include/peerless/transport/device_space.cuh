// GPU memory as an executor's space: state in device memory, shared host memory registered and mapped.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <peerless/transport/side_stream.cuh>

PEERLESS_BEGIN_NAMESPACE

// Memory space of ranks that are GPUs. Everything belongs to the device that was current when it was made.
struct device_space {
  using stream_type = cudaStream_t;
  static constexpr bool executes_at_once = false;

  // Registers host memory for every device of the process. Blocks while pages are pinned.
  class registration {
   public:
    registration(std::byte* host, std::size_t bytes) : host_(host) {
      const detail::relaxed_capture scope;
      const cudaError_t code = cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
      if (code == cudaErrorMemoryAllocation || code == cudaErrorOperatingSystem) {
        cudaGetLastError();
        throw error(
            errc::out_of_memory,
            "pinning " + std::to_string(bytes) + " bytes of host memory: " + cudaGetErrorString(code) +
                "; raise the locked-memory limit (ulimit -l) or the container's memory, or ask for smaller slots",
            -1, static_cast<int>(code));
      }
      detail::require_cuda(code, "cudaHostRegister");
    }
    ~registration() {
      const detail::relaxed_capture scope;
      cudaHostUnregister(host_);
    }
    registration(const registration&) = delete;
    registration& operator=(const registration&) = delete;

   private:
    std::byte* host_;
  };

  // A T in device memory that is never freed: a graph that captured calls may be replayed after the communicator is
  // gone, and must still find its poison. A few hundred bytes a communicator, until the process ends.
  template <class T>
  class state {
   public:
    explicit state(const T& initial) {
      const detail::relaxed_capture scope;
      detail::require_cuda(cudaMalloc(&value_, sizeof(T)), "cudaMalloc of a rank's state");
      // On a stream of our own: the legacy stream would wait for whatever else runs.
      cudaStream_t stream = nullptr;
      cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      if (code == cudaSuccess) code = cudaMemcpyAsync(value_, &initial, sizeof(T), cudaMemcpyHostToDevice, stream);
      if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
      if (stream != nullptr) cudaStreamDestroy(stream);
      if (code != cudaSuccess) cudaFree(value_);
      detail::require_cuda(code, "copying a rank's state");
    }
    state(state&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
    state& operator=(state&&) = delete;
    T* get() const { return value_; }

   private:
    T* value_ = nullptr;
  };

  // The address of registered memory for the current device.
  static std::byte* executor_address(std::byte* host) {
    void* address = nullptr;
    detail::require_cuda(cudaHostGetDevicePointer(&address, host, 0), "cudaHostGetDevicePointer");
    return static_cast<std::byte*>(address);
  }
};

PEERLESS_END_NAMESPACE
