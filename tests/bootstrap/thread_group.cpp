// Ranks that are threads: exchange, deadlines, failures that stick. Also run under ThreadSanitizer.
#include "support/catch.hpp"
#include "support/leak_check.hpp"
#include "support/random.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <peerless/bootstrap/bootstrap_ref.hpp>
#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/core/shared_segment.hpp>

using peerless::deadline;
using peerless::errc;
using peerless::thread_bootstrap;
using peerless::thread_group;
using peerless::unique_fd;
using namespace std::chrono_literals;

namespace {

// How one thread ended: Catch2's assertions are for the main thread.
struct outcome {
  std::optional<peerless::error> failure;
  std::chrono::milliseconds elapsed{0};
  std::string wrong;

  errc code() const { return failure ? failure->code() : errc::ok; }
};

using body = std::function<void(thread_bootstrap&, outcome&)>;

std::vector<outcome> run(thread_group& group, const std::vector<int>& ranks, const body& each) {
  std::vector<outcome> outcomes(static_cast<std::size_t>(group.size()));
  std::vector<std::thread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&, rank] {
      outcome& mine = outcomes[static_cast<std::size_t>(rank)];
      const auto start = std::chrono::steady_clock::now();
      try {
        thread_bootstrap boot = group.rank(rank);
        each(boot, mine);
      } catch (const peerless::error& caught) {
        mine.failure = caught;
      } catch (const std::exception&) {
        mine.wrong = "another exception";
      }
      mine.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<int> all_of(int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  return ranks;
}

deadline soon() { return deadline::after(20s); }

}  // namespace

TEST_CASE("every world exchanges values, sizes changing from call to call") {
  for (int world = 1; world <= 16; ++world) {
    thread_group group(world);
    const auto outcomes = run(group, all_of(world), [&](thread_bootstrap& boot, outcome& mine) {
      if (boot.size() != world || !boot.same_process()) mine.wrong = "size";
      for (int round = 0; round < 60; ++round) {
        const std::size_t bytes = static_cast<std::size_t>(round * 7 % 33);
        std::vector<std::byte> own(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
          own[i] = static_cast<std::byte>(boot.rank() * 31 + round + static_cast<int>(i));
        std::vector<std::byte> all(bytes * static_cast<std::size_t>(world), std::byte{0xee});
        boot.all_gather(own, all, soon());
        for (int rank = 0; rank < world; ++rank) {
          for (std::size_t i = 0; i < bytes; ++i) {
            if (all[static_cast<std::size_t>(rank) * bytes + i] !=
                static_cast<std::byte>(rank * 31 + round + static_cast<int>(i)))
              mine.wrong = "value";
          }
        }
        if (round % 3 == 0) boot.barrier(soon());
      }
    });
    for (const outcome& each : outcomes) {
      CHECK(each.wrong.empty());
      CHECK(each.code() == errc::ok);
    }
  }
}

TEST_CASE("nobody leaves a barrier before all have entered") {
  thread_group group(4);
  std::vector<std::int64_t> entered(4), left(4);  // written by one thread each, read after join
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  run(group, all_of(4), [&](thread_bootstrap& boot, outcome&) {
    const auto rank = static_cast<std::size_t>(boot.rank());
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * boot.rank()));
    entered[rank] = now();
    boot.barrier(soon());
    left[rank] = now();
  });
  for (const auto out : left) {
    for (const auto in : entered) CHECK(out >= in);
  }
}

TEST_CASE("every rank gets a descriptor of its own of the root's file, from any root") {
  const std::size_t before = peerless::test::open_descriptors();
  {
    thread_group group(5);
    const auto outcomes = run(group, all_of(5), [&](thread_bootstrap& boot, outcome& mine) {
      for (int root = 0; root < 5; ++root) {
        peerless::shared_segment segment;
        if (boot.rank() == root) segment = peerless::shared_segment::create(4096);
        unique_fd fd = boot.broadcast_fd(boot.rank() == root ? segment.fd() : -1, root, soon());
        if (fd.get() == segment.fd()) mine.wrong = "not a descriptor of its own";
        const auto attached = peerless::shared_segment::attach(std::move(fd), 4096);
        attached.data()[boot.rank()] = static_cast<std::byte>(root + 1);
        boot.barrier(soon());
        for (int rank = 0; rank < 5; ++rank) {
          if (attached.data()[rank] != static_cast<std::byte>(root + 1)) mine.wrong = "not the same memory";
        }
      }
    });
    for (const outcome& each : outcomes) {
      CHECK(each.wrong.empty());
      CHECK(each.code() == errc::ok);
    }
  }
  CHECK(peerless::test::open_descriptors() == before);
}

TEST_CASE("missing ranks are named on every rank that came, within the deadline, and ever after") {
  thread_group group(4);
  const auto outcomes =
      run(group, {0, 2}, [](thread_bootstrap& boot, outcome&) { boot.barrier(deadline::after(150ms)); });
  for (const int rank : {0, 2}) {
    const outcome& each = outcomes[static_cast<std::size_t>(rank)];
    REQUIRE(each.code() == errc::rendezvous_timeout);
    CHECK_THAT(each.failure->message(), peerless::test::contains("missing ranks 1, 3 of 4"));
    CHECK(each.failure->rank() == 1);
    CHECK(each.elapsed < 5s);
  }
  // Later use reports the same at once, a rank that only now comes included.
  const auto later = run(group, all_of(4), [](thread_bootstrap& boot, outcome&) { boot.barrier(soon()); });
  for (const outcome& each : later) {
    REQUIRE(each.code() == errc::rendezvous_timeout);
    CHECK_THAT(each.failure->message(), peerless::test::contains("missing ranks 1, 3 of 4"));
    CHECK(each.elapsed < 5s);
  }
}

