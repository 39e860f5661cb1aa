#include "device_loss.hpp"

#include <cuda_runtime.h>

#include "support/cuda_driver.cuh"

namespace peerless::test {

namespace {
__global__ void trap() { asm volatile("trap;"); }
}  // namespace

device_loss::device_loss() {
  cudaFuncAttributes attributes;
  cudaStream_t stream = nullptr;
  require_cuda(cudaGetDevice(&device_), "cudaGetDevice");
  require_cuda(cudaFuncGetAttributes(&attributes, trap), "loading a kernel");
  require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  stream_ = stream;
}

void device_loss::strike() const {
  auto* const stream = static_cast<cudaStream_t>(stream_);
  require_cuda(cudaSetDevice(device_), "cudaSetDevice");
  trap<<<1, 1, 0, stream>>>();
  auto const code = cudaStreamSynchronize(stream);
  cudaGetLastError();
  if (code == cudaSuccess) throw error(errc::system_error, "a kernel that traps ended well");
}

}  // namespace peerless::test
