// What an eager call costs the CPU that makes it: putting it on the stream, nothing of what the GPU does. A batch of
// calls is enqueued and timed; then the streams are waited for, untimed. So that the ranks' threads do not meet in the
// driver's locks, which ranks that are processes do not share, the peer enqueues its batch before the timed one. There
// are two ranks, on a GPU each; where there is one GPU they share it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <benchmark/benchmark.h>

#include <peerless/peerless.cuh>

#include "all_reduce_perf/gpu_support.cuh"
#include "gpu_cases.hpp"

#if defined(PEERLESS_WITH_NCCL)
#include <nccl.h>
#endif

namespace peerless::bench {
namespace {

using clock = std::chrono::steady_clock;

constexpr int calls_per_batch = 50;  // far fewer than a stream holds, so that no call waits for room
constexpr int n_batches = 200;
constexpr int n_warmup_batches = 5;
constexpr std::chrono::seconds longest_wait{30};

// Returns when the stream has ended; throws errc::timeout at the limit.
void wait_for(cudaStream_t stream) {
  for (const deadline limit = deadline::after(longest_wait);;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "waiting for a stream");
    if (limit.expired()) throw error(errc::timeout, "calls did not end in time");
    std::this_thread::yield();
  }
}

constexpr int world = 2;

// Who a rank is, and its GPU.
struct seat {
  int rank, device;
};

// A rank: its GPU's buffer and stream, in place. Made on the rank's own thread, since construction is collective.
struct rank_on_gpu {
  rank_on_gpu(int device, std::size_t bytes) {
    check_cuda(cudaSetDevice(device), "taking a GPU");
    buffer = make_device_memory(bytes);
    check_cuda(cudaMemset(buffer.get(), 0, bytes), "clearing a buffer");
    stream = make_stream();
  }
  bf16* data() const { return static_cast<bf16*>(buffer.get()); }

  device_memory buffer;
  cuda_stream stream;
};

class shm_rank {
 public:
  using meeting = thread_group;
  static meeting meet() { return thread_group(world); }

  shm_rank(const meeting& group, seat mine, std::size_t bytes)
      : gpu_(mine.device, bytes),
        n_elements_(bytes / sizeof(bf16)),
        boot_(group.rank(mine.rank)),
        comm_(boot_, settings()) {}

  void enqueue() { comm_.all_reduce(gpu_.data(), gpu_.data(), n_elements_, op::sum{}, gpu_.stream.get()); }
  void wait() { comm_.synchronize(gpu_.stream.get()); }

 private:
  static communicator_options settings() {
    communicator_options s = communicator_options::from_environment();
    s.deadline = std::min<std::chrono::milliseconds>(s.deadline, longest_wait);
    return s;
  }

  rank_on_gpu gpu_;
  std::uint64_t n_elements_;
  decltype(std::declval<const meeting&>().rank(0)) boot_;
  communicator<shm> comm_;
};

__global__ void empty_kernel() {}

// The least that a call of one kernel can cost.
class launching_rank {
 public:
  using meeting = int;
  static meeting meet() { return 0; }

  launching_rank(meeting, seat mine, std::size_t bytes) : gpu_(mine.device, bytes) {}

  void enqueue() {
    check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(&empty_kernel), dim3(1), dim3(32), nullptr, 0,
                                gpu_.stream.get()),
               "launching a kernel");
  }
  void wait() { wait_for(gpu_.stream.get()); }

 private:
  rank_on_gpu gpu_;
};

#if defined(PEERLESS_WITH_NCCL)

void check_nccl(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw error(errc::nccl_error, std::string(what) + ": " + ncclGetErrorString(result));
}

// NCCL as it comes.
class nccl_rank {
 public:
  using meeting = std::shared_ptr<ncclUniqueId>;
  static meeting meet() {
    auto id = std::make_shared<ncclUniqueId>();
    check_nccl(ncclGetUniqueId(id.get()), "NCCL's unique id");
    return id;
  }

  nccl_rank(const meeting& id, seat mine, std::size_t bytes)
      : gpu_(mine.device, bytes), n_elements_(bytes / sizeof(bf16)) {
    check_nccl(ncclCommInitRank(&comm_, world, *id, mine.rank), "NCCL's start");
  }
  nccl_rank(const nccl_rank&) = delete;
  nccl_rank& operator=(const nccl_rank&) = delete;
  ~nccl_rank() {
    if (comm_ != nullptr) (void)ncclCommAbort(comm_);  // never waits for peers
  }

