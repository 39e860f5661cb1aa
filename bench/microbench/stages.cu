// Where the time of a small all-reduce through host memory goes. The stages add up to the call:
//
//   stage_call   =   stage_launch                       a node of a graph
//                  + (stage_alone - stage_launch)       entry, input load, own store, output, end of the kernel
//                  + stage_hop                          a store becomes visible in host memory, a poll finds it there
//
// stage_host_read is one poll. All times are us by events, each the median over replays or launches; a call's is that
// of the slower rank. Ranks are threads of this process, on a GPU each where there are two; where they share one, their
// calls are ordinary launches, and the label says so.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <peerless/peerless.cuh>

#include "all_reduce_perf/gpu_support.cuh"
#include "gpu_cases.hpp"

namespace peerless::bench {
namespace {

constexpr int calls_per_graph = 100;
constexpr int n_samples = 25;
constexpr int n_round_trips = 1000;
constexpr std::chrono::seconds longest_wait{20};
constexpr std::uint64_t longest_spin_ns = 2'000'000'000;
constexpr std::uint64_t hold_ns = 100'000;  // several times what launching a graph takes

double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// us between two events around what `enqueue(stream)` enqueues; throws errc::timeout when it does not end.
template <class Enqueue>
double time_of(cudaStream_t stream, Enqueue&& enqueue) {
  const cuda_event start = make_event(), stop = make_event();
  check_cuda(cudaEventRecord(start.get(), stream), "recording an event");
  enqueue(stream);
  check_cuda(cudaEventRecord(stop.get(), stream), "recording an event");
  if (!peerless::detail::drain(stream, deadline::after(longest_wait)))
    throw error(errc::timeout, "a stage did not end in time");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), "time between events");
  return static_cast<double>(milliseconds) * 1e3;
}

__global__ void hold_stream(std::uint64_t ns) {
  const cuda_memory m;
  const std::uint64_t start = m.now_ns();
  while (m.now_ns() - start < ns) continue;
}

// us a node of one replay of a graph of `calls_per_graph` nodes. What comes before it on the stream is not timed: a
// kernel that outlasts the launch of the graph, so that no latency of a launch counts, and two calls by
// `enqueue(stream)`, which align ranks.
template <class Enqueue>
double time_replay(cudaStream_t stream, const executable_graph& graph, Enqueue&& enqueue) {
  hold_stream<<<1, 1, 0, stream>>>(hold_ns);
  check_cuda(cudaGetLastError(), "launching");
  for (int k = 0; k < 2; ++k) enqueue(stream);
  return time_of(stream, [&](cudaStream_t on) { check_cuda(cudaGraphLaunch(graph.get(), on), "launching a graph"); }) /
         calls_per_graph;
}

// us a node of a graph of `calls_per_graph` nodes that `enqueue(stream)` makes one by one.
template <class Enqueue>
double time_in_graph(cudaStream_t stream, Enqueue&& enqueue) {
  const executable_graph graph = capture(stream, [&](cudaStream_t on) {
    for (int i = 0; i < calls_per_graph; ++i) enqueue(on);
  });
  std::vector<double> samples;
  for (int i = 0; i < n_samples; ++i) samples.push_back(time_replay(stream, graph, enqueue));
  return median_of(std::move(samples));
}

__global__ void waiting_kernel() {
  await_earlier_kernels();
  admit_next_kernel();
}

cudaFuncAttributes attributes_of(const void* kernel) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel");
  return attributes;
}

// Why calls on the first `n_gpus` GPUs cannot be dependent launches; empty where they can. All code of this program is
// for the same architectures, so one kernel stands for all.
std::string why_not_dependent(int n_gpus) {
  try {
    for (int device = 0; device < n_gpus; ++device) {
      check_cuda(cudaSetDevice(device), "taking a GPU");
      int major = 0;
      check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
      if (major < 9) {
        return "dependent launch needs compute capability 9.0 or later, GPU " + std::to_string(device) + " has " +
               std::to_string(major) + ".x";
      }
      const int compiled_for = attributes_of(reinterpret_cast<const void*>(&waiting_kernel)).ptxVersion;
      if (compiled_for < 90)
        return "dependent launch needs code for sm_90 or later, this is for sm_" + std::to_string(compiled_for);
    }
  } catch (const error& e) {
    (void)cudaGetLastError();  // what it is about stays away from the cases that follow
    return e.message();
  }
  return {};
}

double time_launch(bool dependent) {
  const cuda_stream stream = make_stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(1);
  launch.blockDim = dim3(256 + sentinel_duty_threads);
  launch.stream = stream.get();
  launch.attrs = &attribute;
  launch.numAttrs = dependent ? 1 : 0;
  return time_in_graph(stream.get(), [&](cudaStream_t) {
    check_cuda(cudaLaunchKernelExC(&launch, reinterpret_cast<const void*>(&waiting_kernel), nullptr), "launching");
  });
}

