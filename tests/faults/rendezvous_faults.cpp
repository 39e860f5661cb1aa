// Groups that cannot form: one clear typed error on every rank that came, within the deadline, and nothing left behind.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <peerless/bootstrap/from_environment.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "fault.hpp"
#include "support/catch.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::errc;
using peerless::job_identity;
using peerless::local_host_bootstrap;

namespace {

using host_communicator = peerless::communicator<peerless::host>;

peerless::local_host_options within(std::chrono::milliseconds limit) {
  peerless::local_host_options options;
  options.deadline = limit * (under_tsan ? 4 : 1);
  options.refusal_grace = 500ms;
  return options;
}

// One sum among the ranks of a group: proof that it works.
bool sums_right(peerless::bootstrap_ref group) {
  host_communicator communicator(group, fault_options());
  float in[5], out[5] = {-1, -1, -1, -1, -1};
  for (int i = 0; i < 5; ++i) in[i] = static_cast<float>(group.rank() + i);
  communicator.all_reduce(in, out, 5, peerless::op::sum{}, peerless::host_stream{});
  int const n = group.size();
  for (int i = 0; i < 5; ++i) {
    if (out[i] != static_cast<float>(n * (n - 1) / 2 + n * i)) return false;
  }
  return true;
}

// Runs `step` and complains if it does not throw, or throws later than `limit`.
template <class Step>
void must_fail(rank_context& context, std::chrono::milliseconds limit, Step&& step) {
  if (!record_error(context, step)) return context.fail("a rendezvous that was to fail", "formed");
  std::int64_t const took = context.record().ended.elapsed_ns;
  context.require(took < std::chrono::nanoseconds(limit * (under_tsan ? 4 : 1)).count(),
                  "a rendezvous that was to fail", "took " + std::to_string(took / 1000000) + " ms");
}

}  // namespace

TEST_CASE("world sizes that differ are told to every rank") {
  job_identity const job = unique_job();
  auto const run = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    int const size = context.rank() == 2 ? 4 : 3;
    must_fail(context, 4s, [&] { local_host_bootstrap::connect(job, context.rank(), size, within(3s)); });
  });
  expectations told(run);
  for (int rank = 0; rank < 3; ++rank)
    told.failed(rank, {errc::rendezvous_mismatch}, std::nullopt).says(rank, "3").says(rank, "4");
  CHECK(told.text() == "");
}

TEST_CASE("a missing rank is named by all that came") {
  for (int missing : {0, 1, 2}) {
    job_identity const job = unique_job();
    auto const run = run_bare(2, ranks_as::processes, [&](rank_context& context) {
      int const rank = context.rank() + (context.rank() >= missing ? 1 : 0);
      must_fail(context, 3s, [&] { local_host_bootstrap::connect(job, rank, 3, within(800ms)); });
    });
    expectations told(run);
    for (int i = 0; i < 2; ++i) told.failed(i, {errc::rendezvous_timeout}, missing).says(i, std::to_string(missing));
    INFO("missing rank " << missing);
    CHECK(told.text() == "");
  }
}

TEST_CASE("a rank that is there twice is told to every rank") {
  job_identity const job = unique_job();
  auto const run = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    must_fail(context, 4s,
              [&] { local_host_bootstrap::connect(job, context.rank() == 2 ? 1 : context.rank(), 3, within(3s)); });
  });
  expectations told(run);
  for (int rank = 0; rank < 3; ++rank) told.failed(rank, {errc::rendezvous_mismatch}, std::nullopt);
  CHECK(told.text() == "");
}

TEST_CASE("two jobs run side by side") {
  job_identity const jobs[] = {unique_job(), unique_job()};
  auto const run = run_bare(6, ranks_as::processes, [&](rank_context& context) {
    auto group = local_host_bootstrap::connect(jobs[context.rank() % 2], context.rank() / 2, 3, within(20s));
    for (int i = 0; i < 20; ++i) context.require(sums_right(group), "a job beside another", "wrong sum");
  });
  CHECK(run.problems() == "");
}

