// Communicators where memory is short: each rung of the ladder, why it was taken, and that nothing is left of the
// others.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "support/catch.hpp"
#include "support/run_ranks.hpp"
#include "support/scarce_space.hpp"

using namespace peerless::test;
using namespace std::chrono_literals;
using peerless::communicator_options;
using peerless::errc;
using peerless::host;
using peerless::host_stream;
using peerless::layout_sizes;
using peerless::least_two_shot_world;
using peerless::make_layout;
using peerless::memory_origin;
using peerless::memory_rungs;
using peerless::smaller;
namespace op = peerless::op;

namespace {

using scarce_communicator = peerless::communicator<scarce_host>;

communicator_options options() {
  communicator_options made;
  made.deadline = 20s;
  made.setup_deadline = 20s;
  return made;
}

// The bytes of a segment of this world after `steps` steps down from the default.
std::size_t bytes_after(int steps, int world) {
  layout_sizes sizes;
  sizes.world_size = static_cast<std::uint32_t>(world);
  for (int i = 0; i < steps; ++i) sizes = smaller(sizes);
  return make_layout(sizes).total_bytes;
}

// Sums of every protocol, among them the sizes of decoding.
template <class Communicator>
void sum_all_sizes(rank_context& context, Communicator& c) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{2048}, std::size_t{5000}, std::size_t{300'000}}) {
    std::vector<float> in(n), out(n, -1.0f);
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<float>(c.rank() + static_cast<int>(i % 50));
    c.all_reduce(std::span<const float>(in), std::span<float>(out), op::sum{}, host_stream{});
    const int world = c.world_size();
    bool right = true;
    for (std::size_t i = 0; i < n; ++i)
      right = right && out[i] == static_cast<float>(world * (world - 1) / 2 + world * static_cast<int>(i % 50));
    context.require(right, "a sum of " + std::to_string(n) + " elements", "is wrong");
  }
}

void says(rank_context& context, const std::string& line, std::initializer_list<std::string> parts) {
  for (const auto& part : parts) context.require(line.find(part) != std::string::npos, "no \"" + part + "\" in", line);
  context.require(line.find('\n') == std::string::npos, "more than a line", line);
}

// A world of two, both ways; `body` gets a fresh bootstrap.
void run_both_ways(const rank_body_with_bootstrap& body, const std::vector<ranks_as>& ways = both_ways()) {
  for (ranks_as how : ways) {
    INFO("among " << name_of(how));
    CHECK(run_ranks(2, how, body).problems() == "");
  }
}

// Makes a communicator, sums, and tells describe(); then everything must be as before.
template <class Communicator>
void come_up(rank_context& context, peerless::bootstrap_ref group, const communicator_options& with,
             std::initializer_list<std::string> parts) {
  const std::size_t descriptors = open_descriptors();
  {
    Communicator c(group, with);
    sum_all_sizes(context, c);
    says(context, c.describe(), parts);
  }
  group.barrier(peerless::deadline::after(20s));
  if (!group.same_process())
    context.require(open_descriptors() == descriptors, "descriptors", std::to_string(open_descriptors()));
}

template <class Communicator>
void fail_with(rank_context& context, peerless::bootstrap_ref group, const communicator_options& with, errc code,
               std::initializer_list<std::string> parts) {
  const std::size_t descriptors = open_descriptors(), mappings = shared_mappings();
  try {
    Communicator c(group, with);
    context.fail("a communicator", "came up: " + c.describe());
  } catch (const peerless::error& e) {
    context.require(e.code() == code, "another error", e.what());
    says(context, e.what(), parts);
  }
  group.barrier(peerless::deadline::after(20s));
  if (group.same_process()) return;
  context.require(open_descriptors() == descriptors, "descriptors", std::to_string(open_descriptors()));
  context.require(shared_mappings() == mappings, "mappings", std::to_string(shared_mappings()));
}

}  // namespace