// Each load depends on the one before: its address, by a value that is always 0.
__global__ void read_chain(const std::uint64_t* word, std::uint64_t* sink) {
  const cuda_memory m;
  std::uint64_t at = 0;
  for (int i = 0; i < n_round_trips; ++i) at = m.load8_acquire(word + at);
  *sink = at;
}

// One end of a ping-pong of `n_round_trips`: waits for each count in `from` and answers in `to`; side 0 begins. Leaves
// 1 in `failed` when the other end is late.
template <bool Ordered>
__global__ void ping_pong(const std::uint64_t* from, std::uint64_t* to, int side, std::uint32_t* failed) {
  const cuda_memory m;
  const auto store = [&](std::uint64_t count) { Ordered ? m.store8_release(to, count) : m.store8(to, count); };
  for (std::uint64_t count = 1; count <= n_round_trips; ++count) {
    if (side == 0) store(count);
    const std::uint64_t start = m.now_ns();
    while ((Ordered ? m.load8_acquire(from) : m.load8(from)) < count) {
      if (m.now_ns() - start < longest_spin_ns) continue;
      *failed = 1;
      return;
    }
    if (side == 1) store(count);
  }
}

pinned_memory make_zeroed_lines() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, 4096, cudaHostAllocPortable | cudaHostAllocMapped), "pinned memory");
  std::fill_n(static_cast<unsigned char*>(memory), 4096, static_cast<unsigned char>(0));
  return pinned_memory(memory);
}

double time_host_read() {
  const pinned_memory lines = make_zeroed_lines();
  const cuda_stream stream = make_stream();
  auto* words = static_cast<std::uint64_t*>(lines.get());
  std::vector<double> samples;
  for (int i = 0; i < n_samples; ++i) {
    samples.push_back(time_of(stream.get(),
                              [&](cudaStream_t on) {
                                read_chain<<<1, 1, 0, on>>>(words, words + 64);
                                check_cuda(cudaGetLastError(), "launching");
                              }) /
                      n_round_trips);
  }
  return median_of(std::move(samples));
}

template <bool Ordered>
double time_hop(int n_gpus) {
  std::vector<double> samples;
  std::array<cuda_stream, 2> streams;
  for (int side : {0, 1}) {
    check_cuda(cudaSetDevice(side % n_gpus), "taking a GPU");
    streams[static_cast<std::size_t>(side)] = make_stream();
  }
  for (int i = 0; i < n_samples; ++i) {
    const pinned_memory lines = make_zeroed_lines();
    auto* words = static_cast<std::uint64_t*>(lines.get());
    auto* failed = reinterpret_cast<std::uint32_t*>(words + 64);
    const auto launch = [&](int side, cudaStream_t on) {
      check_cuda(cudaSetDevice(side % n_gpus), "taking a GPU");
      ping_pong<Ordered><<<1, 1, 0, on>>>(words + 16 * (1 - side), words + 16 * side, side, failed);
      check_cuda(cudaGetLastError(), "launching");
    };
    launch(1, streams[1].get());
    check_cuda(cudaSetDevice(0), "taking a GPU");
    const double us = time_of(streams[0].get(), [&](cudaStream_t on) { launch(0, on); });
    if (!peerless::detail::drain(streams[1].get(), deadline::after(longest_wait)) || *failed != 0)
      throw error(errc::timeout, "a ping-pong did not end in time");
    samples.push_back(us / (2 * n_round_trips));
  }
  return median_of(std::move(samples));
}

// Integers from 1 to 120: sums of two are exact in bf16.
std::vector<bf16> fresh_values(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<bf16> made(n);
  for (bf16& v : made) v = from_accumulator<bf16>(static_cast<float>(1 + random() % 120));
  return made;
}

