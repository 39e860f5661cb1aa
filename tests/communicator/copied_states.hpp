// Scenarios of calls by copy engines. Each is run by every rank of a run.
#pragma once

#include "support/run_ranks.hpp"

namespace peerless::test {

// A graph of several calls is replayed 200 times, between eager calls of all protocols, and every result is right.
void replays_mix_with_calls(rank_context& context, bootstrap_ref group);

// Nothing on the way of a first call allocates or synchronises: it is captured under the strictest mode.
void first_copied_call_is_captured(rank_context& context, bootstrap_ref group);

// A graph is replayed after its communicator is gone: it ends, writes no output and touches no memory that is gone.
void copies_outlive_communicator(rank_context& context, bootstrap_ref group);

// A graph of 160 calls whose peer never comes: one deadline for all of it, one error, and no output.
void many_calls_without_peer(rank_context& context, bootstrap_ref group);

// One rank takes the ring, the other copy engines: a mismatch on both that names both, long before the deadline.
void ring_meets_copies(rank_context& context, bootstrap_ref group);

// Shapes that do not fit the places, and communicators that have none.
void refusals_of_copies(rank_context& context, bootstrap_ref group);

}  // namespace peerless::test
