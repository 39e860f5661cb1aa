// The sessions of backends that need no device.
#include <vector>

#include "suite.hpp"
#include "support/catch.hpp"

using namespace peerless::test;

namespace {

// Multiplies the random sequences; ranks that outnumber the processors, and ThreadSanitizer, get short ones.
constexpr unsigned most_effort = under_tsan ? 1 : 2;

std::vector<setting> full(ranks_as how, const std::vector<int>& worlds) {
  std::vector<setting> sessions;
  for (int world : worlds) {
    setting s{.world = world, .how = how, .kind = full_session, .options = small_slots()};
    s.effort = world <= 4 ? most_effort : 1;
    s.options.duty_seed = how == ranks_as::threads ? static_cast<std::uint64_t>(world) : 0;
    sessions.push_back(s);
  }
  return sessions;
}

void require_all_pass(const std::vector<setting>& sessions) {
  std::uint64_t calls = 0;
  CHECK(run_sessions(sessions, calls) == "");
  CHECK(calls > 0);
}

}  // namespace

TEST_CASE("every case among processes, worlds 1 to 8", "[processes]") {
  require_all_pass(full(ranks_as::processes, {1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_CASE("every case among threads, worlds 1 to 8", "[threads]") {
  require_all_pass(
      full(ranks_as::threads, under_tsan ? std::vector<int>{2, 3, 4} : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_CASE("counters near the edges of 32 and 64 bits", "[threads]") {
  std::vector<setting> sessions;
  for (std::uint64_t edge :
       {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 62, std::uint64_t{1} << 63}) {
    for (int world : {2, 3}) {
      if (world == 2 && under_tsan) continue;
      setting s{.world = world,
                .how = world == 2 ? ranks_as::processes : ranks_as::threads,
                .kind = epoch_session,
                .options = small_slots()};
      s.options.first_epoch = edge - 40;  // the edge is passed within the first case, by each protocol in turn
      s.options.duty_seed = edge;
      sessions.push_back(s);
    }
  }
  require_all_pass(sessions);
}

TEST_CASE("twelve and sixteen ranks", "[processes]") {
  require_all_pass({{.world = 12, .how = ranks_as::threads, .kind = wide_session, .options = small_slots()},
                    {.world = 16, .how = ranks_as::processes, .kind = wide_session, .options = small_slots()},
                    {.world = 16, .how = ranks_as::threads, .kind = wide_session, .options = small_slots()}});
}

TEST_CASE("messages of many megabytes with the default slots", "[processes]") {
  require_all_pass({{.world = 2,
                     .how = ranks_as::processes,
                     .kind = large_session,
                     .options = default_slots(),
                     .arena_bytes = std::size_t{44} << 20},
                    {.world = 3, .how = ranks_as::threads, .kind = wide_session, .options = default_slots()}});
}
