// Two ranks, as processes and as threads.
#pragma once

#include "support/catch.hpp"
#include "support/run_ranks.hpp"

namespace peerless::test {

inline void run_everywhere(void (*scenario)(rank_context&, bootstrap_ref)) {
  for (ranks_as how : {ranks_as::processes, ranks_as::threads}) {
    INFO("among " << name_of(how));
    CHECK(run_ranks(2, how, scenario).problems() == "");
  }
}

}  // namespace peerless::test
