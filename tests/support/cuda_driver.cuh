// Calls of the CUDA driver, which no program is linked with.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include <peerless/core/error.hpp>
#include <peerless/transport/multiprocessors.cuh>

namespace peerless::test {

inline void require_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  throw error(errc::cuda_error, std::string(what) + ": " + cudaGetErrorString(result), -1, static_cast<int>(result));
}

// call_driver<PFN_cuMemMap_v10020>("cuMemMap", 10020, ...), the type of cudaTypedefs.h and its version. Throws
// errc::unsupported where this driver or device has no such thing, errc::cuda_error for other failures.
template <class Pointer, class... Arguments>
void call_driver(const char* name, unsigned version, Arguments... arguments) {
  auto const function = peerless::detail::driver_function<Pointer>(name, version);
  if (function == nullptr) throw error(errc::unsupported, std::string(name) + " is not in this driver");
  CUresult const result = function(arguments...);
  if (result == CUDA_SUCCESS) return;
  throw error(result == CUDA_ERROR_NOT_SUPPORTED ? errc::unsupported : errc::cuda_error,
              std::string(name) + " failed with code " + std::to_string(static_cast<int>(result)), -1,
              static_cast<int>(result));
}

// A part of the current device, current for this thread as long as it lives. For 0 multiprocessors: nothing.
class green_context {
 public:
  explicit green_context(unsigned multiprocessors) {
    if (multiprocessors == 0) return;
    int ordinal = 0;
    require_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    require_cuda(cudaFree(nullptr), "making the primary context");
    CUdevice device = 0;
    CUdevResource all{}, part{};
    CUdevResourceDesc description = nullptr;
    CUcontext context = nullptr;
    unsigned n_parts = 1;
    call_driver<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000, &device, ordinal);
    call_driver<PFN_cuDeviceGetDevResource_v12040>("cuDeviceGetDevResource", 12040, device, &all,
                                                   CU_DEV_RESOURCE_TYPE_SM);
    call_driver<PFN_cuDevSmResourceSplitByCount_v12040>("cuDevSmResourceSplitByCount", 12040, &part, &n_parts, &all,
                                                        nullptr, 0u, multiprocessors);
    call_driver<PFN_cuDevResourceGenerateDesc_v12040>("cuDevResourceGenerateDesc", 12040, &description, &part, 1u);
    call_driver<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000, &before_);
    call_driver<PFN_cuGreenCtxCreate_v12040>("cuGreenCtxCreate", 12040, &green_, description, device,
                                             static_cast<unsigned>(CU_GREEN_CTX_DEFAULT_STREAM));
    call_driver<PFN_cuCtxFromGreenCtx_v12040>("cuCtxFromGreenCtx", 12040, &context, green_);
    call_driver<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000, context);
  }
  green_context(const green_context&) = delete;
  green_context& operator=(const green_context&) = delete;
  ~green_context() {
    if (green_ == nullptr) return;
    try {
      call_driver<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000, before_);
      call_driver<PFN_cuGreenCtxDestroy_v12040>("cuGreenCtxDestroy", 12040, green_);
    } catch (const error&) {
    }
  }

  explicit operator bool() const { return green_ != nullptr; }
  cudaStream_t make_stream() const {
    CUstream stream = nullptr;
    call_driver<PFN_cuGreenCtxStreamCreate_v12050>("cuGreenCtxStreamCreate", 12050, &stream, green_,
                                                   static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0);
    return stream;
  }

 private:
  CUcontext before_ = nullptr;
  CUgreenCtx green_ = nullptr;
};

}  // namespace peerless::test
