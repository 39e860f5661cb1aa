// Scenarios of the shm communicator that need streams and graphs of their own. Each is run by every rank of a run.
#pragma once

#include "support/run_ranks.hpp"

namespace peerless::test {

// A call returns at once, though its peer comes half a second later.
void enqueue_does_not_block(rank_context& context, bootstrap_ref group);

// The first call of all is captured, under the strictest capture mode: nothing on that path allocates or synchronises.
void first_call_is_captured(rank_context& context, bootstrap_ref group);

// A graph is replayed after the communicator that it captured is gone: it ends at once and writes nothing.
void replay_outlives_communicator(rank_context& context, bootstrap_ref group);

// Graphs of each protocol: the first call is a captured one, one graph ends before the communicator, another is
// replayed after it, at once and without an effect.
void graphs_come_and_go(rank_context& context, bootstrap_ref group);

// Two calls of one communicator on two streams, both on the device at once: a typed error and no result.
void overlapping_calls_are_told(rank_context& context, bootstrap_ref group);

// The communicator is destroyed while its kernel waits for a peer that never comes: bounded, and the output stays as it
// was.
void destroyed_while_waiting(rank_context& context, bootstrap_ref group);

}  // namespace peerless::test
