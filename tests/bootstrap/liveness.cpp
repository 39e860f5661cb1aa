// The watch: a dead peer is told within 200 ms, a stopped or busy one never. Also run under ThreadSanitizer.
#include "support/catch.hpp"
#include "support/leak_check.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerless/bootstrap/detail/process.hpp>
#include <peerless/bootstrap/liveness.hpp>

using peerless::liveness_watch;
using peerless::peer_handle;
using peerless::unique_fd;
using namespace std::chrono_literals;
namespace detail = peerless::detail;

namespace {

// A process that does nothing until it is killed; it keeps its own end of a life line, as a rank does.
struct peer_process {
  ::pid_t pid = -1;
  unique_fd process;
  unique_fd hang_up;

  // `children`: how many processes of its own it forks first, which outlive it by a second.
  static peer_process start(int children = 0) {
    auto life = detail::life_line::make();
    peer_process made;
    made.pid = ::fork();
    if (made.pid == 0) {
      life.peers.reset();
      for (int i = 0; i < children; ++i) {
        if (::fork() == 0) {
          ::usleep(1'000'000);
          ::_exit(0);
        }
      }
      ::alarm(60);
      for (;;) ::pause();
    }
    made.process = detail::open_pidfd(made.pid);
    made.hang_up = std::move(life.peers);
    return made;
  }

  peer_process() = default;
  peer_process(peer_process&& other) noexcept
      : pid(std::exchange(other.pid, -1)), process(std::move(other.process)), hang_up(std::move(other.hang_up)) {}
  ~peer_process() {
    if (pid > 0) end();
  }

  void end() {
    ::kill(pid, SIGCONT);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }

  peer_handle handle(bool with_pidfd) const {
    return {with_pidfd ? process.duplicate() : unique_fd(), hang_up.duplicate(), pid};
  }
};

bool wait_until(const std::atomic<int>& value, int least, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (value.load() < least) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Rank 0 is this process, the others as given.
std::vector<peer_handle> handles_of(const std::vector<peer_process>& peers, bool with_pidfd) {
  std::vector<peer_handle> handles(1);
  for (const peer_process& peer : peers) handles.push_back(peer.handle(with_pidfd));
  return handles;
}

std::vector<peer_process> start(int count) {
  std::vector<peer_process> peers;
  for (int i = 0; i < count; ++i) peers.push_back(peer_process::start());
  return peers;
}

}  // namespace

TEST_CASE("a dead peer is told within 200 ms, once, by pidfd or by its life line") {
  for (const bool with_pidfd : {true, false}) {
    auto peers = start(3);
    if (with_pidfd && !peers[0].process) PEERLESS_SKIP("this kernel has no pidfds");
    std::atomic<int> deaths{0};
    std::atomic<int> last{-1};
    {
      const liveness_watch watch(handles_of(peers, with_pidfd), 0, [&](int rank) {
        last.store(rank);
        deaths.fetch_add(1);
      });
      CHECK_FALSE(watch.watches(0));
      CHECK(watch.watches(1));
      CHECK_FALSE(watch.watches(4));
      std::this_thread::sleep_for(50ms);
      CHECK(deaths.load() == 0);
      for (int i : {1, 0, 2}) {
        const int before = deaths.load();
        ::kill(peers[static_cast<std::size_t>(i)].pid, SIGKILL);
        CHECK(wait_until(deaths, before + 1, 200ms));
        CHECK(last.load() == i + 1);
      }
      std::this_thread::sleep_for(100ms);
      CHECK(deaths.load() == 3);
    }
  }
}

TEST_CASE("a peer that was dead before is told at once") {
  auto peers = start(1);
  std::vector<peer_handle> handles(1);
  handles.push_back(peers[0].handle(true));
  peers[0].end();
  std::atomic<int> deaths{0};
  const liveness_watch watch(std::move(handles), 0, [&](int) { deaths.fetch_add(1); });
  CHECK(wait_until(deaths, 1, 200ms));
}

TEST_CASE("children of a dead rank do not keep it alive") {
  std::vector<peer_process> peers;
  peers.push_back(peer_process::start(2));
  if (!peers[0].process) PEERLESS_SKIP("this kernel has no pidfds");
  std::this_thread::sleep_for(50ms);
  std::atomic<int> deaths{0};
  const liveness_watch watch(handles_of(peers, true), 0, [&](int) { deaths.fetch_add(1); });
  ::kill(peers[0].pid, SIGKILL);
  CHECK(wait_until(deaths, 1, 200ms));
}

TEST_CASE("a stopped peer, and one that has closed its life line, are alive") {
  auto peers = start(2);
  if (!peers[0].process) PEERLESS_SKIP("this kernel has no pidfds");
  std::vector<peer_handle> handles = handles_of(peers, true);
  auto gone = detail::life_line::make();
  handles[2].hang_up = std::move(gone.peers);
  gone.own.reset();
  std::atomic<int> deaths{0};
  const liveness_watch watch(std::move(handles), 0, [&](int) { deaths.fetch_add(1); });
  ::kill(peers[0].pid, SIGSTOP);
  std::this_thread::sleep_for(300ms);
  CHECK(deaths.load() == 0);
}

TEST_CASE("the tick comes regularly, deaths and failing callbacks notwithstanding") {
  auto peers = start(1);
  std::atomic<int> ticks{0}, deaths{0};
  const liveness_watch watch(
      handles_of(peers, false), 0,
      [&](int) {
        deaths.fetch_add(1);
        throw std::runtime_error("ignored");
      },
      [&] {
        ticks.fetch_add(1);
        throw std::runtime_error("ignored");
      },
      20ms);
  CHECK(wait_until(ticks, 3, 5s));
  ::kill(peers[0].pid, SIGKILL);
  CHECK(wait_until(deaths, 1, 200ms));
  const int before = ticks.load();
  CHECK(wait_until(ticks, before + 3, 5s));
}

TEST_CASE("starting and ending are quick and leave nothing") {
  const auto peers = start(2);
  const std::size_t descriptors = peerless::test::open_descriptors();
  const std::size_t threads = peerless::test::thread_count();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    const liveness_watch watch(handles_of(peers, i % 2 == 0), 0, [](int) {}, [] {}, std::chrono::hours(10'000));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  CHECK(peerless::test::open_descriptors() == descriptors);
  const auto until = std::chrono::steady_clock::now() + 2s;  // a joined thread may linger in /proc
  while (peerless::test::thread_count() != threads && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(1ms);
  CHECK(peerless::test::thread_count() == threads);
}

TEST_CASE("no signal of the application lands in the thread") {
  std::atomic<int> blocked{0};
  std::atomic<int> seen{0};
  const liveness_watch watch({}, 0, {}, [&] {
    ::sigset_t set;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &set);
    blocked.store(::sigismember(&set, SIGTERM) + ::sigismember(&set, SIGUSR1) + ::sigismember(&set, SIGALRM));
    seen.fetch_add(1);
  }, 5ms);
  CHECK(wait_until(seen, 1, 5s));
  CHECK(blocked.load() == 3);
  ::sigset_t here;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
  CHECK(::sigismember(&here, SIGUSR1) == 0);
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow a fork of a threaded process
TEST_CASE("a forked child that drops the watch neither hangs nor stops the parent's") {
  auto peers = start(1);
  std::atomic<int> deaths{0};
  auto watch = std::make_unique<liveness_watch>(handles_of(peers, true), 0, [&](int) { deaths.fetch_add(1); });
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    watch.reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  ::kill(peers[0].pid, SIGKILL);
  CHECK(wait_until(deaths, 1, 200ms));
}
#endif
