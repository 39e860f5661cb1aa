// Runs the ranks of a test as processes, or as threads of one process, under a supervisor that never waits without end.
//
// The supervisor (the test program itself) makes no CUDA call and has no threads, so it may fork at any time. Ranks
// report through shared memory; whatever they left behind (segments, sockets, processes) is a failure of the run.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <peerless/bootstrap/bootstrap_ref.hpp>
#include <peerless/bootstrap/local_host.hpp>
#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/core/error.hpp>

#include "leak_check.hpp"
#include "random.hpp"
#include "shared_report.hpp"

namespace peerless::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_tsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif
#else
inline constexpr bool under_tsan = false;
#endif

enum class ranks_as : std::uint8_t { processes, threads };

constexpr const char* name_of(ranks_as how) { return how == ranks_as::processes ? "processes" : "threads"; }

// Both ways; under ThreadSanitizer, which does not see other processes, threads only.
inline std::vector<ranks_as> both_ways() {
  return under_tsan ? std::vector<ranks_as>{ranks_as::threads}
                    : std::vector<ranks_as>{ranks_as::processes, ranks_as::threads};
}

// What the body of a rank sees of its run.
class rank_context {
 public:
  rank_context(int rank, shared_report& report) : rank_(rank), report_(&report) {}

  int rank() const { return rank_; }
  int world_size() const { return report_->world_size(); }
  rank_record& record() { return (*report_)[rank_]; }
  rank_record& record(int rank) { return (*report_)[rank]; }

  void fail(std::string_view where, std::string_view text) { record().fail(where, text); }
  bool require(bool condition, std::string_view where, std::string_view text) {
    if (!condition) fail(where, text);
    return condition;
  }

  void enter_phase(std::uint64_t phase) { record().phase.store(phase, std::memory_order_release); }

  // Waits until rank `rank` has come to `phase`; false after `limit`.
  bool wait_for_phase(int rank, std::uint64_t phase, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return wait_until([&] { return record(rank).phase.load(std::memory_order_acquire) >= phase; }, limit);
  }

  template <class Condition>
  static bool wait_until(Condition&& condition, std::chrono::milliseconds limit) {
    auto const until = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

 private:
  int rank_;
  shared_report* report_;
};

// Handed to run_options::during, in the supervisor, while the ranks run.
class supervisor {
 public:
  supervisor(shared_report& report, const std::vector<pid_t>& pids) : report_(&report), pids_(&pids) {}
  rank_record& record(int rank) { return (*report_)[rank]; }
  // Sends a signal to the process of a rank (of all ranks, if they are threads).
  void signal(int rank, int number) {
    ::kill((*pids_)[pids_->size() == 1 ? 0 : static_cast<std::size_t>(rank)], number);
  }

 private:
  shared_report* report_;
  const std::vector<pid_t>* pids_;
};

struct run_options {
  std::chrono::milliseconds timeout{120'000};  // of the whole run; four times that under ThreadSanitizer
  std::set<int> killed{};                      // ranks that are to end by SIGKILL
  std::function<void(supervisor&)> during{};
  bool check_leaks = true;
};

// What became of a run.
class run_result {
 public:
  explicit run_result(std::shared_ptr<shared_report> report) : report_(std::move(report)) {}

  const rank_record& operator[](int rank) const { return (*report_)[rank]; }
  int world_size() const { return report_->world_size(); }
  void add_problem(std::string text) { problems_.push_back(std::move(text)); }

  // Collective calls that every rank verified, and verifications of all ranks together.
  std::uint64_t calls_verified() const {
    std::uint64_t least = ~std::uint64_t{0};
    for (int r = 0; r < world_size(); ++r) least = std::min(least, (*report_)[r].verified.load());
    return least;
  }
  std::uint64_t results_verified() const {
    std::uint64_t sum = 0;
    for (int r = 0; r < world_size(); ++r) sum += (*report_)[r].verified.load();
    return sum;
  }

  // Empty if all went well; else one line a problem. Tests compare it with "".
  std::string problems() const {
    std::string text;
    for (auto const& problem : problems_) text += problem + "\n";
    return text;
  }

