// Sums bf16 activations that live on several GPUs, through host memory: no peer-to-peer access is needed. The call is
// captured into a CUDA graph and replayed, as an inference engine would.
//   all_reduce_shm             one thread a GPU, in this process
//   torchrun / mpirun / srun   one process a GPU
#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <peerless/peerless.cuh>

namespace {

constexpr std::size_t n_elements = 8192;

void check(cudaError_t result) {
  if (result != cudaSuccess) throw peerless::error(peerless::errc::cuda_error, cudaGetErrorString(result), -1, result);
}

bool sum_over_gpus(peerless::bootstrap_ref boot, int device) {
  check(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::size_t n_wrong = 0;
  {
    peerless::communicator<peerless::shm> comm(boot);

    // Small integers: bf16 has them exactly.
    std::vector<__nv_bfloat16> host(n_elements);
    for (std::size_t i = 0; i < n_elements; ++i)
      host[i] = __float2bfloat16(static_cast<float>((comm.rank() + 1) * static_cast<int>(i % 8)));
    __nv_bfloat16 *in = nullptr, *out = nullptr;
    check(cudaMalloc(&in, n_elements * sizeof(*in)));
    check(cudaMalloc(&out, n_elements * sizeof(*out)));
    check(cudaMemcpyAsync(in, host.data(), n_elements * sizeof(*in), cudaMemcpyHostToDevice, stream));

    // peerless::bf16 has the layout of __nv_bfloat16. The first call may be a captured one.
    const auto* from = reinterpret_cast<const peerless::bf16*>(in);
    auto* to = reinterpret_cast<peerless::bf16*>(out);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replayable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    comm.all_reduce(from, to, n_elements, peerless::op::sum{}, stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&replayable, graph, 0));
    for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(replayable, stream));
    comm.all_reduce(from, to, n_elements, peerless::op::sum{}, stream);  // replays and plain calls mix
    check(cudaMemcpyAsync(host.data(), out, n_elements * sizeof(*out), cudaMemcpyDeviceToHost, stream));
    comm.synchronize(stream);  // ends at a deadline, and throws when a peer died

    const int n = comm.world_size();
    for (std::size_t i = 0; i < n_elements; ++i) {
      n_wrong += __bfloat162float(host[i]) != static_cast<float>(n * (n + 1) / 2 * static_cast<int>(i % 8));
    }
    std::printf("rank %d of %d: sum[7] = %g, %zu wrong; %s\n", comm.rank(), n,
                static_cast<double>(__bfloat162float(host[7])), n_wrong, comm.describe().c_str());
    check(cudaGraphExecDestroy(replayable));
    check(cudaGraphDestroy(graph));
    check(cudaFree(in));
    check(cudaFree(out));
  }
  check(cudaStreamDestroy(stream));
  return n_wrong == 0;
}

int run_threads() {
  int n_gpus = 0;
  if (cudaGetDeviceCount(&n_gpus) != cudaSuccess || n_gpus == 0) {
    std::printf("no GPU here; all_reduce_host needs none\n");
    return 77;
  }
  const peerless::thread_group group(n_gpus);
  std::vector<char> right(static_cast<std::size_t>(n_gpus), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n_gpus; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto boot = group.rank(rank);
        right[static_cast<std::size_t>(rank)] = sum_over_gpus(boot, rank);
      } catch (const peerless::error& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::count(right.begin(), right.end(), 1) == n_gpus ? 0 : 1;
}

}  // namespace

int main() {
  try {
    const auto launch = peerless::from_environment();
    if (launch.size == 1) return run_threads();
    auto boot = peerless::local_host_bootstrap::connect(launch.identity, launch.rank, launch.size);
    return sum_over_gpus(boot, launch.local_rank) ? 0 : 1;
  } catch (const peerless::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
