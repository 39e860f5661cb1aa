// The backends that are compiled for GPUs, of which each test program takes one.
#pragma once

#include "support/rank_communicator.hpp"

namespace peerless::test {

// shm as a user has it.
const backend& backend_of_shm();
// The same transport with calls by copy engines in the place of bulk ones.
const backend& backend_of_copies();

}  // namespace peerless::test