TEST_CASE("the earliest limit counts for all") {
  thread_group group(3);
  const auto outcomes = run(group, {0, 1}, [](thread_bootstrap& boot, outcome&) {
    boot.barrier(deadline::after(boot.rank() == 0 ? 100ms : 60'000ms));
  });
  CHECK(outcomes[0].code() == errc::rendezvous_timeout);
  CHECK(outcomes[1].code() == errc::rendezvous_timeout);
  CHECK(outcomes[1].elapsed < 10s);
}

TEST_CASE("a limit beyond the clock is no limit and no overflow") {
  thread_group group(2);
  const auto outcomes = run(group, all_of(2), [](thread_bootstrap& boot, outcome&) {
    if (boot.rank() == 1) std::this_thread::sleep_for(50ms);
    boot.barrier(deadline::after(std::chrono::milliseconds::max()));
  });
  for (const outcome& each : outcomes) CHECK(each.code() == errc::ok);
}

TEST_CASE("different calls that meet are told on all ranks with both values") {
  const auto meet = [](const std::function<void(thread_bootstrap&)>& call) {
    thread_group group(3);
    return run(group, all_of(3), [&](thread_bootstrap& boot, outcome&) { call(boot); });
  };
  SECTION("sizes") {
    const auto outcomes = meet([](thread_bootstrap& boot) {
      const std::size_t bytes = boot.rank() == 1 ? 12 : 8;
      std::vector<std::byte> own(bytes), all(bytes * 3);
      boot.all_gather(own, all, soon());
    });
    for (const outcome& each : outcomes) {
      REQUIRE(each.code() == errc::rendezvous_mismatch);
      CHECK_THAT(each.failure->message(), peerless::test::contains("12 bytes"));
      CHECK_THAT(each.failure->message(), peerless::test::contains("8 bytes"));
    }
  }
  SECTION("kinds") {
    const auto outcomes = meet([](thread_bootstrap& boot) {
      if (boot.rank() == 2) return boot.barrier(soon());
      boot.all_gather({}, {}, soon());
    });
    for (const outcome& each : outcomes) {
      REQUIRE(each.code() == errc::rendezvous_mismatch);
      CHECK_THAT(each.failure->message(), peerless::test::contains("barrier"));
      CHECK_THAT(each.failure->message(), peerless::test::contains("all_gather"));
    }
  }
  SECTION("roots") {
    const auto outcomes =
        meet([](thread_bootstrap& boot) { (void)boot.broadcast_fd(0, boot.rank() == 0 ? 1 : 0, soon()); });
    for (const outcome& each : outcomes) CHECK(each.code() == errc::rendezvous_mismatch);
  }
  SECTION("a bad descriptor") {
    const auto outcomes = meet([](thread_bootstrap& boot) { (void)boot.broadcast_fd(-1, 1, soon()); });
    for (const outcome& each : outcomes) {
      CHECK(each.code() == errc::system_error);
      CHECK(each.failure->rank() == 1);
    }
  }
}

TEST_CASE("a thread that is unwound by an exception is reported at once") {
  thread_group group(3);
  const auto outcomes = run(group, all_of(3), [](thread_bootstrap& boot, outcome&) {
    if (boot.rank() == 1) throw std::runtime_error("out of luck");
    boot.barrier(deadline::after(60s));
  });
  for (const int rank : {0, 2}) {
    const outcome& each = outcomes[static_cast<std::size_t>(rank)];
    REQUIRE(each.code() == errc::peer_closed);
    CHECK(each.failure->rank() == 1);
    CHECK(each.elapsed < 20s);
  }
}

TEST_CASE("a rank is taken once at a time, and may be given back") {
  thread_group group(2);
  {
    auto one = group.rank(0);
    try {
      (void)group.rank(0);
      FAIL("a rank was given twice");
    } catch (const peerless::error& caught) {
      CHECK(caught.code() == errc::invalid_usage);
    }
    auto moved = std::move(one);
    CHECK(moved.rank() == 0);
  }
  CHECK(group.rank(0).rank() == 0);
  CHECK_THROWS_AS(group.rank(2), peerless::error);
  CHECK_THROWS_AS(group.rank(-1), peerless::error);
  CHECK_THROWS_AS(thread_group(0), peerless::error);
}

TEST_CASE("ranks that leave and come again meet again, whoever is faster") {
  thread_group group(4);
  std::vector<outcome> outcomes = run(group, all_of(4), [](thread_bootstrap& boot, outcome&) { boot.barrier(soon()); });
  for (int phase = 0; phase < 20; ++phase) {
    outcomes = run(group, all_of(4), [](thread_bootstrap& boot, outcome& mine) {
      if (peerless::all_gather_value(boot, boot.rank(), soon()) != std::vector<int>{0, 1, 2, 3}) mine.wrong = "value";
    });
    for (const outcome& each : outcomes) CHECK((each.code() == errc::ok && each.wrong.empty()));
  }
}

TEST_CASE("a bootstrap may outlive its group object") {
  std::optional<thread_bootstrap> boot;
  {
    thread_group group(1);
    boot.emplace(group.rank(0));
  }
  boot->barrier(soon());
  const auto peers = boot->peers();
  REQUIRE(peers.size() == 1);
  CHECK_FALSE(peers[0].process);
  CHECK_FALSE(peers[0].hang_up);
  CHECK(peers[0].pid == ::getpid());
  std::byte one{};
  CHECK_THROWS_AS(boot->all_gather({&one, 1}, {}, soon()), peerless::error);
}
