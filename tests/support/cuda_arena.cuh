// Memory that a GPU can use, of every kind.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "cuda_driver.cuh"
#include "cuda_place.hpp"

namespace peerless::test {

// Owns memory of one kind on the current device, aligned to at least 256 bytes. Throws errc::unsupported where the
// device has no such memory. Pool memory is ordered by `stream`, which outlives this.
class cuda_arena {
 public:
  cuda_arena(memory_kind kind, std::size_t bytes, cudaStream_t stream) : kind_(kind), bytes_(bytes), stream_(stream) {
    require_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    allocate();
  }
  cuda_arena(const cuda_arena&) = delete;
  cuda_arena& operator=(const cuda_arena&) = delete;
  ~cuda_arena() {
    switch (kind_) {
      case memory_kind::device:
      case memory_kind::managed: cudaFree(memory_); return;
      case memory_kind::pool: cudaFreeAsync(memory_, stream_); return;
      case memory_kind::pieces: unmap_pieces(); return;
      case memory_kind::host: cudaFreeHost(memory_); return;
      case memory_kind::registered:
        cudaHostUnregister(memory_);
        std::free(memory_);
        return;
    }
  }

  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void allocate() {
    switch (kind_) {
      case memory_kind::device: return require_cuda(cudaMalloc(&memory_, bytes_), "cudaMalloc");
      case memory_kind::pool:
        require_attribute(cudaDevAttrMemoryPoolsSupported, "memory pools");
        return require_cuda(cudaMallocAsync(&memory_, bytes_, stream_), "cudaMallocAsync");
      case memory_kind::pieces: return map_pieces();
      case memory_kind::host:
        require_attribute(cudaDevAttrCanMapHostMemory, "mapped host memory");
        return require_cuda(cudaHostAlloc(&memory_, bytes_, cudaHostAllocMapped), "cudaHostAlloc");
      case memory_kind::registered: return register_pages();
      case memory_kind::managed:
        require_attribute(cudaDevAttrConcurrentManagedAccess, "managed memory beside running kernels");
        return require_cuda(cudaMallocManaged(&memory_, bytes_), "cudaMallocManaged");
    }
  }

  void require_attribute(cudaDeviceAttr attribute, const char* what) const {
    int value = 0;
    require_cuda(cudaDeviceGetAttribute(&value, attribute, device_), "cudaDeviceGetAttribute");
    if (value == 0) throw error(errc::unsupported, std::string("this device has no ") + what);
  }

  void register_pages() {
    require_attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, "use for addresses of registered host memory");
    memory_ = std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096);
    if (memory_ == nullptr) throw error(errc::out_of_memory, "no host memory");
    auto const code = cudaHostRegister(memory_, bytes_, cudaHostRegisterMapped);
    if (code != cudaSuccess) std::free(memory_);
    require_cuda(code, "cudaHostRegister");
  }

  // Each piece is as small as it can be, so that arrays lie across the seams.
  void map_pieces() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    call_driver<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity", 10020, &piece_bytes_,
                                                          &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    bytes_ = (bytes_ + piece_bytes_ - 1) / piece_bytes_ * piece_bytes_;
    call_driver<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020, &address_, bytes_, std::size_t{0},
                                                CUdeviceptr{0}, 0ull);
    for (std::size_t at = 0; at < bytes_; at += piece_bytes_) {
      CUmemGenericAllocationHandle piece{};
      call_driver<PFN_cuMemCreate_v10020>("cuMemCreate", 10020, &piece, piece_bytes_, &properties, 0ull);
      pieces_.push_back(piece);
      call_driver<PFN_cuMemMap_v10020>("cuMemMap", 10020, address_ + at, piece_bytes_, std::size_t{0}, piece, 0ull);
    }
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    call_driver<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020, address_, bytes_, &access, std::size_t{1});
    memory_ = reinterpret_cast<void*>(address_);
  }

  void unmap_pieces() const noexcept {
    try {
      call_driver<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020, address_, bytes_);
      for (auto const piece : pieces_) call_driver<PFN_cuMemRelease_v10020>("cuMemRelease", 10020, piece);
      call_driver<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020, address_, bytes_);
    } catch (const error&) {
    }
  }

  memory_kind kind_;
  std::size_t bytes_;
  cudaStream_t stream_;
  int device_ = 0;
  void* memory_ = nullptr;
  CUdeviceptr address_ = 0;
  std::size_t piece_bytes_ = 0;
  std::vector<CUmemGenericAllocationHandle> pieces_;
};

}  // namespace peerless::test
