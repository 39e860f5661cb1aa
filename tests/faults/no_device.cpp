// A box, or a process, without a GPU that may be used: one typed error on every rank, whatever is installed.
#include <cstdlib>

#include "fault.hpp"
#include "support/catch.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::errc;

namespace {

void must_say_no_device(rank_context& context, peerless::bootstrap_ref group) {
  if (!record_error(context, [&] { backend_under_test().make(group, fault_options(), fault_arena_bytes); })) {
    context.fail("a communicator without a GPU", "was made");
  }
  context.require(context.record().ended.elapsed_ns < 15'000'000'000, "the error", "took too long");
}

}  // namespace

TEST_CASE("CUDA_VISIBLE_DEVICES is empty") {
  for (ranks_as how : {ranks_as::processes, ranks_as::threads}) {
    for (const char* visible : {"", "-1"}) {
      auto const run = run_bare(1, ranks_as::processes, [&](rank_context& outer) {
        ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        auto const inner = run_ranks(2, how, must_say_no_device);
        expectations told(inner);
        for (int rank = 0; rank < 2; ++rank) told.failed(rank, {errc::no_device}, std::nullopt);
        outer.require(told.text().empty(), "among " + std::string(name_of(how)), told.text());
      });
      INFO("CUDA_VISIBLE_DEVICES=\"" << visible << "\" among " << name_of(how));
      CHECK(run.problems() == "");
    }
  }
}

TEST_CASE("one rank has no GPU, or none has") {
  auto const run = run_bare(2, ranks_as::processes, [job = unique_job()](rank_context& context) {
    if (context.rank() == 1) ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    auto group = peerless::local_host_bootstrap::connect(job, context.rank(), 2);
    must_say_no_device(context, group);
  });
  expectations told(run);
  for (int rank = 0; rank < 2; ++rank) told.failed(rank, {errc::no_device}, std::nullopt);
  CHECK(told.text() == "");
}
