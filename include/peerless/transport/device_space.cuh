// GPU memory as an executor's space: state in device memory, shared host memory registered and mapped.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <peerless/core/memory_budget.hpp>
#include <peerless/transport/placement.hpp>
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
      if (code != cudaSuccess) cudaGetLastError();
      const std::string what =
          "pinning " + std::to_string(bytes) + " bytes of host memory: " + cudaGetErrorString(code);
      if (code == cudaErrorMemoryAllocation || code == cudaErrorOperatingSystem) {
        throw error(errc::out_of_memory,
                    what + "; the locked-memory limit (ulimit -l) is " + locked_memory_limit() +
                        ": raise it (docker run --ulimit memlock=-1) or the container's memory, or ask for smaller "
                        "slots",
                    -1, static_cast<int>(code));
      }
      if (code == cudaErrorNotSupported || code == cudaErrorNotPermitted || code == cudaErrorInvalidValue) {
        throw error(errc::unsupported, what + "; ranks that are threads of one process need no registration", -1,
                    static_cast<int>(code));
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

  // Pinned by CUDA itself, reachable by every device of the process.
  class allocation {
   public:
    static constexpr const char* name = "cudaHostAlloc";
    explicit allocation(std::size_t bytes) {
      const detail::relaxed_capture scope;
      void* memory = nullptr;
      const cudaError_t code = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
      if (code == cudaErrorMemoryAllocation || code == cudaErrorOperatingSystem) {
        cudaGetLastError();
        throw error(errc::out_of_memory,
                    "cudaHostAlloc of " + std::to_string(bytes) + " bytes: " + cudaGetErrorString(code) +
                        "; raise the container's memory or ask for smaller slots",
                    -1, static_cast<int>(code));
      }
      detail::require_cuda(code, "cudaHostAlloc");
      data_ = static_cast<std::byte*>(memory);
      std::memset(data_, 0, bytes);
    }
    ~allocation() {
      const detail::relaxed_capture scope;
      cudaFreeHost(data_);
    }
    allocation(const allocation&) = delete;
    allocation& operator=(const allocation&) = delete;
    std::byte* data() const { return data_; }

   private:
    std::byte* data_ = nullptr;
  };

  // A T in device memory that is never freed: a graph that captured calls may be replayed after the communicator is
  // gone, and must still find its poison. About 2 KiB a communicator until the process ends: call_state and
  // copy_state have 128 bytes each, protocol_state 1280; cudaMalloc rounds up.
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

  // By the PCI address of the current device.
  static int numa_node(const std::string& sysfs) {
    int device = 0;
    char address[32] = {};
    if (cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetPCIBusId(address, sizeof(address), device) == cudaSuccess)
      return numa_node_of_pci(address, sysfs);
    cudaGetLastError();
    return -1;
  }
};

PEERLESS_END_NAMESPACE
