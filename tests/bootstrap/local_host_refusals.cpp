// Ranks that do not fit together: one typed error with both values on every rank, well within the deadline.
#include "support/catch.hpp"

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

#include <peerless/bootstrap/local_host.hpp>

#include "outcome.hpp"

using peerless::deadline;
using peerless::errc;
using peerless::job_identity;
using peerless::local_host_bootstrap;
using peerless::local_host_options;
using namespace peerless::test;
using namespace std::chrono_literals;

namespace {

// What a rank says of itself, and when it comes.
struct claim {
  int rank;
  int size;
  std::uint64_t layout_hash = 1;
  std::chrono::milliseconds late{0};
};

// Waits until every process has started, so that short deadlines measure the rendezvous and not the machine.
void start_together(rank_context& context) {
  context.enter_phase(1);
  for (int other = 0; other < context.world_size(); ++other) context.wait_for_phase(other, 1);
}

// All connect under one name with 30 s to go; the outcome of each is in the result.
run_result connect_all(const std::vector<claim>& claims, const std::function<void(local_host_options&)>& adapt = {}) {
  const auto job = unique_job();
  return run_bare(static_cast<int>(claims.size()), ranks_as::processes, [&](rank_context& context) {
    const claim& mine = claims[static_cast<std::size_t>(context.rank())];
    start_together(context);
    std::this_thread::sleep_for(mine.late);
    local_host_options options;
    options.deadline = 30s;
    options.layout_hash = mine.layout_hash;
    options.refusal_grace = 1500ms;
    if (adapt) adapt(options);
    const std::size_t before = open_descriptors();
    record_outcome(context.record(), [&] { (void)local_host_bootstrap::connect(job, mine.rank, mine.size, options); });
    context.require(open_descriptors() == before, "descriptors", "left behind by a refusal");
  });
}

void check_all(const run_result& result, errc code, const std::vector<std::string>& parts,
               std::chrono::milliseconds within = 10s) {
  CHECK(result.problems() == "");
  for (int each = 0; each < result.world_size(); ++each) {
    INFO("process " << each << ": " << text_of(result[each]));
    CHECK(code_of(result[each]) == code);
    for (const std::string& part : parts) CHECK_THAT(text_of(result[each]), contains(part));
    CHECK(elapsed_of(result[each]) < within);
  }
}

}  // namespace

TEST_CASE("world sizes that differ") {
  SECTION("a larger one") {
    check_all(connect_all({{0, 3}, {1, 3}, {2, 4}}), errc::rendezvous_mismatch,
              {"has 4 ranks", "says 3", "PEERLESS_JOB_ID"});
  }
  SECTION("a smaller one") {
    check_all(connect_all({{0, 3}, {1, 2}, {2, 3}}), errc::rendezvous_mismatch, {"has 2 ranks", "says 3"});
  }
  SECTION("a rank that comes after the refusal is told too") {
    check_all(connect_all({{0, 3}, {1, 4}, {2, 3, 1, 700ms}}), errc::rendezvous_mismatch, {"has 4 ranks", "says 3"});
  }
}

TEST_CASE("a rank that is there twice") {
  SECTION("rank 1") {
    check_all(connect_all({{0, 3}, {1, 3}, {1, 3}}), errc::rendezvous_mismatch, {"rank 1", "PEERLESS_JOB_ID"});
  }
  SECTION("rank 0") {
    check_all(connect_all({{0, 2}, {0, 2}}), errc::rendezvous_mismatch, {"rank 0", "PEERLESS_JOB_ID"});
  }
}

TEST_CASE("a rank out of range") {
  check_all(connect_all({{0, 3}, {1, 3}, {3, 3}}), errc::rendezvous_mismatch, {"rank 3", "0 to 2"});
  check_all(connect_all({{0, 2}, {-1, 2}}), errc::rendezvous_mismatch, {"rank -1", "0 to 1"});
}

