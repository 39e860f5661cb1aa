// The host backend under the conformance suite.
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "support/host_memory.hpp"
#include "support/typed_rank.hpp"

namespace {
struct host_backend {
  static constexpr std::string_view name = "host";
  using communicator = peerless::communicator<peerless::host>;
  using memory = peerless::test::host_memory;
};
}  // namespace

const peerless::test::backend& peerless::test::backend_under_test() {
  static const backend it = describe_backend<host_backend>();
  return it;
}
