// Each rung of the ladder with GPUs.
#include "shm_memory.hpp"
#include "run_everywhere.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

TEST_CASE("little memory: smaller slots") { run_everywhere(smaller_slots); }

TEST_CASE("no memfds: nameless files") { run_everywhere(nameless_files); }

TEST_CASE("no segments: cudaHostAlloc among threads, an error among processes") { run_everywhere(no_segments); }

TEST_CASE("no registration: cudaHostAlloc among threads, an error among processes") { run_everywhere(no_registration); }
