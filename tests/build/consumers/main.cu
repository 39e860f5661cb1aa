// A user's program with kernels: two ranks, as threads, reduce on one GPU or two. Where there is no GPU it says so.
#include <cuda_runtime_api.h>

#include <cstdio>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

// Instantiates the whole path, kernels included.
void reduce(peerless::communicator<peerless::shm>& comm, const float* in, float* out, std::size_t n_elements, cudaStream_t stream) {
  comm.all_reduce(in, out, n_elements, peerless::op::sum{}, stream);
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  std::printf("%d GPU(s), %p\n", devices, reinterpret_cast<void*>(&reduce));
  return 0;
}
