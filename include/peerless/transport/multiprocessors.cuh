// How many multiprocessors the kernels of a context may use.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <peerless/transport/cuda_error.cuh>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// A function of the driver, of the type PFN_<name>_v<version> of cudaTypedefs.h; nullptr where the driver has none. A
// program that links to the driver's library would not start where there is no driver.
template <class Pointer>
Pointer driver_function(const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const auto code = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Pointer>(address) : nullptr;
}

// Multiprocessors on which kernels that this thread launches on `device`, its current one, may run: all of the device,
// or the part that the current context was given (a green context). At least 1. Throws errc::cuda_error.
inline std::uint32_t usable_multiprocessors(int device) {
  int all = 0;
  require_cuda(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  auto usable = static_cast<std::uint32_t>(std::max(all, 1));
  const auto current = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000);
  const auto resource_of = driver_function<PFN_cuCtxGetDevResource_v12040>("cuCtxGetDevResource", 12040);
  CUcontext context = nullptr;
  CUdevResource part{};
  if (current == nullptr || resource_of == nullptr) return usable;  // a driver from before green contexts
  if (current(&context) != CUDA_SUCCESS || context == nullptr) return usable;
  if (resource_of(context, &part, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS || part.sm.smCount == 0) return usable;
  return std::min(usable, part.sm.smCount);
}

}  // namespace detail

PEERLESS_END_NAMESPACE
