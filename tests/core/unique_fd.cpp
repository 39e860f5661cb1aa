// One owner, one close, closed on exec.
#include "support/catch.hpp"
#include "support/leak_check.hpp"

#include <cerrno>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <peerless/core/unique_fd.hpp>

using peerless::unique_fd;
using peerless::test::open_descriptors;

namespace {
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
unique_fd open_null() { return unique_fd(::open("/dev/null", O_RDWR)); }
}  // namespace

static_assert(!std::is_copy_constructible_v<unique_fd> && !std::is_copy_assignable_v<unique_fd>);
static_assert(std::is_nothrow_move_constructible_v<unique_fd> && std::is_nothrow_move_assignable_v<unique_fd>);
static_assert(!std::is_convertible_v<int, unique_fd>, "taking ownership is said in words");

TEST_CASE("a descriptor is closed with its owner") {
  const std::size_t before = open_descriptors();
  {
    unique_fd empty;
    CHECK_FALSE(empty);
    CHECK(empty.get() == -1);
    unique_fd one = open_null();
    CHECK(one);
    const int number = one.get();
    unique_fd two = std::move(one);
    CHECK(two.get() == number);
    CHECK(is_open(number));
    empty = std::move(two);
    CHECK(empty.get() == number);
    empty = unique_fd();
    CHECK_FALSE(is_open(number));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("reset to itself and self-move keep the descriptor") {
  unique_fd one = open_null();
  const int number = one.get();
  one.reset(number);
  CHECK(is_open(number));
  unique_fd& alias = one;
  one = std::move(alias);
  CHECK(one.get() == number);
  CHECK(is_open(number));
}

TEST_CASE("release gives the descriptor up") {
  unique_fd one = open_null();
  const int number = one.release();
  CHECK_FALSE(one);
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("a duplicate is independent and closed on exec") {
  unique_fd one = open_null();
  const unique_fd two = one.duplicate();
  CHECK(two.get() != one.get());
  CHECK((::fcntl(two.get(), F_GETFD) & FD_CLOEXEC) != 0);
  one.reset();
  CHECK(is_open(two.get()));
  CHECK_FALSE(one.duplicate());
}

TEST_CASE("a bad descriptor is a typed error") {
  try {
    (void)unique_fd::duplicate(-1);
    FAIL("duplicated nothing");
  } catch (const peerless::error& caught) {
    CHECK(caught.code() == peerless::errc::system_error);
    CHECK(caught.native_code() == EBADF);
    CHECK(std::string(caught.where().file).find("unique_fd.cpp") != std::string::npos);
  }
}

TEST_CASE("closing keeps errno") {
  unique_fd bad(1 << 20);
  errno = ENOENT;
  bad.reset();
  CHECK(errno == ENOENT);
}
