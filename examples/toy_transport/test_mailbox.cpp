// Transport `mailbox` under the conformance suite.
#include <peerless/communicator.hpp>

#include "mailbox.hpp"
#include "support/host_memory.hpp"
#include "support/typed_rank.hpp"

namespace {
struct mailbox_backend {
  static constexpr std::string_view name = "mailbox";
  using communicator = peerless::communicator<toy::mailbox>;
  using memory = peerless::test::host_memory;
  // Where a case asks for another protocol, the only one that there is runs.
  static peerless::protocol_id stand_in(peerless::protocol_id) { return peerless::protocol_id::bulk; }
};
}  // namespace

const peerless::test::backend& peerless::test::backend_under_test() {
  static const backend it = describe_backend<mailbox_backend>();
  return it;
}