TEST_CASE("another layout hash") {
  check_all(connect_all({{0, 3, 77}, {1, 3, 77}, {2, 3, 78}}), errc::rendezvous_mismatch, {"77", "78", "one version"});
}

TEST_CASE("two jobs of one name at once") {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto result =
        connect_all({{0, 2}, {1, 2}, {0, 2}, {1, 2}}, [](local_host_options& options) { options.deadline = 5s; });
    CHECK(result.problems() == "");
    // Ranks of the two may pair up before the others come (nothing tells them apart): then those that are left over
    // are refused or time out. Whatever happens, it is typed, names the cure, and nobody waits longer than told.
    for (int each = 0; each < 4; ++each) {
      INFO("process " << each << ": " << text_of(result[each]));
      CHECK(elapsed_of(result[each]) < 8s);
      const errc code = code_of(result[each]);
      if (code == errc::ok) continue;
      CHECK((code == errc::rendezvous_mismatch || code == errc::rendezvous_timeout || code == errc::peer_died));
      CHECK_THAT(text_of(result[each]), contains("PEERLESS_JOB_ID"));
    }
  }
}

TEST_CASE("two jobs of one name, one incomplete when the other starts") {
  check_all(connect_all({{0, 2}, {1, 2, 1, 600ms}, {0, 2, 1, 300ms}, {1, 2, 1, 600ms}}), errc::rendezvous_mismatch,
            {"rank 0", "PEERLESS_JOB_ID"});
}

TEST_CASE("a second job of one name while the first runs") {
  const auto job = unique_job();
  const auto result = run_bare(4, ranks_as::processes, [&](rank_context& context) {
    const int rank = context.rank() % 2;
    if (context.rank() >= 2) {
      for (const int first : {0, 1}) context.wait_for_phase(first, 1);
      record_outcome(context.record(), [&] { (void)local_host_bootstrap::connect(job, rank, 2, {.deadline = 20s}); });
      return context.enter_phase(2);
    }
    // The first job meets twice under its name and is not disturbed by the second.
    record_outcome(context.record(), [&] {
      auto boot = local_host_bootstrap::connect(job, rank, 2, {.deadline = 20s});
      auto again = local_host_bootstrap::connect(job, rank, 2, {.deadline = 20s});
      context.enter_phase(1);
      for (const int second : {2, 3}) context.wait_for_phase(second, 2);
      boot.barrier(deadline::after(10s));
      again.barrier(deadline::after(10s));
    });
  });
  CHECK(result.problems() == "");
  for (const int first : {0, 1}) CHECK(code_of(result[first]) == errc::ok);
  for (const int second : {2, 3}) {
    INFO("process " << second << ": " << text_of(result[second]));
    CHECK(code_of(result[second]) == errc::rendezvous_mismatch);
    CHECK_THAT(text_of(result[second]), contains("another job of this name is running"));
    CHECK_THAT(text_of(result[second]), contains("PEERLESS_JOB_ID"));
    CHECK(elapsed_of(result[second]) < 6s);
  }
}

TEST_CASE("a job may start under the name of one that was killed, though a child of its rank 0 lives on") {
  const auto job = unique_job();
  run_options run;
  run.killed = {0, 1};
  run.during = [](supervisor& hand) {
    for (const int first : {0, 1}) rank_context::wait_until([&] { return hand.record(first).phase.load() == 1; }, 20s);
    for (const int first : {0, 1}) hand.signal(first, SIGKILL);
    for (const int second : {2, 3}) hand.record(second).command.store(1);
  };
  const auto result = run_bare(4, ranks_as::processes, [&](rank_context& context) {
    const int rank = context.rank() % 2;
    if (context.rank() >= 2) rank_context::wait_until([&] { return context.record().command.load() == 1; }, 20s);
    auto boot = local_host_bootstrap::connect(job, rank, 2, {.deadline = 20s});
    if (context.rank() >= 2) return boot.barrier(deadline::after(10s));
    if (rank == 0 && ::fork() == 0) {
      std::this_thread::sleep_for(1s);
      ::_exit(0);
    }
    context.enter_phase(1);
    std::this_thread::sleep_for(20s);
  }, run);
  CHECK(result.problems() == "");
}