TEST_CASE("two jobs of one name are told apart from none, and the advice is to name them") {
  job_identity const job = unique_job();
  auto const run = run_bare(4, ranks_as::processes, [&](rank_context& context) {
    // Two ranks 0 and two ranks 1: whoever meets, no group of strangers may come up on some ranks only. A group that
    // comes up stays until the others know, else the second pair would find the name free.
    record_error(context, [&] {
      auto group = local_host_bootstrap::connect(job, context.rank() / 2, 2, within(3s));
      context.require(sums_right(group), "two jobs of one name", "wrong sum");
      context.enter_phase(1);
      for (int rank = 0; rank < 4; ++rank) {
        context.require(context.wait_for_phase(rank, 1), "two jobs of one name", "a rank does not end");
      }
    });
    context.enter_phase(1);
  });
  expectations told(run);
  int formed = 0;
  bool advised = false;
  for (int rank = 0; rank < 4; ++rank) {
    if (run[rank].outcomes == 0) {
      ++formed;
      continue;
    }
    told.failed(rank, {errc::rendezvous_mismatch, errc::rendezvous_timeout, errc::peer_died}, std::nullopt);
    advised = advised || run[rank].ended.text.view().find("PEERLESS_JOB_ID") != std::string_view::npos;
  }
  CHECK(told.text() == "");
  CHECK((formed == 0 || formed == 2));
  CHECK(advised);
}

TEST_CASE("a rank that dies before the communicator is made is named by the others") {
  auto const run = run_ranks(3, ranks_as::processes,
                             [](rank_context& context, peerless::bootstrap_ref group) {
                               if (context.rank() == 1) {
                                 context.record().marked_ns = now_ns();
                                 ::kill(::getpid(), SIGKILL);
                               }
                               must_fail(context, 4s, [&] { host_communicator communicator(group, fault_options()); });
                             },
                             {.killed = {1}});
  expectations told(run);
  for (int rank : {0, 2}) told.failed(rank, {errc::peer_died}, 1);
  CHECK(told.text() == "");
}

TEST_CASE("a rank that never makes its communicator is named by the others") {
  for (ranks_as how : both_ways()) {
    auto const run = run_ranks(3, how, [](rank_context& context, peerless::bootstrap_ref group) {
      if (context.rank() == 2) {
        for (int rank : {0, 1})
          context.require(context.wait_for_phase(rank, 1), "waiting for the others", "they were not told");
        return;
      }
      auto options = fault_options();
      options.setup_deadline = 600ms;
      must_fail(context, 3s, [&] { host_communicator communicator(group, options); });
      context.enter_phase(1);
    });
    expectations told(run);
    for (int rank : {0, 1}) told.failed(rank, {errc::rendezvous_timeout}, 2);
    INFO("among " << name_of(how));
    CHECK(told.text() == "");
  }
}

TEST_CASE("options that differ or are out of range are told to every rank, and the group goes on") {
  for (ranks_as how : both_ways()) {
    auto const attempt = [&](const char* what, errc expected, auto&& change) {
      auto const run = run_ranks(3, how, [&](rank_context& context, peerless::bootstrap_ref group) {
        auto options = fault_options();
        if (context.rank() == 1) change(options);
        must_fail(context, 5s, [&] { host_communicator communicator(group, options); });
        context.require(sums_right(group), "a second try with equal options", "wrong sum");
      });
      expectations told(run);
      for (int rank = 0; rank < 3; ++rank) told.failed(rank, {expected}, std::nullopt);
      INFO(what << " among " << name_of(how));
      CHECK(told.text() == "");
    };
    attempt("slot size", errc::rendezvous_mismatch, [](auto& o) { o.sizes.sentinel_slot_bytes = 8192; });
    attempt("ring depth", errc::rendezvous_mismatch, [](auto& o) { o.sizes.bulk_depth = 4; });
    attempt("negative deadline", errc::invalid_argument, [](auto& o) { o.deadline = -5ms; });
    attempt("slot size out of range", errc::invalid_argument, [](auto& o) { o.sizes.flagged_slot_bytes = 100; });
    attempt("unknown transport", errc::invalid_argument, [](auto& o) { o.order = {"carrier pigeon"}; });
  }
}

