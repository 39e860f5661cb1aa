// What is a transport and a memory space, what is not, and that the communicator uses nothing but the contract.
#include "archetypes.hpp"

#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>

#include "support/catch.hpp"

using namespace archetypes;
using peerless::all_reduces;
using peerless::memory_space;
using peerless::transport;
namespace op = peerless::op;

static_assert(memory_space<least_space> && memory_space<space_of_parts>);
static_assert(!memory_space<space_without_stream_type> && !memory_space<space_with_pinned_stream_type>);
static_assert(!memory_space<space_without_executes_at_once> && !memory_space<space_with_named_executes_at_once>);
static_assert(!memory_space<space_without_registration> && !memory_space<space_with_registration_of_bytes_only>);
static_assert(!memory_space<space_without_allocation> && !memory_space<space_with_allocation_of_words>);
static_assert(!memory_space<space_with_nameless_allocation>);
static_assert(!memory_space<space_without_state> && !memory_space<space_with_untyped_state>);
static_assert(!memory_space<space_without_executor_address> && !memory_space<space_with_integer_executor_address>);
static_assert(!memory_space<space_without_numa_node> && !memory_space<space_with_numa_node_of_nothing>);
static_assert(!memory_space<int> && !memory_space<void>);

static_assert(transport<least> && transport<transport_of_parts> && transport<least_that_reduces>);
static_assert(!transport<without_name> && !transport<with_numeric_name>);
static_assert(!transport<without_space> && !transport<with_space_of_less>);
static_assert(!transport<without_constructor> && !transport<with_constructor_of_another_space>);
static_assert(!transport<without_seed_table> && !transport<with_seed_table_of_one_row>);
static_assert(!transport<with_mutable_seed_table>, "asking for the table changes nothing");
static_assert(!transport<without_refuse> && !transport<with_boolean_refuse>);
static_assert(!transport<with_throwing_refuse>, "it is asked before every call");
static_assert(!transport<without_finish> && !transport<with_finish_without_limit>, "a wait needs a limit");
static_assert(!transport<with_throwing_finish>, "destructors call it");
static_assert(!transport<without_synchronize> && !transport<with_synchronize_of_nothing>);
static_assert(!transport<with_synchronize_of_another_stream>);
static_assert(!transport<int> && !transport<void>);

static_assert(all_reduces<least_that_reduces, std::int32_t, op::min>);
static_assert(!all_reduces<least_that_reduces, float, op::sum>, "what it was not written for is no member of it");
static_assert(!all_reduces<least_that_reduces, std::int32_t, int> && !all_reduces<least, std::int32_t, op::sum>);
static_assert(!all_reduces<with_all_reduce_of_counts, float, op::sum>, "failure is left in the session");
static_assert(!all_reduces<with_all_reduce_without_stream, float, op::sum>);

static_assert(peerless::models_transport<least>() && peerless::models_memory_space<least_space>());
static_assert(peerless::models_all_reduces<least_that_reduces, std::int32_t, op::sum>());

// Every member of a communicator but its templates.
template class peerless::communicator<least>;
using communicator = peerless::communicator<least, least_that_reduces>;
static_assert(communicator::reduces<std::int32_t, op::sum> && !communicator::reduces<float, op::sum>);

TEST_CASE("a communicator needs nothing of a transport but the contract") {
  const peerless::thread_group group(1);
  auto boot = group.rank(0);
  peerless::communicator_options options;
  options.order = {"least that reduces"};
  communicator comm(boot, options);
  CHECK(comm.plan(12, dtype::i32).transport == least_that_reduces::name);
  const std::int32_t mine[] = {1, -2, 3};
  std::int32_t sum[3] = {};
  comm.all_reduce(std::span<const std::int32_t>(mine), std::span<std::int32_t>(sum), op::sum{}, {});
  CHECK((sum[0] == 1 && sum[1] == -2 && sum[2] == 3));
  comm.synchronize({});
  CHECK(comm.status().code == peerless::errc::ok);
}

TEST_CASE("what the transport that came up was not written for is refused") {
  const peerless::thread_group group(1);
  auto boot = group.rank(0);
  communicator comm(boot, peerless::communicator_options{});
  std::int32_t value = 1;
  try {
    comm.all_reduce(std::span(&value, 1), op::sum{}, {});
    FAIL("threw nothing");
  } catch (const peerless::error& e) {
    CHECK(e.code() == peerless::errc::unsupported);
  }
}
