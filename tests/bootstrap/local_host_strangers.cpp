// Others at the meeting place: silent ones, talkers of nonsense, other versions, other users. The group comes up, or
// fails in one voice; nobody blocks, crashes or leaks.
#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <peerless/bootstrap/local_host.hpp>

#include "outcome.hpp"
#include "support/random.hpp"

using peerless::deadline;
using peerless::errc;
using peerless::local_host_bootstrap;
using peerless::local_host_options;
using peerless::unique_fd;
using namespace peerless::test;
using namespace std::chrono_literals;
namespace inner = peerless::detail;

namespace {

constexpr int world = 3;

unique_fd connect_stranger(const inner::abstract_address& where) {
  const deadline limit = deadline::after(10s);
  while (!limit.expired()) {
    if (unique_fd socket = inner::connect_to(where)) return socket;
    std::this_thread::sleep_for(1ms);
  }
  return unique_fd();
}

void say(const unique_fd& socket, const void* bytes, std::size_t count) {
  (void)::send(socket.get(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The group of `world` ranks, of which rank 1 waits for `strangers` (process `world`) to have done their worst; or, if
// they come in its place, never comes.
run_result with_strangers(const std::function<void(const inner::abstract_address&, rank_context&)>& strangers,
                          bool in_place_of_rank_1 = false) {
  const auto job = unique_job();
  return run_bare(world + 1, ranks_as::processes, [&](rank_context& context) {
    if (context.rank() == world) {
      strangers(inner::abstract_address::of(inner::job_key::of(job.text)), context);
      context.enter_phase(1);
      // Stays connected until the ranks are through.
      for (int rank = 0; rank < world; ++rank) context.wait_for_phase(rank, 2);
      return;
    }
    if (context.rank() == 1) {
      context.wait_for_phase(world, 1);
      if (in_place_of_rank_1) return context.enter_phase(2);
    }
    const std::size_t before = open_descriptors();
    record_outcome(context.record(), [&] {
      local_host_options options;
      options.deadline = 20s;
      auto boot = local_host_bootstrap::connect(job, context.rank(), world, options);
      const auto all = peerless::all_gather_value(boot, context.rank(), deadline::after(20s));
      context.require(all == std::vector<int>{0, 1, 2}, "all_gather", "wrong value");
    });
    context.require(open_descriptors() == before, "descriptors", "left behind");
    context.enter_phase(2);
  });
}

void check_group_came_up(const run_result& result) {
  CHECK(result.problems() == "");
  for (int rank = 0; rank < world; ++rank) {
    INFO("rank " << rank << ": " << text_of(result[rank]));
    CHECK(code_of(result[rank]) == errc::ok);
  }
}

inner::hello honest_hello(const inner::abstract_address&) {
  inner::hello words = {};
  words.rank = 1;
  words.size = world;
  return words;
}

}  // namespace

TEST_CASE("silent clients, more than there is room for") {
  std::vector<unique_fd> held;
  check_group_came_up(with_strangers([&](const inner::abstract_address& where, rank_context&) {
    for (int i = 0; i < 150; ++i) held.push_back(connect_stranger(where));
  }));
}

TEST_CASE("clients that come and go") {
  check_group_came_up(with_strangers([](const inner::abstract_address& where, rank_context&) {
    for (int i = 0; i < 300; ++i) connect_stranger(where).reset();
  }));
}

TEST_CASE("clients that talk nonsense") {
  std::vector<unique_fd> held;
  check_group_came_up(with_strangers([&](const inner::abstract_address& where, rank_context&) {
    random_choices words(7);
    for (int i = 0; i < 200; ++i) {
      unique_fd socket = connect_stranger(where);
      std::vector<unsigned char> garbage(1 + static_cast<std::size_t>(i) * 41);
      for (auto& byte : garbage) byte = static_cast<unsigned char>(words.next());
      say(socket, garbage.data(), garbage.size());
      if (i % 2 == 0) held.push_back(std::move(socket));
    }
    const std::string http = "GET / HTTP/1.1\r\n\r\n";
    held.push_back(connect_stranger(where));
    say(held.back(), http.data(), http.size());
  }));
}

TEST_CASE("clients that begin as a rank does and stop or lie about what follows") {
  std::vector<unique_fd> held;
  check_group_came_up(with_strangers([&](const inner::abstract_address& where, rank_context&) {
    const auto begin = [&](inner::frame_header header, std::size_t bytes) {
      held.push_back(connect_stranger(where));
      say(held.back(), &header, bytes);
    };
    inner::frame_header header;
    header.kind = inner::frame_kind::hello;
    for (std::size_t bytes = 1; bytes < sizeof(header); bytes += 5) begin(header, bytes);
    header.payload_bytes = sizeof(inner::hello);
    begin(header, sizeof(header));  // no payload
    header.payload_bytes = ~std::uint64_t{0};
    begin(header, sizeof(header));
    header.payload_bytes = inner::max_hello_bytes + 1;
    begin(header, sizeof(header));
    header.payload_bytes = 0;
    begin(header, sizeof(header));  // an empty hello
    header.fds = 60'000;
    begin(header, sizeof(header));
    header.fds = 0;
    for (const auto kind : {inner::frame_kind::welcome, inner::frame_kind::barrier, inner::frame_kind::verdict,
                            static_cast<inner::frame_kind>(999)}) {
      header.kind = kind;
      begin(header, sizeof(header));
    }
  }));
}

TEST_CASE("a client that sends descriptors by the hundred") {
  check_group_came_up(with_strangers([](const inner::abstract_address& where, rank_context& context) {
    const std::uint64_t first_byte = inner::wire_magic;
    for (int i = 0; i < 20; ++i) {
      const unique_fd socket = connect_stranger(where);
      std::vector<unique_fd> fds;
      for (int fd = 0; fd < 100; ++fd) fds.push_back(unique_fd::duplicate(0));
      // One byte of a good beginning with each load.
      ::iovec piece = {const_cast<std::uint64_t*>(&first_byte), 1};
      std::vector<char> control(CMSG_SPACE(100 * sizeof(int)));
      ::msghdr message = {};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      ::cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(100 * sizeof(int));
      for (std::size_t fd = 0; fd < fds.size(); ++fd) {
        const int number = fds[fd].get();
        std::memcpy(CMSG_DATA(rights) + fd * sizeof(int), &number, sizeof(int));
      }
      context.require(::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == 1, "sendmsg", std::strerror(errno));
    }
  }));
}

TEST_CASE("a rank of another wire version is refused in one voice, and is told") {
  std::vector<unique_fd> held;
  const auto result = with_strangers([&](const inner::abstract_address& where, rank_context& context) {
    inner::frame_header header;
    header.kind = inner::frame_kind::hello;
    header.version = inner::wire_version + 1;
    header.rank = 1;
    const auto words = inner::encode(header, {});
    inner::connection line(connect_stranger(where));
    line.send(words);
    line.pump_out();
    const deadline limit = deadline::after(10s);
    while (!limit.expired() && !line.frame_complete() && !line.closed()) {
      line.pump_in();
      std::this_thread::sleep_for(1ms);
    }
    const auto answer = line.next();
    context.require(answer && answer->status() == errc::rendezvous_mismatch, "answer",
                    "the other version was not told");
  }, true);
  CHECK(result.problems() == "");
  for (const int rank : {0, 2}) {
    INFO("rank " << rank << ": " << text_of(result[rank]));
    CHECK(code_of(result[rank]) == errc::rendezvous_mismatch);
    CHECK_THAT(text_of(result[rank]), contains("version " + std::to_string(inner::wire_version + 1)));
    CHECK_THAT(text_of(result[rank]), contains("version " + std::to_string(inner::wire_version) + ";"));
  }
}

TEST_CASE("a hello of another job is refused, whatever socket it came to") {
  const auto result = with_strangers([](const inner::abstract_address& where, rank_context&) {
    inner::frame_header header;
    header.kind = inner::frame_kind::hello;
    const inner::hello words = honest_hello(where);  // with an empty job key
    const auto bytes = inner::encode(header, std::as_bytes(std::span(&words, 1)));
    say(connect_stranger(where), bytes.data(), bytes.size());
  }, true);
  CHECK(result.problems() == "");
  for (const int rank : {0, 2}) {
    CHECK(code_of(result[rank]) == errc::rendezvous_mismatch);
    CHECK_THAT(text_of(result[rank]), contains("PEERLESS_JOB_ID"));
  }
}

TEST_CASE("clients of another user get no answer and do no harm") {
  if (::geteuid() != 0) PEERLESS_SKIP("needs root, to become another user");
  check_group_came_up(with_strangers([](const inner::abstract_address& where, rank_context& context) {
    context.require(::setuid(65534) == 0, "setuid", "failed");
    for (int i = 0; i < 100; ++i) {
      const unique_fd socket = connect_stranger(where);
      char answer = 0;
      ::pollfd polled = {socket.get(), POLLIN, 0};
      context.require(::poll(&polled, 1, 10'000) == 1 && ::recv(socket.get(), &answer, 1, MSG_DONTWAIT) <= 0, "recv",
                      "was answered");
    }
  }));
}

TEST_CASE("a name that another user or program sits on") {
  const bool other_user = GENERATE(false, true);
  if (other_user && ::geteuid() != 0) PEERLESS_SKIP("needs root, to become another user");
  const auto job = unique_job();
  const auto where = inner::abstract_address::of(inner::job_key::of(job.text));
  const auto result = run_bare(3, ranks_as::processes, [&](rank_context& context) {
    if (context.rank() == 2) {
      if (other_user) context.require(::setuid(65534) == 0, "setuid", "failed");
      const unique_fd squatter = inner::listen_at(where);
      context.require(static_cast<bool>(squatter), "bind", "failed");
      context.enter_phase(1);
      for (int rank = 0; rank < 2; ++rank) context.wait_for_phase(rank, 2);
      return;
    }
    context.wait_for_phase(2, 1);
    record_outcome(context.record(),
                   [&] { (void)local_host_bootstrap::connect(job, context.rank(), 2, {.deadline = 1s}); });
    context.enter_phase(2);
  });
  CHECK(result.problems() == "");
  for (int rank = 0; rank < 2; ++rank) {
    INFO("rank " << rank << ": " << text_of(result[rank]));
    // A program of this user that listens and says nothing looks like a rank 0 that is stopped.
    const errc expected = rank == 0 || other_user ? errc::rendezvous_mismatch : errc::rendezvous_timeout;
    CHECK(code_of(result[rank]) == expected);
    CHECK_THAT(text_of(result[rank]), contains("PEERLESS_JOB_ID"));
    if (other_user) CHECK_THAT(text_of(result[rank]), contains("another user"));
    CHECK(elapsed_of(result[rank]) < 4s);
  }
}
