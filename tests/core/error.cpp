// The one error language: codes that stay, texts that say what happened.
#include "support/catch.hpp"

#include <cerrno>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include <peerless/core/error.hpp>
#include <peerless/core/hash.hpp>
#include <peerless/core/system_error.hpp>

using peerless::errc;

// Codes cross shared memory and will cross a C interface: a number once given stays.
static_assert(static_cast<std::uint32_t>(errc::ok) == 0);
static_assert(static_cast<std::uint32_t>(errc::invalid_argument) == 1);
static_assert(static_cast<std::uint32_t>(errc::rendezvous_timeout) == 5);
static_assert(static_cast<std::uint32_t>(errc::rendezvous_mismatch) == 6);
static_assert(static_cast<std::uint32_t>(errc::peer_died) == 13);
static_assert(static_cast<std::uint32_t>(errc::forked) == 18);
static_assert(std::is_nothrow_destructible_v<peerless::error>);

TEST_CASE("every code has a phrase of its own") {
  std::set<std::string_view> phrases;
  for (std::uint32_t code = 0; code <= static_cast<std::uint32_t>(errc::forked); ++code) {
    CHECK(phrases.insert(peerless::describe(static_cast<errc>(code))).second);
  }
  CHECK(phrases.count("unknown error") == 0);
  CHECK(peerless::describe(static_cast<errc>(9999)) == "unknown error");
}

TEST_CASE("an error carries all that a caller may want to know") {
  const peerless::error failure(errc::peer_died, "rank 3 has ended", 3, 7);
  const unsigned line = __LINE__ - 1;
  CHECK(failure.code() == errc::peer_died);
  CHECK(failure.rank() == 3);
  CHECK(failure.native_code() == 7);
  CHECK(failure.message() == "rank 3 has ended");
  CHECK(std::string(failure.what()) == "peerless: peer died: rank 3 has ended");
  CHECK(failure.where().line == line);
}

TEST_CASE("a failed system call keeps its errno and says its text") {
  try {
    peerless::detail::raise_errno(ENOSPC, "writing the table", 2);
  } catch (const peerless::error& caught) {
    CHECK(caught.code() == errc::system_error);
    CHECK(caught.native_code() == ENOSPC);
    CHECK(caught.rank() == 2);
    CHECK_THAT(caught.message(), peerless::test::contains("writing the table: "));
  }
}

// The same on every machine and in every version: processes compare it.
static_assert(peerless::detail::stable_hash("") == peerless::detail::stable_hash("", 0));
static_assert(peerless::detail::stable_hash("a") != peerless::detail::stable_hash("b"));
static_assert(peerless::detail::stable_hash("a", 1) != peerless::detail::stable_hash("a", 2));