  void enqueue() {
    check_nccl(ncclAllReduce(gpu_.data(), gpu_.data(), n_elements_, ncclBfloat16, ncclSum, comm_, gpu_.stream.get()),
               "ncclAllReduce");
  }
  void wait() { wait_for(gpu_.stream.get()); }

 private:
  rank_on_gpu gpu_;
  std::size_t n_elements_;
  ncclComm_t comm_ = nullptr;
};

#endif

// What `each` gets is a rank's number; the second one's thread ends before this does.
void on_every_rank(const std::function<void(int)>& each) {
  std::future<void> peer = std::async(std::launch::async, each, 1);
  each(0);
  peer.get();
}

// NCCL's start knows no deadline: a case that outlasts this bound ends the process by SIGALRM.
class case_limit {
 public:
  case_limit() { ::alarm(120); }
  ~case_limit() { ::alarm(0); }
  case_limit(const case_limit&) = delete;
  case_limit& operator=(const case_limit&) = delete;
};

// us a call by (case, bytes), for ratios; the cases run in the order of their registration.
std::map<std::pair<std::string, std::int64_t>, double>& medians() {
  static std::map<std::pair<std::string, std::int64_t>, double> all;
  return all;
}

// Time of one call, by batches: the mean is Google Benchmark's time, the median and the least are counters, us.
template <class Rank>
void measure(benchmark::State& state, const std::string& name, int n_gpus) {
  const case_limit bounded;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto meeting = Rank::meet();
  std::unique_ptr<Rank> ranks[world];
  const auto batch = [&](int rank) {
    check_cuda(cudaSetDevice(rank % n_gpus), "taking a GPU");
    for (int i = 0; i < calls_per_batch; ++i) ranks[rank]->enqueue();
  };
  const auto wait_for_all = [&] {
    for (const auto& rank : ranks) rank->wait();
  };
  on_every_rank([&](int rank) { ranks[rank] = std::make_unique<Rank>(meeting, seat{rank, rank % n_gpus}, bytes); });
  for (int i = 0; i < n_warmup_batches; ++i) {  // at once: what connects late does so here, with its peer
    on_every_rank(batch);
    wait_for_all();
  }
  std::vector<double> samples;
  for (auto _ : state) {
    std::async(std::launch::async, batch, 1).get();
    check_cuda(cudaSetDevice(0), "taking a GPU");
    const clock::time_point start = clock::now();
    for (int i = 0; i < calls_per_batch; ++i) ranks[0]->enqueue();
    const double seconds = std::chrono::duration<double>(clock::now() - start).count() / calls_per_batch;
    state.SetIterationTime(seconds);
    samples.push_back(seconds * 1e6);
    wait_for_all();
  }
  on_every_rank([&](int rank) { ranks[rank].reset(); });
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  medians()[{name, state.range(0)}] = median;
  state.counters["median_us"] = median;
  state.counters["least_us"] = samples.front();
  const auto of_shm = medians().find({"shm", state.range(0)});
  if (name == "nccl" && of_shm != medians().end()) state.counters["nccl/shm"] = median / of_shm->second;
}

template <class Rank>
void register_case(const std::string& name, int n_gpus, const char* label) {
  const std::string title = "enqueue_" + name + "/ranks:" + std::to_string(world);
  benchmark::RegisterBenchmark(title.c_str(),
                               [=](benchmark::State& state) {
                                 state.SetLabel(label);
                                 try {
                                   measure<Rank>(state, name, n_gpus);
                                 } catch (const std::exception& e) {
                                   state.SkipWithError(e.what());
                                 }
                               })
      ->ArgName("bytes")
      ->Arg(8 << 10)
      ->Arg(1 << 20)
      ->Iterations(n_batches)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int count_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

void register_host_cost(int n_gpus) {
  if (n_gpus == 0) return;
  const bool shared = n_gpus < world;
  register_case<launching_rank>("launch", n_gpus, shared ? shared_gpu : "");
  register_case<shm_rank>("shm", n_gpus, shared ? shared_gpu_ordinary : "");
#if defined(PEERLESS_WITH_NCCL)
  if (shared) {
    leave_out("enqueue_nccl", "NCCL refuses two ranks on one GPU");
  } else {
    register_case<nccl_rank>("nccl", n_gpus, "");
  }
#endif
}

}  // namespace peerless::bench