TEST_CASE("memory that cannot be had is told to every rank with the need and the limit, and is not used") {
  for (bool everywhere : {false, true}) {
    auto const run = run_ranks(3, ranks_as::processes, [&](rank_context& context, peerless::bootstrap_ref group) {
      rlimit const before = [] {
        rlimit limit{};
        ::getrlimit(RLIMIT_FSIZE, &limit);
        return limit;
      }();
      std::size_t const descriptors = open_descriptors();
      if (everywhere || context.rank() == 0) {
        rlimit limit = before;
        limit.rlim_cur = 1 << 17;  // less than the smallest slots
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
      must_fail(context, 5s, [&] { host_communicator communicator(group, peerless::communicator_options{}); });
      ::setrlimit(RLIMIT_FSIZE, &before);
      context.require(open_descriptors() == descriptors, "descriptors after a failed construction",
                      std::to_string(open_descriptors()));
      context.require(sums_right(group), "after the limit was raised", "wrong sum");
    });
    expectations told(run);
    for (int rank = 0; rank < 3; ++rank) told.failed(rank, {errc::out_of_memory}, std::nullopt).says(rank, "131072");
    CHECK(told.text() == "");
  }
}

namespace {

// A process whose environment has nothing of any launcher but what `set` names.
fault_outcome launched_with(std::initializer_list<std::pair<const char*, const char*>> set,
                            peerless::launch_environment* launched = nullptr) {
  auto const run = run_bare(1, ranks_as::processes, [&](rank_context& context) {
    ::clearenv();
    for (auto const& [name, value] : set) ::setenv(name, value, 1);
    record_error(context, [&] {
      auto const got = peerless::from_environment();
      context.record().marked_ns = got.rank;
      context.record().command = static_cast<std::uint64_t>(got.size);
    });
  });
  CHECK(run.problems() == "");
  if (launched != nullptr)
    *launched = {static_cast<int>(run[0].marked_ns.load()), static_cast<int>(run[0].command.load()), 0, {}, ""};
  return run[0].ended;
}

void check_bad(const fault_outcome& outcome, const std::string& variable, const std::string& value) {
  INFO(variable << "=" << value << ": " << outcome.text.view());
  CHECK(outcome.errc() == errc::bad_environment);
  CHECK(outcome.text.view().find(variable) != std::string_view::npos);
  if (!value.empty()) CHECK(outcome.text.view().find(value) != std::string_view::npos);
}

}  // namespace

TEST_CASE("an environment that does not say the rank is refused with the variable's name and value") {
  peerless::launch_environment launched;
  CHECK(launched_with({{"RANK", "2"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "2"},
                       {"MASTER_ADDR", "localhost"},
                       {"MASTER_PORT", "29500"}},
                      &launched)
            .code == 0);
  CHECK(launched.rank == 2);
  CHECK(launched.size == 4);
  check_bad(launched_with({{"WORLD_SIZE", "4"}}), "RANK", "");
  check_bad(launched_with({{"RANK", "two"}, {"WORLD_SIZE", "4"}}), "RANK", "two");
  check_bad(launched_with({{"RANK", "2x"}, {"WORLD_SIZE", "4"}}), "RANK", "2x");
  check_bad(launched_with({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}), "RANK", "-1");
  check_bad(launched_with({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), "RANK", "4");
  check_bad(launched_with({{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "4"}}), "RANK", "99999999999999999999");
  check_bad(launched_with({{"RANK", "1"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE", "0");
  check_bad(launched_with({{"PEERLESS_RANK", "1.5"}, {"PEERLESS_WORLD_SIZE", "2"}}), "PEERLESS_RANK", "1.5");
}

TEST_CASE("options from the environment are parsed strictly") {
  auto const options_with = [](const char* name, const char* value) {
    auto const run = run_bare(1, ranks_as::processes, [&](rank_context& context) {
      ::setenv(name, value, 1);
      record_error(context, [&] {
        auto const options = peerless::communicator_options::from_environment();
        context.record().marked_ns = options.deadline.count();
      });
    });
    CHECK(run.problems() == "");
    return std::pair(run[0].ended, run[0].marked_ns.load());
  };
  CHECK(options_with("PEERLESS_DEADLINE_MS", "1234").second == 1234);
  CHECK(options_with("PEERLESS_DEADLINE_MS", "").second == 600000);
  check_bad(options_with("PEERLESS_DEADLINE_MS", "soon").first, "PEERLESS_DEADLINE_MS", "soon");
  check_bad(options_with("PEERLESS_DEADLINE_MS", "12s3").first, "PEERLESS_DEADLINE_MS", "12s3");
  check_bad(options_with("PEERLESS_SETUP_DEADLINE_MS", "-4").first, "PEERLESS_SETUP_DEADLINE_MS", "-4");
  check_bad(options_with("PEERLESS_LOG", "maybe").first, "PEERLESS_LOG", "maybe");
}

namespace {

void write_file(const char* path, const std::string& text) { std::ofstream(path) << text; }

// Moves the calling process's future children into a pid namespace of their own; false where the kernel forbids it.
bool enter_pid_namespace() {
  if (::unshare(CLONE_NEWPID) == 0) return true;
  std::string const user = std::to_string(::getuid()), group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return false;
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", user + " " + user + " 1");
  write_file("/proc/self/gid_map", group + " " + group + " 1");
  return true;
}

}  // namespace

// As in two containers that share a network: pids say nothing there, the descriptors of the processes do.
TEST_CASE("ranks in different pid namespaces meet, and a death is told across them") {
  job_identity const job = unique_job();
  auto const run = run_bare(2, ranks_as::processes, [&](rank_context& context) {
    if (context.rank() == 1) {
      if (!enter_pid_namespace()) {
        context.record().note.assign("not allowed");
        context.enter_phase(9);
        return;
      }
      pid_t const inner = ::fork();
      if (inner != 0) {
        ::waitpid(inner, nullptr, 0);
        return;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    } else {
      context.wait_for_phase(1, 1);
      if (context.record(1).phase == 9) return;
    }
    context.enter_phase(1);
    auto group = local_host_bootstrap::connect(job, context.rank(), 2, within(10s));
    host_communicator communicator(group, fault_options());
    float in = 1 + static_cast<float>(context.rank()), out = 0;
    auto const sum = [&] { communicator.all_reduce(&in, &out, 1, peerless::op::sum{}, peerless::host_stream{}); };
    // Rank 1 makes ten calls and ends; rank 0 may learn of it within the tenth, whose data it then has or has not.
    auto const ten_calls = [&] {
      for (int i = 0; i < 10; ++i) {
        out = 0;
        sum();
        context.require(out == 3, "a sum across pid namespaces", std::to_string(out));
      }
    };
    if (context.rank() == 1) {
      ten_calls();
      context.record().marked_ns = now_ns();
      ::kill(::getpid(), SIGKILL);  // ignored by the first process of a namespace, if it comes from inside
      std::_Exit(0);
    }
    must_fail(context, 4s, [&] {
      for (int i = 0; i < 100000; ++i) ten_calls();
    });
  });
  if (run[1].note.view() == "not allowed") PEERLESS_SKIP("this machine does not allow pid namespaces");
  CHECK(expectations(run).failed(0, {errc::peer_died}, 1).within(0, run[1].marked_ns, death_told_within_ns).text() ==
        "");
}
