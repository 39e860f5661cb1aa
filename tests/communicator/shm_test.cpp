// The shm communicator's promises about streams, graphs and the device.
#include "run_everywhere.hpp"
#include "shm_states.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

TEST_CASE("a call enqueues and returns") { run_everywhere(enqueue_does_not_block); }

// Among processes only: a global capture forbids what other threads may well do.
TEST_CASE("the first call may be a captured one", "[graphs]") {
  CHECK(run_ranks(2, ranks_as::processes, first_call_is_captured).problems() == "");
}

TEST_CASE("graphs may outlive their communicator") { run_everywhere(replay_outlives_communicator); }

TEST_CASE("graphs may end before their communicator and after it", "[graphs]") { run_everywhere(graphs_come_and_go); }

TEST_CASE("calls that overlap on the device are told") { run_everywhere(overlapping_calls_are_told); }

TEST_CASE("a communicator can be destroyed while its kernel waits", "[waiting]") {
  run_everywhere(destroyed_while_waiting);
}
