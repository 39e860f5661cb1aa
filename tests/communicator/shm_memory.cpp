// Each rung of the ladder with GPUs.
#include "shm_memory.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

namespace {

void run_everywhere(void (*scenario)(rank_context&, peerless::bootstrap_ref)) {
  for (ranks_as how : {ranks_as::processes, ranks_as::threads}) {
    INFO("among " << name_of(how));
    CHECK(run_ranks(2, how, scenario).problems() == "");
  }
}

}  // namespace

TEST_CASE("little memory: smaller slots") { run_everywhere(smaller_slots); }

TEST_CASE("no memfds: nameless files") { run_everywhere(nameless_files); }

TEST_CASE("no segments: cudaHostAlloc among threads, an error among processes") { run_everywhere(no_segments); }

TEST_CASE("no registration: cudaHostAlloc among threads, an error among processes") { run_everywhere(no_registration); }
