// How much memory may be taken, by the accounts of kernels that are laid out here.
#include <peerless/core/memory_budget.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.hpp"

using peerless::account_roots;
using peerless::errc;
using peerless::free_memory;

namespace {

constexpr std::uint64_t mib = 1 << 20;

// A /proc and a cgroup file system in a folder of its own, empty at first.
class accounts {
 public:
  accounts() {
    char path[] = "/tmp/peerless-accounts-XXXXXX";
    root_ = ::mkdtemp(path);
  }
  ~accounts() { std::filesystem::remove_all(root_); }
  accounts(const accounts&) = delete;
  accounts& operator=(const accounts&) = delete;

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void available(std::uint64_t bytes) const {
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemAvailable:   " + std::to_string(bytes >> 10) + " kB");
  }
  account_roots roots() const { return {root_ + "/proc", root_ + "/cgroup"}; }
  std::uint64_t free_bytes() const {
    const auto room = free_memory(roots());
    return room ? room->free_bytes : ~std::uint64_t{0};
  }
  std::string limit() const { return free_memory(roots()).value_or(peerless::memory_room{}).limit; }

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("what cannot be read is unknown, and stops nothing") {
  const accounts none;
  CHECK_FALSE(free_memory(none.roots()).has_value());
  CHECK_NOTHROW(peerless::require_memory(std::uint64_t{1} << 60, none.roots()));
  none.write("proc/self/cgroup", "0::/\n7:memory:/x\nnonsense\n:\n");
  none.write("cgroup/memory.max", "max");
  none.write("cgroup/memory.current", "12345");
  none.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // v1's way to say none
  none.write("cgroup/memory/memory.usage_in_bytes", "12345");
  CHECK_FALSE(free_memory(none.roots()).has_value());
  none.write("cgroup/memory.max", "many");
  CHECK_FALSE(free_memory(none.roots()).has_value());
}

TEST_CASE("this host's own accounts can be read") {
  const auto room = free_memory();
  REQUIRE(room.has_value());
  CHECK(room->free_bytes > 0);
  CHECK_FALSE(room->limit.empty());
}

TEST_CASE("memory of the host") {
  const accounts a;
  a.available(64 * mib);
  CHECK(a.free_bytes() == 64 * mib);
  CHECK_THAT(a.limit(), peerless::test::contains("MemAvailable"));
}

TEST_CASE("version 2: the least room of a group and all above it") {
  const accounts a;
  a.available(4096 * mib);
  a.write("proc/self/cgroup", "0::/user.slice/job.scope");
  a.write("cgroup/user.slice/job.scope/memory.max", std::to_string(100 * mib));
  a.write("cgroup/user.slice/job.scope/memory.current", std::to_string(40 * mib));
  CHECK(a.free_bytes() == 60 * mib);
  CHECK_THAT(a.limit(), peerless::test::contains("user.slice/job.scope/memory.max"));
  a.write("cgroup/user.slice/memory.max", std::to_string(1000 * mib));
  a.write("cgroup/user.slice/memory.current", std::to_string(990 * mib));
  CHECK(a.free_bytes() == 10 * mib);
  CHECK_THAT(a.limit(), peerless::test::contains("user.slice/memory.max"));
  // Pages of files are dropped before anything is killed.
  a.write("cgroup/user.slice/memory.stat",
          "anon 1\ninactive_file " + std::to_string(20 * mib) + "\nactive_file " + std::to_string(5 * mib));
  CHECK(a.free_bytes() == 35 * mib);
  // A host with less than the groups allow.
  a.available(7 * mib);
  CHECK(a.free_bytes() == 7 * mib);
  // Over the limit already: a limit that was lowered.
  a.write("cgroup/user.slice/job.scope/memory.max", std::to_string(10 * mib));
  CHECK(a.free_bytes() == 0);
}

TEST_CASE("a container sees its own group as the root, whatever the path says") {
  for (const char* path : {"/", "/docker/0123456789abcdef", "/../../elsewhere"}) {
    INFO(path);
    const accounts two;
    two.write("proc/self/cgroup", std::string("0::") + path);
    two.write("cgroup/memory.max", std::to_string(30 * mib));
    two.write("cgroup/memory.current", std::to_string(10 * mib));
    CHECK(two.free_bytes() == 20 * mib);
    const accounts one;
    one.write("proc/self/cgroup", std::string("3:cpuset:/\n4:memory:") + path + "\n0::/");
    one.write("cgroup/memory/memory.limit_in_bytes", std::to_string(30 * mib));
    one.write("cgroup/memory/memory.usage_in_bytes", std::to_string(25 * mib));
    one.write("cgroup/memory/memory.stat", "inactive_file 77\ntotal_inactive_file " + std::to_string(mib));
    CHECK(one.free_bytes() == 6 * mib);
  }
}

TEST_CASE("version 1: the memory controller, alone or with others") {
  const accounts a;
  a.write("proc/self/cgroup", "5:cpu,memory,pids:/a/b");
  a.write("cgroup/memory/a/memory.limit_in_bytes", std::to_string(3 * mib));
  a.write("cgroup/memory/a/memory.usage_in_bytes", std::to_string(mib));
  CHECK(a.free_bytes() == 2 * mib);
  a.write("proc/self/cgroup", "5:memory_hog:/a/b");
  CHECK_FALSE(free_memory(a.roots()).has_value());
}

TEST_CASE("a need is refused with the need, the room and what to do, and an eighth is left") {
  const accounts a;
  a.available(9 * mib);
  CHECK_NOTHROW(peerless::require_memory(8 * mib, a.roots()));
  try {
    peerless::require_memory(8 * mib + 8, a.roots());
    FAIL("was not refused");
  } catch (const peerless::error& e) {
    CHECK(e.code() == errc::out_of_memory);
    for (const char* part : {"8388616", "9437184", "docker run --memory", "MemAvailable"})
      CHECK_THAT(std::string(e.what()), peerless::test::contains(part));
  }
}
