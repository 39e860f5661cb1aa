// Ranks that are processes: they find each other, exchange, and leave nothing behind.
#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <peerless/bootstrap/local_host.hpp>
#include <peerless/core/shared_segment.hpp>

#include "outcome.hpp"

using peerless::deadline;
using peerless::errc;
using peerless::job_identity;
using peerless::local_host_bootstrap;
using peerless::local_host_options;
using peerless::unique_fd;
using namespace peerless::test;
using namespace std::chrono_literals;

namespace {
deadline soon() { return deadline::after(20s); }

void exchange(local_host_bootstrap& boot, rank_context& context) {
  const int world = context.world_size();
  for (int round = 0; round < 12; ++round) {
    const auto all = peerless::all_gather_value(boot, context.rank() * 1000 + round, soon());
    for (int rank = 0; rank < world; ++rank) {
      context.require(all[static_cast<std::size_t>(rank)] == rank * 1000 + round, "all_gather",
                      "wrong value of rank " + std::to_string(rank));
    }
    boot.barrier(soon());
  }
}
}  // namespace

TEST_CASE("every world from 1 to 16 meets and exchanges values") {
  for (const int world : {1, 2, 3, 4, 5, 8, 13, 16}) {
    const auto job = unique_job();
    const auto result = run_bare(world, ranks_as::processes, [&](rank_context& context) {
      const std::size_t before = open_descriptors();
      {
        auto boot = local_host_bootstrap::connect(job, context.rank(), context.world_size());
        context.require(boot.rank() == context.rank() && boot.size() == context.world_size() && !boot.same_process(),
                        "connect", "wrong place");
        exchange(boot, context);
      }
      context.require(open_descriptors() == before, "descriptors",
                      std::to_string(open_descriptors()) + ", before " + std::to_string(before));
      context.require(thread_count() == 1, "threads", "a thread was started");
    });
    CHECK(result.problems() == "");
  }
}

TEST_CASE("large contributions, more than any socket buffer holds") {
  constexpr std::size_t bytes = 600'001;
  const auto result = run_ranks(8, ranks_as::processes, [](rank_context& context, peerless::bootstrap_ref boot) {
    const auto value = [](int rank, std::size_t i) {
      return static_cast<std::byte>((static_cast<std::size_t>(rank) * 131 + i * 7) & 255);
    };
    std::vector<std::byte> mine(bytes), all(bytes * 8, std::byte{0xee});
    for (std::size_t i = 0; i < bytes; ++i) mine[i] = value(context.rank(), i);
    boot.all_gather(mine, all, soon());
    std::size_t wrong = 0;
    for (int rank = 0; rank < 8; ++rank) {
      for (std::size_t i = 0; i < bytes; ++i)
        wrong += all[static_cast<std::size_t>(rank) * bytes + i] != value(rank, i);
    }
    context.require(wrong == 0, "all_gather", std::to_string(wrong) + " wrong bytes");
    std::vector<std::byte> too_large(std::size_t{9} << 20), result_of_that(std::size_t{72} << 20);
    record_outcome(context.record(), [&] { boot.all_gather(too_large, result_of_that, soon()); });
    context.require(code_of(context.record()) == errc::invalid_argument, "all_gather",
                    "a contribution over the bound was taken");
    boot.barrier(soon());  // the refused call had no effect
  });
  CHECK(result.problems() == "");
}

