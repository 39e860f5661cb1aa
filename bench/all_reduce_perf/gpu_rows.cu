#include "gpu_rows.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "communicator_settings.hpp"
#include "gpu_arm.cuh"
#include "nccl_rows.hpp"

namespace peerless::bench {
namespace {

class shm_backend {
 public:
  static constexpr std::string_view name = "shm";
  static constexpr exactness rule = exactness::rank_order;

  shm_backend(bootstrap_ref boot, const options& o) : comm_(boot, communicator_settings(o)) { keep_protocol(comm_, o); }

  std::string describe() const { return comm_.describe(); }

  void enqueue(const problem& p, const void* in, void* out, cudaStream_t stream) {
    with_types(p.type, p.operation, [&]<class T, class Op>() {
      comm_.all_reduce(static_cast<const T*>(in), static_cast<T*>(out), p.n_elements, Op{}, stream);
    });
  }

  void wait(cudaStream_t stream) { comm_.synchronize(stream); }

 private:
  communicator<shm> comm_;
};

// The same transport, every call by copy engines.
class copied_backend {
 public:
  static constexpr std::string_view name = "shm-copied";
  static constexpr exactness rule = exactness::rank_order;

  copied_backend(bootstrap_ref boot, const options& o) : comm_(boot, settings(o)) {
    how_ = {shm::name, protocol_id::copied, {32, 512, static_cast<std::uint32_t>(o.copy_chunk_bytes)}, "asked for"};
  }

  std::string describe() const { return comm_.describe() + "; every call by copy engines"; }

  void enqueue(const problem& p, const void* in, void* out, cudaStream_t stream) {
    with_types(p.type, p.operation, [&]<class T, class Op>() {
      comm_.all_reduce_as(how_, static_cast<const T*>(in), static_cast<T*>(out), p.n_elements, Op{}, stream);
    });
  }

  void wait(cudaStream_t stream) { comm_.synchronize(stream); }

 private:
  static communicator_options settings(const options& o) {
    communicator_options all = communicator_settings(o);
    all.copies = {8, static_cast<std::uint32_t>(o.copy_chunk_bytes)};
    return all;
  }

  communicator<shm> comm_;
  plan how_;
};

// A GPU as its rank sees it, for the other ranks.
struct gpu_card {
  std::array<char, sizeof(cudaDeviceProp::name)> name{};
  std::array<char, 32> pci{};
};

}  // namespace

built_with gpu_build() { return {true, nccl_is_built_in()}; }

census count_gpus() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();  // no driver, too old a driver, no device: all mean that there is none to use
    return {0, cudaGetErrorString(result)};
  }
  return {count, count > 0 ? "" : "CUDA sees none"};
}

gpu_facts take_gpu(bootstrap_ref boot, int local_rank, const options& o) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "counting GPUs");
  const int device = local_rank % std::max(count, 1);
  check_cuda(cudaSetDevice(device), "taking a GPU");
  gpu_card mine;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "reading the properties of a GPU");
  std::copy(std::begin(properties.name), std::end(properties.name), mine.name.begin());
  check_cuda(cudaDeviceGetPCIBusId(mine.pci.data(), static_cast<int>(mine.pci.size()), device), "PCI address of a GPU");

  gpu_facts facts;
  const std::vector<gpu_card> cards = all_gather_value(boot, mine, deadline::after(o.deadline()));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    for (std::size_t other = 0; other < rank && !o.share_gpus; ++other) {
      if (cards[rank].pci != cards[other].pci) continue;
      throw std::invalid_argument("ranks " + std::to_string(other) + " and " + std::to_string(rank) + " both got GPU " +
                                  cards[rank].pci.data() + ": start fewer ranks, or use --share-gpus");
    }
    facts.gpus.push_back(std::string(cards[rank].name.data()) + " " + cards[rank].pci.data());
  }
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "version of the CUDA runtime");
  facts.cuda = std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
  facts.nccl = nccl_version();
  return facts;
}

std::unique_ptr<arm> make_gpu_arm(const std::string& name, bootstrap_ref boot, const options& o,
                                  std::size_t max_bytes) {
  // One pair of buffers a rank, for all its arms: what is compared reads and writes the same memory.
  thread_local std::weak_ptr<gpu_buffers> shared;
  std::shared_ptr<gpu_buffers> buffers = shared.lock();
  if (!buffers) shared = buffers = std::make_shared<gpu_buffers>(boot.rank(), boot.size(), max_bytes);
  if (name == "nccl") return make_nccl_arm(boot, o, std::move(buffers));
  if (name == "shm-copied") return std::make_unique<gpu_arm<copied_backend>>(boot, o, std::move(buffers), boot, o);
  return std::make_unique<gpu_arm<shm_backend>>(boot, o, std::move(buffers), boot, o);
}

}  // namespace peerless::bench
