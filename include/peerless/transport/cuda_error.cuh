// CUDA return codes in the one error language.
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The code for a CUDA failure. That no driver (35, 34 with the stub library) and no device (100) are there all mean
// that this process has no GPU.
inline errc errc_of(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return errc::ok;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: return errc::no_device;
    case cudaErrorMemoryAllocation: return errc::out_of_memory;
    default: return errc::cuda_error;
  }
}

// Throws unless `code` is success: "<what>: <CUDA's text>", with the code as native_code. Clears the runtime's last
// error, so that the caller's next check does not find it.
inline void require_cuda(cudaError_t code, std::string_view what, source_location where = source_location::current()) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  std::string message(what);
  message += ": ";
  message += cudaGetErrorString(code);
  if (errc_of(code) == errc::no_device) message += "; is CUDA_VISIBLE_DEVICES empty, or the driver missing?";
  throw error(errc_of(code), message, -1, static_cast<int>(code), where);
}

// Makes a device current for a scope. Costs nothing when it is already.
class device_scope {
 public:
  explicit device_scope(int device) : wanted_(device) {
    require_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != wanted_) require_cuda(cudaSetDevice(wanted_), "cudaSetDevice");
  }
  ~device_scope() {
    if (before_ != wanted_) cudaSetDevice(before_);
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

 private:
  int wanted_;
  int before_ = 0;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
