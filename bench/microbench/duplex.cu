// What the road through host memory gives when every GPU writes to it and reads from it at once, by threads of kernels
// and by copy engines: the ceiling of a bulk all-reduce, measured in the run that it is compared with.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include <peerless/core/deadline.hpp>
#include <peerless/protocol/memory_cuda.cuh>

#include "all_reduce_perf/gpu_support.cuh"
#include "gpu_cases.hpp"

namespace peerless::bench {
namespace {

constexpr std::size_t copy_bytes = std::size_t{64} << 20;
constexpr int copies_per_sample = 20;
constexpr int n_samples = 5;
constexpr unsigned threads_per_block = 512;
constexpr int loads_in_flight = 8;  // a thread; stores need none
constexpr std::chrono::seconds longest_wait{30};

// Any launch shape.
__global__ void write_kernel(vec16* to, const vec16* from, std::size_t n_vectors) {
  const cuda_memory m;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n_vectors; i += step)
    m.store16_payload(to + i, from[i]);
}

__global__ void read_kernel(vec16* to, const vec16* from, std::size_t n_vectors) {
  const cuda_memory m;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i < n_vectors; i += loads_in_flight * step) {
    vec16 value[loads_in_flight];
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      if (i + k * step < n_vectors) value[k] = m.load16_payload(from + i + k * step);
    }
#pragma unroll
    for (int k = 0; k < loads_in_flight; ++k) {
      if (i + k * step < n_vectors) to[i + k * step] = value[k];
    }
  }
}

// Blocks of the kernels that copy; 0: a copy engine does. `cross`: each GPU reads what the other one writes, as an
// exchange does, in place of memory that nobody writes.
struct road {
  const char* name;
  unsigned write_blocks, read_blocks;
  bool cross;
};

struct direction {
  cuda_stream stream = make_stream();
  cuda_event start = make_event(), stop = make_event();
  device_memory on_gpu = make_device_memory(copy_bytes);
};

pinned_memory make_pinned_memory() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, copy_bytes, cudaHostAllocPortable), "pinned memory for a buffer");
  std::fill_n(static_cast<unsigned char*>(memory), copy_bytes, static_cast<unsigned char>(1));
  return pinned_memory(memory);
}

// One GPU: what it writes, what it reads. Made while its device is the current one.
struct endpoint {
  direction write, read;
  pinned_memory written = make_pinned_memory(), unwritten = make_pinned_memory();
};

void enqueue(const direction& d, cudaMemcpyKind kind, unsigned blocks, void* host) {
  void* const to = kind == cudaMemcpyDeviceToHost ? host : d.on_gpu.get();
  const void* const from = kind == cudaMemcpyDeviceToHost ? d.on_gpu.get() : host;
  constexpr std::size_t n_vectors = copy_bytes / sizeof(vec16);
  if (blocks == 0) {
    check_cuda(cudaMemcpyAsync(to, from, copy_bytes, kind, d.stream.get()), "copying");
    return;
  }
  auto* kernel = kind == cudaMemcpyDeviceToHost ? write_kernel : read_kernel;
  kernel<<<blocks, threads_per_block, 0, d.stream.get()>>>(static_cast<vec16*>(to), static_cast<const vec16*>(from),
                                                           n_vectors);
  check_cuda(cudaGetLastError(), "launching a copy");
}

// s that the copies of one direction took, once they have ended; throws errc::timeout at the limit.
double seconds_of(const direction& d, deadline limit) {
  for (;;) {
    const cudaError_t state = cudaEventQuery(d.stop.get());
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) check_cuda(state, "waiting for copies");
    if (limit.expired()) throw error(errc::timeout, "copies did not end in time");
    std::this_thread::yield();
  }
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, d.start.get(), d.stop.get()), "time between events");
  return static_cast<double>(milliseconds) * 1e-3;
}

