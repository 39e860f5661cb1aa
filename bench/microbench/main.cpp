// What single steps cost: on a CPU folding vectors and whole calls; with GPUs what a call costs the CPU that makes it,
// and what the road through host memory gives both ways at once. Google Benchmark's flags apply.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <peerless/peerless.hpp>

#include "all_reduce_perf/machine.hpp"
#include "gpu_cases.hpp"
#include "peerless_build_info.hpp"

namespace {

using namespace peerless;

// Fresh values that are neither zeros nor NaNs: 1 to 2 in steps that depend on the place.
std::vector<bf16> values(std::size_t n_elements, unsigned seed) {
  std::vector<bf16> made(n_elements);
  for (std::size_t i = 0; i < n_elements; ++i)
    made[i].bits = static_cast<std::uint16_t>(0x3f80u + (i * 37 + seed) % 128);
  return made;
}

// One fold of two ranks' vectors, 16 bytes each.
void fold_two_vectors(benchmark::State& state) {
  const auto first = values(8, 1), second = values(8, 2);
  const vec16 a = load_vector(message<bf16>{first.data(), nullptr, 8}, 0);
  vec16 b = load_vector(message<bf16>{second.data(), nullptr, 8}, 0);
  for (auto _ : state) {
    vector_fold<bf16, op::sum> sum;
    sum.add(a);
    sum.add(b);
    b = sum.result();
    b.word[0] = a.word[3];  // stays finite
    benchmark::DoNotOptimize(b);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * 16);
}
BENCHMARK(fold_two_vectors);

// A call in a world of one: everything but the waiting.
void call_alone(benchmark::State& state) {
  thread_group group(1);
  auto boot = group.rank(0);
  communicator<host> comm(boot, communicator_options{});
  const auto in = values(static_cast<std::size_t>(state.range(0)) / sizeof(bf16), 3);
  std::vector<bf16> out(in.size());
  for (auto _ : state) comm.all_reduce(in.data(), out.data(), in.size(), op::sum{}, host_stream{});
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(call_alone)->Arg(16)->Arg(1 << 10)->Arg(64 << 10)->Arg(1 << 20);

// Two ranks as threads. The number of iterations is fixed: it must be the same on both.
std::optional<thread_group> pair_of_ranks;

void call_of_two(benchmark::State& state) {
  if (state.thread_index() == 0) pair_of_ranks.emplace(2);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto in = values(bytes / sizeof(bf16), 5 + static_cast<unsigned>(state.thread_index()));
  std::vector<bf16> out(in.size());
  std::unique_ptr<communicator<host>> comm;
  for (auto _ : state) {  // the threads meet before the first iteration, after which the group exists
    if (!comm) {
      state.PauseTiming();
      auto boot = pair_of_ranks->rank(state.thread_index());
      comm = std::make_unique<communicator<host>>(boot, communicator_options{});
      state.ResumeTiming();
    }
    comm->all_reduce(in.data(), out.data(), in.size(), op::sum{}, host_stream{});
  }
}
BENCHMARK(call_of_two)->Arg(1 << 10)->Arg(64 << 10)->Threads(2)->Iterations(20000)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  // Where two ranks share a GPU, one's streams must not wait behind the other's in a queue of the hardware.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("peerless", std::string(peerless_build_info::version) + ", commit " +
                                              peerless_build_info::commit + ", " + peerless_build_info::build_type);
  for (const auto& [name, value] : peerless::bench::relevant_environment(environ))
    benchmark::AddCustomContext(name, value);
#if defined(PEERLESS_WITH_CUDA)
  const int n_gpus = peerless::bench::count_gpus();
  if (n_gpus == 0) std::fputs("no GPU: cases that need one are left out\n", stderr);
  peerless::bench::register_host_cost(n_gpus);
  peerless::bench::register_duplex(n_gpus);
  peerless::bench::register_stages(n_gpus);
#endif
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
