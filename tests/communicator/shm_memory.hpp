// Scenarios of shm communicators where memory is short. Each is run by every rank of a run of two.
#pragma once

#include "support/run_ranks.hpp"

namespace peerless::test {

// Accounts that have room for one step down: smaller slots, which work.
void smaller_slots(rank_context& context, bootstrap_ref group);

// Memfds refused: nameless files of /dev/shm are registered as well.
void nameless_files(rank_context& context, bootstrap_ref group);

// No segment of any size: memory of cudaHostAlloc among threads, a typed error among processes.
void no_segments(rank_context& context, bootstrap_ref group);

// Registration refused: memory of cudaHostAlloc among threads, a typed error among processes.
void no_registration(rank_context& context, bootstrap_ref group);

}  // namespace peerless::test