// s of every direction that works: the writes of all GPUs, then their reads. All begin at once, but for what it takes
// to enqueue the first copies.
std::vector<double> sample(const std::vector<endpoint>& gpus, const road& r) {
  const int n = static_cast<int>(gpus.size());
  const auto on_each = [&](auto&& f) {
    for (int device = 0; device < n; ++device) {
      check_cuda(cudaSetDevice(device), "taking a GPU");
      f(gpus[static_cast<std::size_t>(device)], gpus[static_cast<std::size_t>(r.cross ? n - 1 - device : device)]);
    }
  };
  const auto record = [&](auto event) {
    on_each([&](const endpoint& gpu, const endpoint&) {
      for (const direction* d : {&gpu.write, &gpu.read})
        check_cuda(cudaEventRecord(((*d).*event).get(), d->stream.get()), "recording an event");
    });
  };
  record(&direction::start);
  for (int i = 0; i < copies_per_sample; ++i) {
    on_each([&](const endpoint& gpu, const endpoint& other) {
      enqueue(gpu.write, cudaMemcpyDeviceToHost, r.write_blocks, gpu.written.get());
      enqueue(gpu.read, cudaMemcpyHostToDevice, r.read_blocks, r.cross ? other.written.get() : other.unwritten.get());
    });
  }
  record(&direction::stop);
  std::vector<double> seconds;
  const deadline limit = deadline::after(longest_wait);
  for (const endpoint& gpu : gpus) seconds.push_back(seconds_of(gpu.write, limit));
  for (const endpoint& gpu : gpus) seconds.push_back(seconds_of(gpu.read, limit));
  return seconds;
}

// Counters in GB/s (10^9), of the median sample: writes and reads of the slower GPU, and `ceiling`, at which the last
// of all directions ended: no exchange that copies every byte once each way can be faster.
void measure(benchmark::State& state, const road& r, int n_gpus) {
  std::vector<endpoint> gpus;
  for (int device = 0; device < n_gpus; ++device) {
    check_cuda(cudaSetDevice(device), "taking a GPU");
    gpus.emplace_back();
  }
  (void)sample(gpus, r);
  constexpr double gigabytes = copies_per_sample * static_cast<double>(copy_bytes) / 1e9;
  std::vector<std::vector<double>> rates(3);
  for (auto _ : state) {
    const std::vector<double> seconds = sample(gpus, r);
    const auto middle = seconds.begin() + n_gpus;
    const double write = *std::max_element(seconds.begin(), middle), read = *std::max_element(middle, seconds.end());
    state.SetIterationTime(std::max(write, read));
    rates[0].push_back(gigabytes / write);
    rates[1].push_back(gigabytes / read);
    rates[2].push_back(gigabytes / std::max(write, read));
  }
  const char* const names[] = {"write_GB/s", "read_GB/s", "ceiling_GB/s"};
  for (std::size_t i = 0; i < rates.size(); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    state.counters[names[i]] = rates[i][rates[i].size() / 2];
  }
}

}  // namespace

void register_duplex(int n_gpus) {
  const int n = std::min(n_gpus, 2);
  if (n == 1) leave_out("duplex_*_crossed", "needs two GPUs: each reads what the other one writes");
  for (const road& r :
       {road{"sm_16+16_blocks", 16, 16, false}, road{"sm_4+16_blocks", 4, 16, false}, road{"copy_engines", 0, 0, false},
        road{"sm_4+16_blocks_crossed", 4, 16, true}, road{"copy_engines_crossed", 0, 0, true}}) {
    if (n == 0 || (r.cross && n < 2)) continue;
    const std::string title = std::string("duplex_") + r.name + "/gpus:" + std::to_string(n);
    benchmark::RegisterBenchmark(title.c_str(),
                                 [=](benchmark::State& state) {
                                   try {
                                     measure(state, r, n);
                                   } catch (const std::exception& e) {
                                     state.SkipWithError(e.what());
                                   }
                                 })
        ->Iterations(n_samples)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace peerless::bench