 private:
  std::shared_ptr<shared_report> report_;
  std::vector<std::string> problems_;
};

using rank_body = std::function<void(rank_context&)>;
using rank_body_with_bootstrap = std::function<void(rank_context&, peerless::bootstrap_ref)>;

namespace detail {

inline void run_body(const rank_body& body, int rank, shared_report& report) {
  rank_context context(rank, report);
  context.record().pid.store(::getpid());
  try {
    body(context);
  } catch (const peerless::error& e) {
    context.fail("the rank ended with an error", e.what());
  } catch (const std::exception& e) {
    context.fail("the rank ended with an exception", e.what());
  }
  context.record().finished.store(1, std::memory_order_release);
}

// In a fresh child: nothing of the test framework may act, and the child must not outlive its supervisor.
inline void settle_child(pid_t supervisor) {
  for (int number : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGTERM, SIGINT, SIGBUS}) ::signal(number, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor) std::_Exit(2);
}

// exit, not _exit: sanitizers and the CUDA runtime have their say at exit.
template <class Body>
pid_t fork_child(Body&& body) {
  std::fflush(nullptr);
  pid_t const supervisor = ::getpid();
  pid_t const pid = ::fork();
  if (pid == 0) {
    settle_child(supervisor);
    body();
    std::exit(0);
  }
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork of a rank");
  return pid;
}

inline std::string status_text(int status) {
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  return "status " + std::to_string(status);
}

// Waits for all children until the deadline, then kills the rest by pid. Returns one wait status a child, or nothing
// for those that had to be killed.
inline std::vector<std::optional<int>> wait_all(const std::vector<pid_t>& pids,
                                                std::chrono::steady_clock::time_point until) {
  std::vector<std::optional<int>> statuses(pids.size());
  std::vector<bool> gone(pids.size(), false);
  std::size_t left = pids.size();
  while (left > 0) {
    for (std::size_t i = 0; i < pids.size(); ++i) {
      int status = 0;
      if (!gone[i] && ::waitpid(pids[i], &status, WNOHANG) == pids[i]) {
        statuses[i] = status;
        gone[i] = true;
        --left;
      }
    }
    if (left == 0) break;
    if (std::chrono::steady_clock::now() >= until) {
      for (std::size_t i = 0; i < pids.size(); ++i) {
        if (gone[i]) continue;
        ::kill(pids[i], SIGKILL);
        ::waitpid(pids[i], nullptr, 0);
      }
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return statuses;
}

inline void run_threads(int world, const rank_body& body, shared_report& report) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back([&, rank] { run_body(body, rank, report); });
  for (auto& thread : threads) thread.join();
}

}  // namespace detail

// Runs `body` once a rank and waits for all of them. Threads live in one child process of their own.
inline run_result run_bare(int world, ranks_as how, const rank_body& body, run_options options = {}) {
  adopt_orphans();
  auto report = std::make_shared<shared_report>(world);
  run_result result(report);
  leak_check const before;
  auto const timeout = options.timeout * (under_tsan ? 4 : 1);
  auto const until = std::chrono::steady_clock::now() + timeout;

  std::vector<pid_t> pids;
  if (how == ranks_as::threads) {
    pids.push_back(detail::fork_child([&] { detail::run_threads(world, body, *report); }));
  } else {
    for (int rank = 0; rank < world; ++rank) {
      pids.push_back(detail::fork_child([&, rank] { detail::run_body(body, rank, *report); }));
    }
  }
  if (options.during) {
    supervisor hand(*report, pids);
    options.during(hand);
  }
  auto const statuses = detail::wait_all(pids, until);

  for (std::size_t i = 0; i < pids.size(); ++i) {
    int const rank = static_cast<int>(i);
    std::string const who = how == ranks_as::threads ? "the process of all ranks" : "rank " + std::to_string(rank);
    bool const to_be_killed = how == ranks_as::processes && options.killed.count(rank) != 0;
    if (!statuses[i].has_value()) {
      result.add_problem(who + " did not end within " + std::to_string(timeout.count()) + " ms and was killed");
    } else if (to_be_killed != (WIFSIGNALED(*statuses[i]) && WTERMSIG(*statuses[i]) == SIGKILL)) {
      result.add_problem(who + " was " + (to_be_killed ? "" : "not ") +
                         "to be killed: " + detail::status_text(*statuses[i]));
    } else if (!to_be_killed && *statuses[i] != 0) {
      result.add_problem(who + ": " + detail::status_text(*statuses[i]));
    }
  }
  for (int rank = 0; rank < world; ++rank) {
    rank_record const& record = (*report)[rank];
    std::string const who = "rank " + std::to_string(rank);
    std::uint32_t const failures = record.failures.load();
    for (std::uint32_t i = 0; i < failures && i < rank_record::kept_failures; ++i) {
      result.add_problem(who + ": " + std::string(record.texts[i].where.view()) + ": " +
                         std::string(record.texts[i].text.view()));
    }
    if (failures > rank_record::kept_failures)
      result.add_problem(who + ": " + std::to_string(failures) + " failures in all");
    if (record.finished.load() == 0 && options.killed.count(rank) == 0) result.add_problem(who + " did not finish");
  }
  if (options.check_leaks) {
    for (auto& leak : before.left_behind()) result.add_problem(std::move(leak));
  }
  return result;
}

// A job identity that no other run on this machine has.
inline peerless::job_identity unique_job() {
  static std::uint64_t counter = 0;
  std::uint64_t const mark =
      mix(static_cast<std::uint64_t>(now_ns()) + mix(static_cast<std::uint64_t>(::getpid()) + ++counter));
  return job_identity::named("peerless-test-" + std::to_string(::getpid()) + "-" + std::to_string(mark));
}

// As run_bare, with a bootstrap of the right kind for each rank: a socket among processes, a thread_group among
// threads.
inline run_result run_ranks(int world, ranks_as how, const rank_body_with_bootstrap& body, run_options options = {}) {
  if (how == ranks_as::threads) {
    auto group = std::make_shared<peerless::thread_group>(world);
    return run_bare(
        world, how,
        [group, &body](rank_context& context) {
          auto bootstrap = group->rank(context.rank());
          body(context, peerless::bootstrap_ref(bootstrap));
        },
        std::move(options));
  }
  peerless::job_identity const job = unique_job();
  return run_bare(
      world, how,
      [&](rank_context& context) {
        auto bootstrap = peerless::local_host_bootstrap::connect(job, context.rank(), context.world_size());
        body(context, peerless::bootstrap_ref(bootstrap));
      },
      std::move(options));
}

}  // namespace peerless::test
