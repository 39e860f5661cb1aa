// How peerless_all_reduce_perf starts ranks, ends them, and bounds what they do.
#include "support/catch.hpp"

#include <fcntl.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "ranks.hpp"
#include "support/leak_check.hpp"
#include "watchdog.hpp"

using namespace peerless;
using namespace peerless::bench;
using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

namespace {

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(30)); }

bool took_less(clock_type::time_point begin, milliseconds bound) { return clock_type::now() - begin < bound; }

// The children complain on stderr; the tests' own output stays readable.
class silence {
 public:
  silence() : before_(::dup(STDERR_FILENO)) {
    const unique_fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    ::dup2(null.get(), STDERR_FILENO);
  }
  ~silence() { ::dup2(before_.get(), STDERR_FILENO); }

 private:
  unique_fd before_;
};

}  // namespace

TEST_CASE("processes that are right give the largest code") {
  const test::leak_check before;
  CHECK(run_as_processes(3, [](int) { return exit_ok; }) == exit_ok);
  CHECK(run_as_processes(3, [](int rank) { return rank == 1 ? exit_wrong_data : exit_ok; }) == exit_wrong_data);
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("the first failure decides, and the others are ended") {
  const silence quiet;
  const test::leak_check before;
  const auto begin = clock_type::now();
  const auto waits = [](int rank) {
    if (rank == 1) throw std::invalid_argument("refused");
    sleep_long();
    return exit_ok;
  };
  CHECK(run_as_processes(3, waits) == exit_usage);
  const auto killed = [](int rank) {
    if (rank == 2) ::raise(SIGKILL);
    sleep_long();
    return exit_ok;
  };
  CHECK(run_as_processes(3, killed) == exit_failed);
  CHECK(took_less(begin, milliseconds(15'000)));
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("what a rank throws becomes its exit code") {
  const silence quiet;
  CHECK(run_guarded(0, [](int rank) { return rank; }) == 0);
  CHECK(run_guarded(0, [](int) -> int { throw error(errc::timeout, "late"); }) == exit_failed);
  CHECK(run_guarded(0, [](int) -> int { throw error(errc::unsupported, "no"); }) == exit_usage);
  CHECK(run_guarded(0, [](int) -> int { throw std::runtime_error("oops"); }) == exit_failed);
  CHECK(run_as_threads(2, [](int rank) { return rank; }) == exit_wrong_data);
}

TEST_CASE("a step that does not end ends the process") {
  const silence quiet;
  const auto begin = clock_type::now();
  CHECK(run_as_processes(1, [](int rank) {
          watchdog guard(rank, milliseconds(100));
          guard.step("sleeping");
          sleep_long();
          return exit_ok;
        }) == exit_failed);
  CHECK(took_less(begin, milliseconds(10'000)));
}

TEST_CASE("steps that end, and none at all, pass the watchdog") {
  CHECK(run_as_processes(1, [](int rank) {
          watchdog guard(rank, milliseconds(500));
          for (int i = 0; i < 10; ++i) {
            guard.step("short");
            std::this_thread::sleep_for(milliseconds(100));
          }
          guard.step({});
          std::this_thread::sleep_for(milliseconds(1000));
          return exit_ok;
        }) == exit_ok);
}

TEST_CASE("GPUs are counted in a child") {
  const test::leak_check before;
  const auto counted = [](census what) { return count_in_child([=] { return what; }, milliseconds(5000)); };
  CHECK(counted({4, ""}).n_gpus == 4);
  CHECK(counted({0, "no driver here"}).reason == "no driver here");
  const int here = ::getpid();
  CHECK(count_in_child([=] { return census{::getpid() == here ? 1 : 2, ""}; }, milliseconds(5000)).n_gpus == 2);
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("a driver that does not answer, or crashes, is no GPU") {
  const test::leak_check before;
  const auto begin = clock_type::now();
  const census hung = count_in_child([] { return sleep_long(), census{1, ""}; }, milliseconds(200));
  CHECK(hung.n_gpus == 0);
  CHECK(!hung.reason.empty());
  const census crashed = count_in_child([] { return ::raise(SIGKILL), census{1, ""}; }, milliseconds(10'000));
  CHECK(crashed.n_gpus == 0);
  CHECK(took_less(begin, milliseconds(8'000)));
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("no two jobs have one name") { CHECK(unique_job_name() != unique_job_name()); }