TEST_CASE("sizes shrink to a least that still decodes, and each step is a legal option") {
  for (const std::uint32_t world : {1u, 2u, 3u, 4u, 16u}) {
    communicator_options made;
    made.sizes.world_size = world;
    std::size_t before = ~std::size_t{0};
    int steps = 0;
    for (;; made.sizes = smaller(made.sizes), ++steps) {
      CHECK_NOTHROW(peerless::detail::require_valid(made));
      const std::size_t bytes = make_layout(made.sizes).total_bytes;
      CHECK(bytes < before);
      before = bytes;
      if (smaller(made.sizes) == made.sizes) break;
    }
    CHECK(steps == 3);
    CHECK(made.sizes.sentinel_slot_bytes == 8 << 10);
    CHECK(made.sizes.world_size == world);
    if (world <= 4) CHECK(before <= world * (std::size_t{world < least_two_shot_world ? 256u : 420u} << 10));
    // README's formula for the default, but for counters.
    const std::size_t two_shot = world < least_two_shot_world ? 0 : (world + 1) * (std::size_t{4} << 20);
    const std::size_t stated = world * (std::size_t{9} << 20) + two_shot;
    const std::size_t needed = make_layout({.world_size = world}).total_bytes;
    CHECK(needed >= stated);
    CHECK(needed <= stated + stated / 50);
  }
  // What a user made smaller than the least stays.
  const layout_sizes tiny{.world_size = 2,
                          .bulk_blocks = 3,
                          .bulk_depth = 2,
                          .bulk_chunk_bytes = 48,
                          .sentinel_slot_bytes = 256,
                          .flagged_slot_bytes = 128};
  CHECK(smaller(tiny) == tiny);
  const layout_sizes odd{.world_size = 2, .bulk_chunk_bytes = 4112, .sentinel_slot_bytes = 128 * 1001};
  CHECK(smaller(odd).bulk_chunk_bytes == 2048);
  CHECK(smaller(odd).sentinel_slot_bytes == 128 * 250);
}

TEST_CASE("rungs: smaller segments, then allocations among threads") {
  const layout_sizes sizes;
  for (const bool same_process : {false, true}) {
    const auto all = memory_rungs(sizes, true, same_process);
    REQUIRE(all.size() == (same_process ? 8 : 4));
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i].origin == (i < 4 ? memory_origin::segment : memory_origin::allocation));
      CHECK(all[i].sizes == (i % 4 == 0 ? sizes : smaller(all[i - 1].sizes)));
    }
    const auto fixed = memory_rungs(sizes, false, same_process);
    REQUIRE(fixed.size() == (same_process ? 2 : 1));
    for (const auto& rung : fixed) CHECK(rung.sizes == sizes);
  }
}

TEST_CASE("enough memory: what was asked for, and describe() says how much") {
  run_both_ways([](rank_context& context, peerless::bootstrap_ref group) {
    come_up<peerless::communicator<host>>(context, group, options(),
                                          {std::to_string(bytes_after(0, 2)) + " bytes of staging memory (memfd)"});
  });
}

TEST_CASE("a memlock limit: smaller slots, on all ranks if on one") {
  for (int steps = 1; steps <= 3; ++steps) {
    for (int scarce_rank : {-1, 0, 1}) {
      INFO(steps << " steps, rank " << scarce_rank);
      run_both_ways([&](rank_context& context, peerless::bootstrap_ref group) {
        if (scarce_rank < 0 || context.rank() == scarce_rank || group.same_process())
          scarcity::most_bytes = bytes_after(steps, 2);
        group.barrier(peerless::deadline::after(20s));
        come_up<scarce_communicator>(
            context, group, options(),
            {std::to_string(bytes_after(steps, 2)) + " bytes of staging memory (memfd), slots of ", ", since ",
             "does not let " + std::to_string(bytes_after(0, 2)) + " bytes be pinned"});
        context.require(scarcity::registrations == 0, "registrations left", std::to_string(scarcity::registrations));
      });
    }
  }
}

