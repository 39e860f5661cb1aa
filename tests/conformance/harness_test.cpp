// The harness can fail: every kind of trouble that it watches for is made once, and must be told.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/run_ranks.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::test::contains;

TEST_CASE("a quiet run has no problems and counts what ranks report") {
  for (ranks_as how : {ranks_as::processes, ranks_as::threads}) {
    auto const run = run_ranks(3, how, [](rank_context& context, peerless::bootstrap_ref group) {
      auto const ranks = peerless::all_gather_value(group, context.rank(), peerless::deadline::after(10s));
      context.require(ranks == std::vector<int>{0, 1, 2}, "all_gather", "wrong ranks");
      context.record().verified = 10 + static_cast<unsigned>(context.rank());
    });
    CHECK(run.problems() == "");
    CHECK(run.calls_verified() == 10);
    CHECK(run.results_verified() == 33);
  }
}

TEST_CASE("failures, exceptions and bad ends are told with their rank") {
  for (ranks_as how : {ranks_as::processes, ranks_as::threads}) {
    auto const run = run_bare(2, how, [](rank_context& context) {
      if (context.rank() == 1) context.fail("a case", "it went wrong");
      throw std::runtime_error("out of luck");
    });
    CHECK_THAT(run.problems(), contains("rank 1: a case: it went wrong"));
    CHECK_THAT(run.problems(), contains("rank 0: the rank ended with an exception: out of luck"));
  }
  auto const died = run_bare(2, ranks_as::processes, [](rank_context& context) {
    if (context.rank() == 1) ::kill(::getpid(), SIGKILL);
  });
  CHECK_THAT(died.problems(), contains("rank 1 was not to be killed: ended by signal 9"));
  auto const lived = run_bare(2, ranks_as::processes, [](rank_context&) {}, {.killed = {0}});
  CHECK_THAT(lived.problems(), contains("rank 0 was to be killed: exit code 0"));
}

TEST_CASE("a rank that hangs or is stopped is killed after the time limit") {
  for (int number : {0, SIGSTOP}) {
    auto const start = std::chrono::steady_clock::now();
    auto const run = run_bare(2, ranks_as::processes,
                              [number](rank_context& context) {
                                if (context.rank() == 0) return;
                                if (number != 0) ::raise(number);
                                for (;;) std::this_thread::sleep_for(1s);
                              },
                              {.timeout = 300ms});
    CHECK_THAT(run.problems(), contains("rank 1 did not end within"));
    CHECK(std::chrono::steady_clock::now() - start < 20s);
  }
}

TEST_CASE("what is left behind is told") {
  std::string const name = "/peerless-harness-" + std::to_string(::getpid());
  auto const shm = run_bare(1, ranks_as::processes,
                            [&](rank_context&) { ::close(::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600)); });
  ::shm_unlink(name.c_str());
  CHECK_THAT(shm.problems(), contains("/dev/shm entry left behind: " + name.substr(1)));

  auto const process = run_bare(1, ranks_as::processes, [](rank_context&) {
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      for (int i = 0; i < 60; ++i) std::this_thread::sleep_for(1s);
      std::_Exit(0);
    }
  });
  CHECK_THAT(process.problems(), contains("process left behind"));
  CHECK(child_processes().empty());

  leak_check const before;
  int const socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string const path = "peerless-harness-" + std::to_string(::getpid());
  path.copy(address.sun_path + 1, path.size());
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())) == 0);
  auto const problems = before.left_behind(100ms);
  ::close(socket);
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], contains("abstract socket left behind: @" + path));
  CHECK_THAT(problems[1], contains("descriptors"));
  CHECK(before.left_behind(100ms).empty());
}
