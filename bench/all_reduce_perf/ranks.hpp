// The ranks of a run: processes that this one forks, or threads.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerless/core/error.hpp>
#include <peerless/core/system_error.hpp>
#include <peerless/core/unique_fd.hpp>

#include "choice.hpp"
#include "exit_code.hpp"

namespace peerless::bench {

// A rank's whole work; its result is an exit code.
using rank_body = std::function<int(int rank)>;

inline void report(int rank, const char* what) {
  std::fprintf(stderr, "peerless_all_reduce_perf: rank %d: %s\n", rank, what);
}

inline int exit_code_of(const error& e) {
  const bool refused = e.code() == errc::bad_environment || e.code() == errc::unsupported;
  return refused ? exit_usage : exit_failed;
}

// Runs a rank; what it throws becomes a line on stderr and an exit code.
inline int run_guarded(int rank, const rank_body& body) {
  try {
    return body(rank);
  } catch (const std::invalid_argument& e) {
    report(rank, e.what());
    return exit_usage;
  } catch (const error& e) {
    report(rank, e.what());
    return exit_code_of(e);
  } catch (const std::exception& e) {
    report(rank, e.what());
    return exit_failed;
  }
}

// A name that no other run has, on this machine or in another container that shares its network namespace.
inline std::string unique_job_name() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    peerless::detail::raise_errno(errno, "getrandom for the name of the job");
  }
  std::string name = "all_reduce_perf-" + std::to_string(::getpid()) + "-";
  for (const unsigned char byte : bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    name += text;
  }
  return name;
}

// Forks a child that runs `body` and ends with what it returns. The child dies with this process. CUDA does not survive
// a fork: this process must not have touched it.
inline ::pid_t fork_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const ::pid_t parent = ::getpid();
  const ::pid_t child = ::fork();
  if (child < 0) peerless::detail::raise_errno(errno, "fork of a rank");
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(exit_failed);  // it has ended in between
  const int code = body();
  std::fflush(nullptr);
  ::_exit(code);
}

// A process a rank. Returns when all have ended: the exit code of the first one that failed, else the largest. When one
// fails or is killed, the others get a second to notice and to say so, then they are killed; so this waits for as long
// as the slowest rank's own deadlines allow.
inline int run_as_processes(int world, const rank_body& body) {
  std::vector<::pid_t> running;
  try {
    for (int rank = 0; rank < world; ++rank) {
      running.push_back(fork_child([&] { return run_guarded(rank, body); }));
    }
  } catch (...) {
    for (const ::pid_t pid : running) ::kill(pid, SIGKILL);
    throw;
  }
  int result = exit_ok;
  bool killed = false;
  std::size_t n_running = running.size();
  auto patience = std::chrono::steady_clock::time_point::max();
  while (n_running > 0) {
    const bool failing = patience != std::chrono::steady_clock::time_point::max();
    int status = 0;
    const ::pid_t ended = ::waitpid(-1, &status, failing && !killed ? WNOHANG : 0);
    if (ended < 0 && errno != EINTR) peerless::detail::raise_errno(errno, "waiting for the ranks");
    if (ended <= 0) {
      if (failing && std::chrono::steady_clock::now() > patience) {
        for (const ::pid_t pid : running) {
          if (pid > 0) ::kill(pid, SIGKILL);
        }
        killed = true;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      continue;
    }
    const auto found = std::find(running.begin(), running.end(), ended);
    if (found == running.end()) continue;
    *found = -1;
    --n_running;
    int code = exit_failed;
    if (WIFEXITED(status)) {
      code = WEXITSTATUS(status);
    } else if (!killed) {
      const std::string what = std::string("was killed by signal: ") + ::strsignal(WTERMSIG(status));
      report(static_cast<int>(found - running.begin()), what.c_str());
    }
    if (!failing) result = std::max(result, code);
    if (code > exit_wrong_data && !failing) patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  }
  return result;
}

// A thread a rank, in this process. Returns when all have ended. A rank that fails ends the process at once, since
// nothing else ends what the others wait for.
inline int run_as_threads(int world, const rank_body& body) {
  std::vector<int> codes(static_cast<std::size_t>(world), exit_ok);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const int code = run_guarded(rank, body);
      if (code > exit_wrong_data) {
        std::fflush(nullptr);
        ::_exit(code);
      }
      codes[static_cast<std::size_t>(rank)] = code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

// Counts GPUs in a child, so that this process never touches CUDA. A driver that does not answer within `bound` counts
// as no GPU.
inline census count_in_child(const std::function<census()>& count, std::chrono::milliseconds bound) {
  int ends[2];
  if (::pipe(ends) != 0) peerless::detail::raise_errno(errno, "pipe to the process that counts GPUs");
  unique_fd reader(ends[0]), writer(ends[1]);
  const ::pid_t child = fork_child([&] {
    const census found = count();
    const std::string text = std::to_string(found.n_gpus) + ' ' + found.reason;
    return ::write(writer.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
  });
  writer = unique_fd();
  census found{0, "CUDA did not say how many there are"};
  ::pollfd wait{reader.get(), POLLIN, 0};
  char text[512];
  const int ready = ::poll(&wait, 1, static_cast<int>(std::min<long long>(bound.count(), 60'000)));
  const ssize_t length = ready > 0 ? ::read(reader.get(), text, sizeof text - 1) : 0;
  if (length > 0) {
    text[length] = 0;
    char* rest = text;
    found.n_gpus = static_cast<int>(std::strtol(text, &rest, 10));
    found.reason = *rest != 0 ? rest + 1 : "";
  }
  if (length <= 0) ::kill(child, SIGKILL);
  // A child that is stuck in the driver may outlast its kill: it is not waited for long, and dies with this process.
  for (int i = 0; i < 500 && ::waitpid(child, nullptr, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return found;
}

}  // namespace peerless::bench