TEST_CASE("registration refused: allocation among threads, a typed error among processes") {
  for (const errc refusal : {errc::out_of_memory, errc::unsupported}) {
    INFO(peerless::describe(refusal));
    run_both_ways([&](rank_context& context, peerless::bootstrap_ref group) {
      scarcity::refusal = refusal;
      scarcity::most_bytes = 0;
      group.barrier(peerless::deadline::after(20s));
      if (group.same_process()) {
        come_up<scarce_communicator>(
            context, group, options(),
            {std::to_string(bytes_after(0, 2)) + " bytes of staging memory (heap), slots of ", "bytes be pinned"});
      } else {
        fail_with<scarce_communicator>(context, group, options(), refusal, {"bytes be pinned"});
        // The control words may be pinned, slots may not.
        scarcity::most_bytes = 64 << 10;
        group.barrier(peerless::deadline::after(20s));
        const int last = refusal == errc::unsupported ? 0 : 3;
        fail_with<scarce_communicator>(
            context, group, options(), refusal,
            {"does not let " + std::to_string(bytes_after(last, 2)), std::to_string(bytes_after(0, 2))});
      }
      scarcity::most_bytes = ~std::size_t{0};
      group.barrier(peerless::deadline::after(20s));
      come_up<scarce_communicator>(context, group, options(), {"(memfd)"});
      context.require(scarcity::registrations == 0, "registrations left", std::to_string(scarcity::registrations));
    });
  }
}

TEST_CASE("sizes that must not shrink are had or refused") {
  run_both_ways([](rank_context& context, peerless::bootstrap_ref group) {
    scarcity::most_bytes = bytes_after(1, 2);
    group.barrier(peerless::deadline::after(20s));
    auto exact = options();
    exact.shrink = false;
    if (group.same_process()) {
      come_up<scarce_communicator>(context, group, exact, {std::to_string(bytes_after(0, 2)), "(heap)"});
    } else {
      fail_with<scarce_communicator>(context, group, exact, errc::out_of_memory, {std::to_string(bytes_after(0, 2))});
      exact.shrink = context.rank() == 0;
      fail_with<scarce_communicator>(context, group, exact, errc::rendezvous_mismatch, {"options"});
    }
  });
}

TEST_CASE("a file size limit and a cgroup limit: smaller slots") {
  run_both_ways(
      [](rank_context& context, peerless::bootstrap_ref group) {
        rlimit before{};
        ::getrlimit(RLIMIT_FSIZE, &before);
        rlimit limit = before;
        limit.rlim_cur = bytes_after(2, 2);
        ::setrlimit(RLIMIT_FSIZE, &limit);
        group.barrier(peerless::deadline::after(20s));
        come_up<peerless::communicator<host>>(context, group, options(),
                                              {std::to_string(bytes_after(2, 2)), "file size limit"});
        ::setrlimit(RLIMIT_FSIZE, &before);
      },
      {ranks_as::processes});
  run_both_ways([](rank_context& context, peerless::bootstrap_ref group) {
    // A group that has room for one step down and the eighth.
    const std::string root =
        "/tmp/peerless-memory-" + std::to_string(::getpid()) + "-" + std::to_string(context.rank());
    std::filesystem::create_directories(root + "/self");
    std::ofstream(root + "/self/cgroup") << "0::/\n";
    std::ofstream(root + "/memory.max") << (256 << 20) << "\n";
    std::ofstream(root + "/memory.current") << (256 << 20) - bytes_after(1, 2) * 9 / 8 << "\n";
    auto with = options();
    with.segments.accounts = {root, root};
    come_up<peerless::communicator<host>>(
        context, group, with, {std::to_string(bytes_after(1, 2)) + " bytes of staging memory", "memory.max", "need "});
    // Nothing left at all: told, not killed.
    std::ofstream(root + "/memory.current") << (256 << 20) << "\n";
    fail_with<peerless::communicator<host>>(context, group, with, errc::out_of_memory, {"need ", "free are 0"});
    std::filesystem::remove_all(root);
  });
}

