// The kernels that this library or program can launch, so that all of them are loaded before the first call: a kernel
// that is loaded lazily waits for the device, and the device may be spinning for a peer.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <peerless/transport/cuda_error.cuh>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Kernels register themselves before main() by being named in a program: only what a program calls is compiled and
// loaded.
class PEERLESS_HIDDEN kernel_list {
 public:
  static kernel_list& instance() {
    static kernel_list list;
    return list;
  }
  bool add(const void* kernel) {
    kernels_.push_back(kernel);
    return true;
  }
  // Loads every kernel on the current device. Returns the oldest architecture that one of them was compiled for (90:
  // sm_90), which may be older than the device. Blocks; throws errc::cuda_error (no code for this device, ...).
  int load_all() const {
    int oldest = std::numeric_limits<int>::max();
    for (const void* kernel : kernels_) {
      cudaFuncAttributes attributes;
      require_cuda(cudaFuncGetAttributes(&attributes, kernel),
                   "loading a kernel; was the program compiled for this GPU's architecture?");
      oldest = std::min(oldest, attributes.ptxVersion);
    }
    return oldest;
  }

 private:
  std::vector<const void*> kernels_;
};

// `use` in a function that launches Kernel puts it on the list of its library.
template <auto Kernel>
struct PEERLESS_HIDDEN listed_kernel {
  static inline const bool registered = kernel_list::instance().add(reinterpret_cast<const void*>(Kernel));
  static const void* use() {
    (void)registered;
    return reinterpret_cast<const void*>(Kernel);
  }
};

}  // namespace detail

PEERLESS_END_NAMESPACE
