// The shm backend under the conformance suite.
#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"
#include "support/typed_rank.hpp"

namespace {
struct shm_backend {
  static constexpr std::string_view name = "shm";
  using communicator = peerless::communicator<peerless::shm>;
  using memory = peerless::test::cuda_memory;
};
}  // namespace

const peerless::test::backend& peerless::test::backend_under_test() {
  static const backend it = describe_backend<shm_backend>();
  return it;
}
