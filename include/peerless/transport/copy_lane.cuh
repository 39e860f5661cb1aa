// What the steps of a call by copy engines run on: streams, events and scratch memory that own themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <peerless/transport/cuda_error.cuh>
#include <peerless/transport/side_stream.cuh>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// An event without a time.
class owned_event {
 public:
  owned_event() = default;
  owned_event(owned_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  owned_event& operator=(owned_event&&) = delete;
  ~owned_event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  void create() { require_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory that is given back without waiting for what else runs on the device, where its driver can.
class stream_memory {
 public:
  stream_memory() = default;
  stream_memory(const stream_memory&) = delete;
  stream_memory& operator=(const stream_memory&) = delete;
  ~stream_memory() {
    const relaxed_capture scope;
    if (data_ != nullptr) pooled_on_ != nullptr ? cudaFreeAsync(data_, pooled_on_) : cudaFree(data_);
  }
  // `stream` outlives the memory.
  void allocate(std::size_t bytes, cudaStream_t stream) {
    int device = 0, has_pools = 0;
    require_cuda(cudaGetDevice(&device), "cudaGetDevice");
    require_cuda(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device), "cudaDeviceGetAttribute");
    if (has_pools == 0) return require_cuda(cudaMalloc(&data_, bytes), "cudaMalloc of scratch memory");
    require_cuda(cudaMallocAsync(&data_, bytes, stream), "cudaMallocAsync of scratch memory");
    pooled_on_ = stream;
  }
  void release() noexcept { data_ = nullptr; }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t pooled_on_ = nullptr;
};

// A stream for the steps of one kind, and the events of the last few of them.
class copy_lane {
 public:
  explicit copy_lane(std::size_t n_events) {
    int least = 0, greatest = 0;
    require_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    require_cuda(cudaStreamCreateWithPriority(&stream_.handle, cudaStreamNonBlocking, greatest), "cudaStreamCreate");
    events_.resize(n_events);
    for (owned_event& each : events_) each.create();
  }

  cudaStream_t stream() const { return stream_.handle; }
  // After step `n`, until the step as many later as there are events.
  cudaEvent_t event(std::uint32_t n) const { return events_[n % events_.size()].get(); }
  void record(std::uint32_t n) const { require_cuda(cudaEventRecord(event(n), stream()), "cudaEventRecord"); }

 private:
  struct owned_stream {
    cudaStream_t handle = nullptr;
    owned_stream() = default;
    owned_stream(owned_stream&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    ~owned_stream() {
      if (handle != nullptr) cudaStreamDestroy(handle);
    }
  };
  owned_stream stream_;
  std::vector<owned_event> events_;
};

inline void wait_for(cudaStream_t stream, cudaEvent_t event) {
  require_cuda(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

}  // namespace detail

PEERLESS_END_NAMESPACE