TEST_CASE("a descriptor reaches every rank, from any root, in large worlds too") {
  for (const int world : {2, 5, 16}) {
    const auto result =
        run_ranks(world, ranks_as::processes, [world](rank_context& context, peerless::bootstrap_ref boot) {
          const std::size_t before = open_descriptors();
          for (const int root : {0, 1, world - 1}) {
            peerless::shared_segment segment;
            if (context.rank() == root) segment = peerless::shared_segment::create(8192);
            unique_fd fd = boot.broadcast_fd(segment.fd(), root, soon());
            context.require(fd && fd.get() != segment.fd(), "broadcast_fd", "no descriptor of its own");
            context.require((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0, "broadcast_fd", "not closed on exec");
            const auto attached = peerless::shared_segment::attach(std::move(fd), 8192);
            attached.data()[context.rank()] = static_cast<std::byte>(context.rank() + 1);
            boot.barrier(soon());
            for (int rank = 0; rank < world; ++rank) {
              context.require(attached.data()[rank] == static_cast<std::byte>(rank + 1), "broadcast_fd",
                              "not one memory");
            }
            boot.barrier(soon());
          }
          context.require(open_descriptors() == before, "descriptors", "left behind");
        });
    CHECK(result.problems() == "");
  }
}

TEST_CASE("the same ranks meet again and again under one name, whoever is faster") {
  const auto job = unique_job();
  const auto result = run_bare(4, ranks_as::processes, [&](rank_context& context) {
    for (int round = 0; round < 40; ++round) {
      auto boot = local_host_bootstrap::connect(job, context.rank(), 4);
      const auto all = peerless::all_gather_value(boot, round, soon());
      for (const int other : all) context.require(other == round, "all_gather", "met a rank of another round");
    }
  });
  CHECK(result.problems() == "");
}

TEST_CASE("two groups of the same ranks live at once") {
  const auto job = unique_job();
  const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    auto first = local_host_bootstrap::connect(job, context.rank(), 3);
    auto second = local_host_bootstrap::connect(job, context.rank(), 3);
    exchange(second, context);
    exchange(first, context);
  });
  CHECK(result.problems() == "");
}

TEST_CASE("ranks that start late are waited for, in any order") {
  const auto job = unique_job();
  const auto result = run_bare(4, ranks_as::processes, [&](rank_context& context) {
    std::this_thread::sleep_for(100ms * (3 - context.rank()));  // rank 0 last
    auto boot = local_host_bootstrap::connect(job, context.rank(), 4);
    exchange(boot, context);
  });
  CHECK(result.problems() == "");
}

TEST_CASE("two jobs of different names run side by side") {
  const auto first = unique_job();
  const auto second = unique_job();
  const auto result = run_bare(6, ranks_as::processes, [&](rank_context& context) {
    const bool one = context.rank() % 2 == 0;
    auto boot = local_host_bootstrap::connect(one ? first : second, context.rank() / 2, 3);
    for (int round = 0; round < 20; ++round) {
      for (const int other : peerless::all_gather_value(boot, one ? 1 : 2, soon()))
        context.require(other == (one ? 1 : 2), "all_gather", "jobs mixed");
    }
  });
  CHECK(result.problems() == "");
}

TEST_CASE("every rank can watch every other") {
  for (const bool use_pidfd : {true, false}) {
    const auto job = unique_job();
    const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
      local_host_options options;
      options.use_pidfd = use_pidfd;
      auto boot = local_host_bootstrap::connect(job, context.rank(), 3, options);
      const auto peers = boot.peers();
      const auto pids = peerless::all_gather_value(boot, static_cast<int>(::getpid()), soon());
      context.require(peers.size() == 3, "peers", "not one a rank");
      for (int rank = 0; rank < 3; ++rank) {
        const auto& peer = peers[static_cast<std::size_t>(rank)];
        context.require(peer.pid == pids[static_cast<std::size_t>(rank)], "peers", "wrong pid");
        context.require(static_cast<bool>(peer.process) == (use_pidfd && rank != context.rank()), "peers", "pidfd");
        context.require(static_cast<bool>(peer.hang_up), "peers", "life line");
      }
      boot.barrier(soon());
    });
    CHECK(result.problems() == "");
  }
}

TEST_CASE("using the bootstrap in a forked child is a typed error") {
  const auto result = run_ranks(2, ranks_as::processes, [](rank_context& context, peerless::bootstrap_ref boot) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      record_outcome(context.record(), [&] { boot.barrier(soon()); });
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    context.require(code_of(context.record()) == errc::forked, "child", "took part");
    boot.barrier(soon());
  });
  CHECK(result.problems() == "");
}