// us a call of `world` ranks; verified before and after it is timed. `change` may alter the launch shape that the seed
// table gives.
double time_call(int world, int n_gpus, std::size_t bytes, bool dependent,
                 const std::function<void(launch_shape&)>& change) {
  const std::size_t n = bytes / sizeof(bf16);
  thread_group group(world);
  std::barrier<> together(world);
  std::random_device seeds;
  const std::array<std::vector<bf16>, 2> inputs{fresh_values(n, seeds()), fresh_values(n, seeds())};
  const auto rank_main = [&](int rank) {
    check_cuda(cudaSetDevice(rank % n_gpus), "taking a GPU");
    (void)attributes_of(reinterpret_cast<const void*>(&hold_stream));  // loaded while no rank's kernel waits
    const device_memory in = make_device_memory(bytes), out = make_device_memory(bytes);
    const cuda_stream stream = make_stream();
    communicator_options options;
    options.deadline = std::chrono::seconds(5);
    options.dependent_launch = dependent;
    auto boot = group.rank(rank);
    communicator<shm> comm(boot, options);
    plan how = comm.plan(bytes, dtype::bf16);
    change(how.shape);
    const auto call = [&](cudaStream_t on) {
      comm.all_reduce_as(how, static_cast<const bf16*>(in.get()), static_cast<bf16*>(out.get()), n, op::sum{}, on);
    };
    const auto verify = [&] {
      comm.synchronize(stream.get());
      std::vector<bf16> got(n);
      check_cuda(cudaMemcpy(got.data(), out.get(), bytes, cudaMemcpyDeviceToHost), "reading an output");
      for (std::size_t i = 0; i < n; ++i) {
        float sum = to_accumulator(inputs[0][i]);
        if (world == 2) sum += to_accumulator(inputs[1][i]);
        if (to_accumulator(got[i]) != sum) throw std::runtime_error("a wrong sum");
      }
    };
    check_cuda(cudaMemcpy(in.get(), inputs[static_cast<std::size_t>(rank)].data(), bytes, cudaMemcpyHostToDevice),
               "writing an input");
    check_cuda(cudaMemset(out.get(), 0xee, bytes), "poisoning an output");
    call(stream.get());
    verify();
    const executable_graph graph = capture(stream.get(), [&](cudaStream_t on) {
      for (int i = 0; i < calls_per_graph; ++i) call(on);
    });
    // What is timed is verified by itself: the graph's own output, before and after.
    const auto verify_graph = [&] {
      check_cuda(cudaMemsetAsync(out.get(), 0xee, bytes, stream.get()), "poisoning an output");
      check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "launching a graph");
      verify();
    };
    together.arrive_and_wait();  // making a graph may wait for a device, which must not be spinning for it
    verify_graph();
    std::vector<double> samples;
    for (int i = 0; i < n_samples; ++i) {
      together.arrive_and_wait();
      samples.push_back(time_replay(stream.get(), graph, call));
    }
    verify_graph();
    return median_of(std::move(samples));
  };
  std::future<double> peer;
  const auto leave_if_failed = [&](int rank) {
    try {
      return rank_main(rank);
    } catch (...) {
      together.arrive_and_drop();  // the other rank's calls end by themselves
      throw;
    }
  };
  if (world == 2) peer = std::async(std::launch::async, leave_if_failed, 1);
  const double mine = leave_if_failed(0);
  return world == 2 ? std::max(mine, peer.get()) : mine;
}

void register_stage(const std::string& name, std::function<double()> stage, const std::string& label = {}) {
  benchmark::RegisterBenchmark(("stage_" + name).c_str(),
                               [stage = std::move(stage), label](benchmark::State& state) {
                                 state.SetLabel(label);
                                 try {
                                   check_cuda(cudaSetDevice(0), "taking a GPU");
                                   for (auto _ : state) {
                                     const double us = stage();
                                     state.SetIterationTime(us * 1e-6);
                                     state.counters["median_us"] = us;
                                   }
                                 } catch (const std::exception& e) {
                                   state.SkipWithError(e.what());
                                 }
                               })
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

std::string launch_name(bool dependent) { return dependent ? "/dependent" : "/plain"; }

}  // namespace

void register_stages(int n_gpus) {
  if (n_gpus == 0) return;
  const int gpus = std::min(n_gpus, 2);
  const auto as_it_is = [](launch_shape&) {};
  const auto without_pause = [](launch_shape& shape) { shape.poll_delay_cycles = 0; };  // it would overlap the hop
  const std::string shared = gpus < 2 ? shared_gpu : "", not_dependent = why_not_dependent(gpus);
  register_stage("host_read", time_host_read);
  register_stage("hop/ordered", [=] { return time_hop<true>(gpus); }, shared);
  register_stage("hop/relaxed", [=] { return time_hop<false>(gpus); }, shared);
  for (const bool dependent : {false, true}) {
    if (dependent && !not_dependent.empty()) {
      leave_out("stage_launch/dependent, stage_alone/*/dependent, stage_call/*/dependent", not_dependent);
      continue;
    }
    if (dependent && gpus < 2)
      leave_out("stage_call/*/dependent", "calls of ranks that share a GPU are ordinary launches");
    register_stage("launch" + launch_name(dependent), [=] { return time_launch(dependent); });
    for (const std::size_t kib : {1, 8, 64}) {
      const std::string size = "/" + std::to_string(kib) + "K" + launch_name(dependent);
      register_stage("alone" + size, [=] { return time_call(1, gpus, kib << 10, dependent, without_pause); });
      if (dependent && gpus < 2) continue;
      register_stage("call" + size, [=] { return time_call(2, gpus, kib << 10, dependent, as_it_is); }, shared);
    }
  }
  const std::string launches = gpus < 2 ? shared_gpu_ordinary : !not_dependent.empty() ? "ordinary launches" : "";
  for (const std::size_t kib : {1, 8, 64}) {
    for (const bool early : {false, true}) {
      for (const std::uint32_t cycles : {0u, 400u, 800u, 1200u, 1600u}) {
        const auto change = [=](launch_shape& shape) {
          shape.clear_early = early;
          shape.poll_delay_cycles = cycles;
        };
        register_stage(
            "call/" + std::to_string(kib) + "K/clear:" + (early ? "early" : "late") +
                "/poll_delay:" + std::to_string(cycles),
            [=] { return time_call(2, gpus, kib << 10, true, change); }, launches);
      }
    }
  }
}

}  // namespace peerless::bench
