// What is a bootstrap, what is not, and that a view of one behaves as the thing itself.
#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <peerless/bootstrap/bootstrap_ref.hpp>
#include <peerless/bootstrap/local_host.hpp>
#include <peerless/bootstrap/thread_group.hpp>

using peerless::bootstrap;
using peerless::bootstrap_ref;
using peerless::deadline;
using peerless::peer_handle;
using peerless::unique_fd;

namespace {

// The least that is one: a world of one that needs nothing of the library but the shape.
struct lonely {
  int barriers = 0;
  int rank() const { return 0; }
  int size() const { return 1; }
  bool same_process() const { return true; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, deadline) {
    if (!mine.empty()) std::memcpy(all.data(), mine.data(), mine.size());
  }
  void barrier(deadline) { ++barriers; }
  unique_fd broadcast_fd(int fd, int, deadline) { return unique_fd::duplicate(fd); }
  std::vector<peer_handle> peers() const { return std::vector<peer_handle>(1); }
};

struct without_deadline : lonely {
  void barrier() {}
};
struct with_raw_descriptor : lonely {
  int broadcast_fd(int fd, int, deadline) { return fd; }
};
struct with_mutable_rank : lonely {
  int rank() { return 0; }
};
struct with_status : lonely {
  bool all_gather(std::span<const std::byte>, std::span<std::byte>, deadline) { return true; }
};

static_assert(bootstrap<lonely>);
static_assert(bootstrap<bootstrap_ref>);
static_assert(bootstrap<peerless::thread_bootstrap>);
static_assert(bootstrap<peerless::local_host_bootstrap>);
static_assert(!bootstrap<without_deadline>, "a wait needs a limit");
static_assert(!bootstrap<with_raw_descriptor>, "who closes it must be clear");
static_assert(!bootstrap<with_mutable_rank>, "asking for the rank changes nothing");
static_assert(!bootstrap<with_status>, "failure is an error, not a value to forget");
static_assert(!bootstrap<int> && !bootstrap<void*>);

static_assert(std::is_convertible_v<lonely&, bootstrap_ref>, "any bootstrap can be handed to a constructor");
static_assert(!std::is_constructible_v<bootstrap_ref, lonely>, "a temporary would be gone");
static_assert(!std::is_constructible_v<bootstrap_ref, int&>);
static_assert(std::is_trivially_copyable_v<bootstrap_ref>);

struct triple {
  int a;
  double b;
  char c;
};

}  // namespace

TEST_CASE("a view does what the bootstrap does") {
  lonely group;
  bootstrap_ref view = group;
  const bootstrap_ref copy = view;
  const deadline limit = deadline::after(std::chrono::seconds(1));
  CHECK(copy.rank() == 0);
  CHECK(copy.size() == 1);
  CHECK(copy.same_process());
  CHECK(copy.peers().size() == 1);
  copy.barrier(limit);
  view.barrier(limit);
  CHECK(group.barriers == 2);
  const auto all = peerless::all_gather_value(view, triple{7, 0.5, 'x'}, limit);
  REQUIRE(all.size() == 1);
  CHECK(all[0].a == 7);
  CHECK(all[0].b == 0.5);
  CHECK(all[0].c == 'x');
  const unique_fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(copy.broadcast_fd(null.get(), 0, limit).get() != null.get());
}

TEST_CASE("a world of one meets nobody") {
  const deadline limit = deadline::after(std::chrono::seconds(1));
  peerless::thread_group threads(1);
  auto thread = threads.rank(0);
  auto process = peerless::local_host_bootstrap::connect(peerless::job_identity::named("nobody"), 0, 1);
  const std::vector<bootstrap_ref> both = {thread, process};
  for (bootstrap_ref view : both) {
    CHECK(peerless::all_gather_value(view, 42, limit) == std::vector<int>{42});
    view.barrier(limit);
    const unique_fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const unique_fd copy = view.broadcast_fd(null.get(), 0, limit);
    CHECK(copy);
    CHECK(copy.get() != null.get());
    CHECK((::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_THROWS_AS(view.broadcast_fd(-1, 0, limit), peerless::error);
    CHECK_THROWS_AS(view.broadcast_fd(null.get(), 1, limit), peerless::error);
  }
}
