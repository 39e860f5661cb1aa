#include "nccl_rows.hpp"

#include "gpu_arm.cuh"

#if defined(PEERLESS_WITH_NCCL)

#include <thread>

#include <nccl.h>

namespace peerless::bench {
namespace {

void check_nccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw error(errc::nccl_error, std::string(what) + ": " + ncclGetErrorString(result), -1, static_cast<int>(result));
}

// NCCL's type has no name of its own, and nvcc 13.0 fails on containers of such types.
struct named_id {
  ncclUniqueId id{};
};

// NCCL as it comes: what is set in the environment is the user's, and is recorded with the results.
class nccl_backend {
 public:
  static constexpr std::string_view name = "nccl";
  static constexpr exactness rule = exactness::any_order;  // all that NCCL promises

  nccl_backend(bootstrap_ref boot, const options& o) : deadline_(o.deadline()) {
    named_id mine;
    if (boot.rank() == 0) check_nccl(ncclGetUniqueId(&mine.id), "NCCL's unique id");
    const named_id common = all_gather_value(boot, mine, deadline::after(deadline_)).front();
    check_nccl(ncclCommInitRank(&comm_, boot.size(), common.id, boot.rank()), "NCCL's start");
  }
  nccl_backend(const nccl_backend&) = delete;
  nccl_backend& operator=(const nccl_backend&) = delete;
  ~nccl_backend() {
    if (comm_ != nullptr) (void)ncclCommAbort(comm_);  // never waits for peers, unlike ncclCommDestroy
  }

  std::string describe() const { return "nccl " + nccl_version() + ", as the environment sets it"; }

  void enqueue(const problem& p, const void* in, void* out, cudaStream_t stream) {
    // The library's codes are NCCL's.
    check_nccl(ncclAllReduce(in, out, p.n_elements, static_cast<ncclDataType_t>(p.type),
                             static_cast<ncclRedOp_t>(p.operation), comm_, stream),
               "ncclAllReduce");
  }

  void wait(cudaStream_t stream) {
    const deadline limit = deadline::after(deadline_);
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check_cuda(state, "waiting for NCCL");
      ncclResult_t failure = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm_, &failure), "asking NCCL for errors");
      check_nccl(failure, "NCCL");
      if (limit.expired()) throw error(errc::timeout, "NCCL did not end its calls within the deadline");
      std::this_thread::yield();
    }
  }

 private:
  std::chrono::milliseconds deadline_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

bool nccl_is_built_in() { return true; }

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return {};
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

std::unique_ptr<arm> make_nccl_arm(bootstrap_ref boot, const options& o, std::shared_ptr<gpu_buffers> buffers) {
  return std::make_unique<gpu_arm<nccl_backend>>(boot, o, std::move(buffers), boot, o);
}

}  // namespace peerless::bench

#else

namespace peerless::bench {

bool nccl_is_built_in() { return false; }
std::string nccl_version() { return {}; }
std::unique_ptr<arm> make_nccl_arm(bootstrap_ref, const options&, std::shared_ptr<gpu_buffers>) {
  throw error(errc::unsupported, "built without NCCL");
}

}  // namespace peerless::bench

#endif
