// Frames over a stream socket: any cut into pieces, descriptors, ends, and liars.
#include "support/catch.hpp"
#include "support/leak_check.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerless/bootstrap/detail/connection.hpp>

namespace detail = peerless::detail;
using detail::connection;
using detail::frame_header;
using peerless::errc;
using peerless::unique_fd;

namespace {

struct pair_of_ends {
  unique_fd raw;
  connection line;

  static pair_of_ends make() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    return {unique_fd(ends[0]), connection(unique_fd(ends[1]))};
  }
};

std::vector<std::byte> message(std::uint64_t sequence, std::size_t bytes) {
  frame_header header;
  header.kind = detail::frame_kind::all_gather;
  header.sequence = sequence;
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(sequence * 37 + i);
  return detail::encode(header, payload);
}

bool is_message(const detail::frame& got, std::uint64_t sequence, std::size_t bytes) {
  if (got.header.sequence != sequence || got.payload.size() != bytes) return false;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (got.payload[i] != static_cast<std::byte>(sequence * 37 + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("frames arrive whole however the stream is cut") {
  auto ends = pair_of_ends::make();
  ends.line.accept_payload(1 << 20);
  std::vector<std::byte> stream;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const auto one = message(i, (i * 977) % 3000);
    stream.insert(stream.end(), one.begin(), one.end());
  }
  peerless::test::random_choices choices(3);
  std::uint64_t next = 1;
  for (std::size_t done = 0; done < stream.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + choices.below(120), stream.size() - done);
    REQUIRE(::send(ends.raw.get(), stream.data() + done, piece, 0) == static_cast<::ssize_t>(piece));
    done += piece;
    ends.line.pump_in();
    while (auto got = ends.line.next()) {
      CHECK(is_message(*got, next, (next * 977) % 3000));
      ++next;
    }
  }
  CHECK(next == 21);
  CHECK_FALSE(ends.line.closed());
}

TEST_CASE("a message larger than the socket goes in pieces") {
  int raw[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, raw) == 0);
  connection from{unique_fd(raw[0])};
  connection to{unique_fd(raw[1])};
  to.accept_payload(8 << 20);
  from.send(message(1, 5'000'000));
  from.send(message(2, 0));
  int rounds = 0;
  std::optional<detail::frame> first;
  while (!first && ++rounds < 100'000) {
    from.pump_out();
    to.pump_in();
    first = to.next();
  }
  REQUIRE(first);
  CHECK(is_message(*first, 1, 5'000'000));
  CHECK(rounds > 1);
  from.pump_out();
  to.pump_in();
  const auto second = to.next();
  REQUIRE(second);
  CHECK(is_message(*second, 2, 0));
  CHECK_FALSE(from.has_output());
}

TEST_CASE("descriptors come with their frame and are closed with it") {
  const std::size_t before = peerless::test::open_descriptors();
  {
    int raw[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, raw) == 0);
    connection from{unique_fd(raw[0])};
    connection to{unique_fd(raw[1])};
    for (const std::size_t count : {std::size_t{1}, std::size_t{32}, detail::max_frame_fds}) {
      frame_header header;
      header.fds = static_cast<std::uint16_t>(count);
      std::vector<unique_fd> fds;
      for (std::size_t i = 0; i < count; ++i) fds.push_back(unique_fd::duplicate(0));
      from.send(detail::encode(header, {}), std::move(fds));
      from.pump_out();
      to.pump_in();
      const auto got = to.next();
      REQUIRE(got);
      REQUIRE(got->fds.size() == count);
      for (const unique_fd& fd : got->fds) CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    }
  }
  CHECK(peerless::test::open_descriptors() == before);
}

TEST_CASE("what was said before the end is heard after it") {
  auto ends = pair_of_ends::make();
  const auto words = message(5, 100);
  REQUIRE(::send(ends.raw.get(), words.data(), words.size(), 0) == static_cast<::ssize_t>(words.size()));
  ends.line.send(message(6, 10));
  ends.line.pump_out();  // unread by the other end: its close resets the connection
  ends.raw.reset();
  ends.line.pump_in();
  const auto got = ends.line.next();
  REQUIRE(got);
  CHECK(is_message(*got, 5, 100));
  ends.line.pump_in();
  CHECK(ends.line.closed());
  CHECK(ends.line.complaint().empty());
  ends.line.send(message(7, 10));
  ends.line.pump_out();  // no SIGPIPE
  CHECK_FALSE(ends.line.has_output());
}

TEST_CASE("an end in the middle of a frame is an end") {
  auto ends = pair_of_ends::make();
  const auto words = message(5, 100);
  REQUIRE(::send(ends.raw.get(), words.data(), words.size() - 1, 0) > 0);
  ends.raw.reset();
  ends.line.pump_in();
  CHECK(ends.line.closed());
  CHECK_FALSE(ends.line.next());
}

TEST_CASE("liars are dropped before they cost anything") {
  frame_header header;
  SECTION("wrong beginning") { header.magic ^= 1; }
  SECTION("too large") { header.payload_bytes = detail::max_hello_bytes + 1; }
  SECTION("absurdly large") { header.payload_bytes = ~std::uint64_t{0}; }
  SECTION("too many descriptors") { header.fds = detail::max_frame_fds + 1; }
  auto ends = pair_of_ends::make();
  REQUIRE(::send(ends.raw.get(), &header, sizeof(header), 0) == sizeof(header));
  ends.line.pump_in();
  CHECK(ends.line.closed());
  CHECK_FALSE(ends.line.complaint().empty());
  CHECK_FALSE(ends.line.next());
  CHECK(ends.line.events() == 0);
}

TEST_CASE("a receiver without room for descriptors gets the frame without them") {
  const ::pid_t child = ::fork();
  if (child == 0) {
    int raw[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, raw) != 0) ::_exit(2);
    connection from{unique_fd(raw[0])};
    connection to{unique_fd(raw[1])};
    frame_header header;
    header.fds = 4;
    std::vector<unique_fd> fds;
    for (int i = 0; i < 4; ++i) fds.push_back(unique_fd::duplicate(0));
    const int highest = fds.back().get();
    from.send(detail::encode(header, {}), std::move(fds));
    from.pump_out();
    const struct rlimit limit = {static_cast<::rlim_t>(highest - 1), static_cast<::rlim_t>(highest - 1)};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    to.pump_in();
    const auto got = to.next();
    ::_exit(got && got->fds.size() < 4 && got->header.fds == 4 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an error survives the journey") {
  const peerless::error failure(errc::peer_died, "rank 2 has ended", 2, 11);
  auto ends = pair_of_ends::make();
  const auto words = detail::encode(failure);
  REQUIRE(::send(ends.raw.get(), words.data(), words.size(), 0) == static_cast<::ssize_t>(words.size()));
  ends.line.pump_in();
  const auto got = ends.line.next();
  REQUIRE(got);
  const peerless::error told = detail::decode_error(*got);
  CHECK(told.code() == failure.code());
  CHECK(told.rank() == 2);
  CHECK(told.native_code() == 11);
  CHECK(std::string(told.what()) == failure.what());
}
