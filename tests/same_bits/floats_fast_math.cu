// shm for the floating-point types alone, compiled as a consumer may: with fast math, and by a definition without the
// instructions that convert fp8.
#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"
#include "support/typed_rank.hpp"

namespace {
struct floats_backend {
  static constexpr std::string_view name = "shm, fast math";
  using communicator = peerless::communicator<peerless::shm>;
  using memory = peerless::test::cuda_memory;
  static constexpr bool floats_only = true;
};
}  // namespace

const peerless::test::backend& peerless::test::backend_under_test() {
  static const backend it = describe_backend<floats_backend>();
  return it;
}
