// Calls by copy engines: streams, graphs, and what happens to copies that nobody can call off.
#include "copied_states.hpp"
#include "run_everywhere.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

TEST_CASE("captured calls mix with eager ones and with other protocols") { run_everywhere(replays_mix_with_calls); }

// Among processes only: a global capture forbids what other threads may well do.
TEST_CASE("the first call by copy engines may be a captured one") {
  CHECK(run_ranks(2, ranks_as::processes, first_copied_call_is_captured).problems() == "");
}

TEST_CASE("graphs with copies may outlive their communicator") { run_everywhere(copies_outlive_communicator); }

TEST_CASE("many captured calls without a peer end within one deadline") { run_everywhere(many_calls_without_peer); }

TEST_CASE("a ring meets copy engines") { run_everywhere(ring_meets_copies); }

TEST_CASE("what cannot be copied is refused") { run_everywhere(refusals_of_copies); }