TEST_CASE("slots on NUMA nodes, as far as they are known and allowed") {
  run_both_ways([](rank_context& context, peerless::bootstrap_ref group) {
    const bool refused = [] {
      const auto probe = peerless::shared_segment::create(4096);
      return peerless::prefer_node(probe.fd(), {0, 4096, 0}) != 0;
    }();
    const auto come_up_on = [&](int node, const communicator_options& with, std::initializer_list<std::string> parts) {
      scarcity::node = node;
      come_up<scarce_communicator>(context, group, with, parts);
    };
    const std::string bytes = std::to_string(bytes_after(0, 2)) + " bytes of staging memory (memfd)";
    come_up_on(0, options(), {bytes + (refused ? ", not placed on NUMA nodes 0 0" : ", by rank on NUMA nodes 0 0")});
    // One reader on a node that is known; a node that is not there.
    come_up_on(context.rank() == 0 ? 0 : -1, options(), {"NUMA nodes ? 0"});
    come_up_on(context.rank() == 0 ? 0 : 1000, options(), {", not placed on NUMA nodes 1000 0 by rank: "});
    {
      scarcity::node = -1;
      scarce_communicator c(group, options());
      context.require(c.describe().find("NUMA") == std::string::npos, "nothing known", c.describe());
      auto off = options();
      off.numa = false;
      scarcity::node = 0;
      scarce_communicator d(group, off);
      context.require(d.describe().find("NUMA") == std::string::npos, "not wanted", d.describe());
    }
    auto huge = options();
    huge.huge_pages = true;
    come_up_on(0, huge, {" of them in huge pages"});
    huge.huge_pages = context.rank() == 0;
    fail_with<scarce_communicator>(context, group, huge, errc::rendezvous_mismatch, {"options"});
  });
}

TEST_CASE("memfds refused: nameless files, and nothing in /dev/shm") {
  run_both_ways([](rank_context& context, peerless::bootstrap_ref group) {
    auto with = options();
    with.segments.memfd = [](const char*, unsigned) { return errno = ENOSYS, -1; };
    come_up<peerless::communicator<host>>(context, group, with, {"(nameless file in shm)"});
    with.segments.shm_folder = "/nowhere";
    if (group.same_process()) {
      come_up<peerless::communicator<host>>(
          context, group, with, {std::to_string(bytes_after(0, 2)) + " bytes of staging memory (heap)", "/nowhere"});
    } else {
      fail_with<peerless::communicator<host>>(context, group, with, errc::unsupported, {"memfd_create", "/nowhere"});
    }
  });
}

TEST_CASE("memfds refused and a /dev/shm of 1 MB: smaller slots", "[processes]") {
  const peerless::job_identity job = unique_job();
  const auto run = run_bare(2, ranks_as::processes, [&](rank_context& context) {
    // Before there is any thread: a mount that only this process sees.
    const auto identity = std::to_string(::getuid());
    bool alone = ::unshare(CLONE_NEWNS) == 0;
    if (!alone && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
      std::ofstream("/proc/self/uid_map") << identity << " " << identity << " 1\n";
      alone = true;
    }
    if (!alone || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      context.record().command = 1;
      return;
    }
    auto boot = peerless::local_host_bootstrap::connect(job, context.rank(), 2);
    const peerless::bootstrap_ref group(boot);
    auto with = options();
    with.segments.memfd = [](const char*, unsigned) { return errno = EPERM, -1; };
    come_up<peerless::communicator<host>>(
        context, group, with,
        {std::to_string(bytes_after(2, 2)) + " bytes of staging memory (nameless file in shm)", "in /dev/shm, free are",
         "--shm-size"});
    with.shrink = false;
    fail_with<peerless::communicator<host>>(
        context, group, with, errc::out_of_memory,
        {"need " + std::to_string(bytes_after(0, 2)) + " bytes in /dev/shm, free are", "--shm-size"});
    // A memfd does not care.
    come_up<peerless::communicator<host>>(context, group, options(), {std::to_string(bytes_after(0, 2)), "(memfd)"});
  });
  CHECK(run.problems() == "");
  if (run[0].command == 1 || run[1].command == 1) PEERLESS_SKIP("mounts are not allowed here");
}
