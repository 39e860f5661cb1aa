// The sessions of backends that reduce buffers of GPUs. Which of them run is chosen by tag: [gpu1] needs one GPU, which
// all ranks share, [gpu2] needs two.
#include <vector>

#include "suite.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

namespace {

setting session(int world, ranks_as how, session_kind kind = full_session) {
  setting s{.world = world, .how = how, .kind = kind, .options = small_slots(), .effort = 1};
  if (kind == large_session)
    s = {.world = world, .how = how, .kind = kind, .options = default_slots(), .arena_bytes = std::size_t{44} << 20};
  return s;
}

setting near_edge(setting s, std::uint64_t edge) {
  s.kind = epoch_session;
  s.options.first_epoch = edge - 40;
  return s;
}

void require_all_pass(const std::vector<setting>& sessions) {
  std::uint64_t calls = 0;
  CHECK(run_sessions(sessions, calls) == "");
  CHECK(calls > 0);
}

constexpr std::uint64_t edge32 = std::uint64_t{1} << 32;
constexpr std::uint64_t edge63 = std::uint64_t{1} << 63;

}  // namespace

TEST_CASE("every case on one GPU, ranks as threads", "[gpu1]") {
  require_all_pass({session(1, ranks_as::threads), session(2, ranks_as::threads)});
}

TEST_CASE("three ranks on one GPU", "[gpu1]") { require_all_pass({session(3, ranks_as::threads)}); }

// Kernels of different processes take turns on one GPU: slow, but a rank waits for a peer that is not even running.
TEST_CASE("counters near their edges on one GPU, among processes", "[gpu1]") {
  require_all_pass({session(1, ranks_as::processes), near_edge(session(2, ranks_as::processes), edge32)});
}

TEST_CASE("messages of many megabytes on one GPU", "[gpu1]") {
  require_all_pass({session(2, ranks_as::threads, large_session)});
}

TEST_CASE("every case on two GPUs", "[gpu2]") {
  require_all_pass({session(2, ranks_as::processes), session(2, ranks_as::threads)});
}

TEST_CASE("counters near their edges on two GPUs", "[gpu2]") {
  require_all_pass({near_edge(session(2, ranks_as::processes), edge32),
                    near_edge(session(2, ranks_as::processes), edge63),
                    near_edge(session(2, ranks_as::threads), edge63)});
}

TEST_CASE("messages of many megabytes on two GPUs", "[gpu2]") {
  require_all_pass({session(2, ranks_as::processes, large_session)});
}

// More ranks than GPUs: two threads of each process would share one, so all are threads of one process.
TEST_CASE("four ranks on two GPUs", "[gpu2]") { require_all_pass({session(4, ranks_as::threads)}); }

// For other environments of the process: chosen by tag only.
TEST_CASE("one case of each kind among processes", "[.][environment][processes]") {
  require_all_pass({session(2, ranks_as::processes, brief_session)});
}

TEST_CASE("one case of each kind among threads", "[.][environment][threads]") {
  require_all_pass({session(2, ranks_as::threads, brief_session)});
}