TEST_CASE("missing ranks are named on every rank that came, within the deadline") {
  const auto quick = [](local_host_options& options) { options.deadline = 1'500ms; };
  SECTION("two of five") {
    check_all(connect_all({{0, 5}, {2, 5}, {4, 5}}, quick), errc::rendezvous_timeout,
              {"missing ranks 1, 3 of 5", "PEERLESS_JOB_ID"}, 3s);
  }
  SECTION("rank 0") {
    check_all(connect_all({{1, 3}, {2, 3}}, quick), errc::rendezvous_timeout,
              {"missing rank 0 of 3", "PEERLESS_JOB_ID"}, 3s);
  }
  SECTION("the earliest deadline counts") {
    const auto job = unique_job();
    const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
      start_together(context);
      local_host_options options;
      options.deadline = context.rank() == 1 ? 1'500ms : 30'000ms;
      record_outcome(context.record(), [&] { (void)local_host_bootstrap::connect(job, context.rank(), 4, options); });
    });
    check_all(result, errc::rendezvous_timeout, {"missing rank 3 of 4"}, 8s);  // rank 0 stays for its refusal_grace
  }
}

TEST_CASE("nonsense of one rank alone") {
  const auto code = [](int rank, int size) {
    try {
      (void)local_host_bootstrap::connect(unique_job(), rank, size, {.deadline = 100ms});
    } catch (const peerless::error& caught) {
      return caught.code();
    }
    return errc::ok;
  };
  CHECK(code(0, 0) == errc::invalid_argument);
  CHECK(code(0, -1) == errc::invalid_argument);
  CHECK(code(0, 65) == errc::unsupported);
  CHECK(code(1, 1) == errc::rendezvous_mismatch);
  CHECK(code(0, 1) == errc::ok);
}

TEST_CASE("ranks that meet in different calls") {
  const auto meet = [](const std::function<void(rank_context&, peerless::bootstrap_ref)>& call) {
    return run_ranks(4, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref boot) {
      boot.barrier(deadline::after(10s));
      record_outcome(context.record(), [&] { call(context, boot); });
      const errc first = code_of(context.record());
      const std::string text = text_of(context.record());
      record_outcome(context.record(), [&] { boot.barrier(deadline::after(10s)); });
      context.require(code_of(context.record()) == first && text_of(context.record()) == text, "later call",
                      "the failure does not stick");
    });
  };
  const auto soon = [] { return deadline::after(10s); };
  SECTION("sizes") {
    const auto result = meet([&](rank_context& context, peerless::bootstrap_ref boot) {
      const std::size_t bytes = context.rank() == 2 ? 24 : 16;
      std::vector<std::byte> mine(bytes), all(bytes * 4);
      boot.all_gather(mine, all, soon());
    });
    check_all(result, errc::rendezvous_mismatch, {"16 bytes", "24 bytes"});
  }
  SECTION("kinds") {
    const auto result = meet([&](rank_context& context, peerless::bootstrap_ref boot) {
      if (context.rank() == 0) return boot.barrier(soon());
      boot.all_gather({}, {}, soon());
    });
    check_all(result, errc::rendezvous_mismatch, {"barrier", "all_gather"});
  }
  SECTION("roots") {
    const auto result = meet([&](rank_context& context, peerless::bootstrap_ref boot) {
      (void)boot.broadcast_fd(1, context.rank() == 3 ? 1 : 0, soon());
    });
    check_all(result, errc::rendezvous_mismatch, {"root 0", "root 1"});
  }
  SECTION("a bad descriptor, of rank 0 or another") {
    for (const int root : {0, 2}) {
      const auto result =
          meet([&](rank_context&, peerless::bootstrap_ref boot) { (void)boot.broadcast_fd(-1, root, soon()); });
      check_all(result, errc::system_error, {"rank " + std::to_string(root)});
    }
  }
}
