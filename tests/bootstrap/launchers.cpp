// Real launchers, and the environments of those that are not installed: the ranks find each other.
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/leak_check.hpp"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using words = std::vector<std::string>;

// Starts a program with more variables; its standard output goes to `output`.
::pid_t start(const words& command, const std::vector<std::pair<std::string, std::string>>& variables, int output) {
  const ::pid_t child = ::fork();
  if (child != 0) return child;
  ::dup2(output, 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PEERLESS_RANK",
                           "PEERLESS_WORLD_SIZE", "PEERLESS_JOB_ID"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

// Exit code of `child`; it is killed after 60 s.
int wait_for(::pid_t child) {
  for (int i = 0; i < 6'000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

struct captured {
  int ends[2];
  captured() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  ~captured() { ::close(ends[0]); }
  int input() const { return ends[1]; }
  // After all writers have ended; short texts only.
  std::string text() {
    ::close(ends[1]);
    std::string all;
    char chunk[4096];
    for (::ssize_t got; (got = ::read(ends[0], chunk, sizeof chunk)) > 0;)
      all.append(chunk, static_cast<std::size_t>(got));
    return all;
  }
};

void check_met(const std::string& text, int size) {
  for (int rank = 0; rank < size; ++rank) {
    CHECK_THAT(text, peerless::test::contains("rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                              " met its peers"));
  }
}

}  // namespace

TEST_CASE("ranks under a real mpirun meet, two jobs at once too") {
  const std::string mpirun = PEERLESS_TEST_MPIRUN;
  if (::access(mpirun.c_str(), X_OK) != 0) PEERLESS_SKIP("no mpirun here");
  words command = {mpirun};
  if (::geteuid() == 0) command.push_back("--allow-run-as-root");
  for (const char* word : {"--oversubscribe", "-n", "3", PEERLESS_TEST_RANK, "expect", "Open MPI"})
    command.emplace_back(word);
  captured one, two;
  const ::pid_t first = start(command, {}, one.input());
  const ::pid_t second = start(command, {}, two.input());
  const int code = wait_for(first);
  CHECK(code == 0);
  CHECK(wait_for(second) == 0);
  check_met(one.text(), 3);
  check_met(two.text(), 3);
}

TEST_CASE("ranks with the variables of torchrun, Slurm and our own meet, two jobs at once too") {
  struct launcher {
    std::string name, rank, size;
    std::vector<std::pair<std::string, std::string>> job[2];  // what tells two jobs apart
  };
  const std::vector<launcher> launchers = {
      {"torchrun",
       "RANK",
       "WORLD_SIZE",
       {{{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29511"}},
        {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29512"}}}},
      {"Slurm",
       "SLURM_PROCID",
       "SLURM_NTASKS",
       {{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}, {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}}},
      {"own variables",
       "PEERLESS_RANK",
       "PEERLESS_WORLD_SIZE",
       {{{"PEERLESS_JOB_ID", "launchers-a"}}, {{"PEERLESS_JOB_ID", "launchers-b"}}}},
  };
  for (const launcher& each : launchers) {
    captured output[2];
    std::vector<::pid_t> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      for (int job = 0; job < 2; ++job) {
        auto variables = each.job[job];
        variables.emplace_back(each.rank, std::to_string(rank));
        variables.emplace_back(each.size, "3");
        ranks.push_back(start({PEERLESS_TEST_RANK, "expect", each.name}, variables, output[job].input()));
      }
    }
    for (const ::pid_t rank : ranks) CHECK(wait_for(rank) == 0);
    check_met(output[0].text(), 3);
    check_met(output[1].text(), 3);
  }
}

TEST_CASE("ranks that a script starts without a name meet by their session") {
  captured output;
  std::vector<::pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(start({PEERLESS_TEST_RANK}, {{"PEERLESS_RANK", std::to_string(rank)}, {"PEERLESS_WORLD_SIZE", "2"}},
                          output.input()));
  }
  for (const ::pid_t rank : ranks) CHECK(wait_for(rank) == 0);
  check_met(output.text(), 2);
}
