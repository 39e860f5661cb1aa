// Catch2 2.13 and 3.x through one header, and a skip that both can say.
//
// Assertions of Catch2 are not thread-safe: ranks that run as threads collect their findings, the test's own thread
// asserts. After a fork only the parent asserts; the child ends with _exit.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_predicate.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace peerless::test {

// Records that a test case could not run here, and prints why. A program with such a case, and no failure, ends with
// code 77: CTest reports it as skipped, never as passed.
void record_skip(const std::string& reason);

// A matcher for REQUIRE_THROWS_MATCHES and REQUIRE_THAT: the string holds `part`.
inline auto contains(const std::string& part) {
#if __has_include(<catch2/catch_test_macros.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

}  // namespace peerless::test

// Leaves the test case (a function that returns void) as skipped.
#define PEERLESS_SKIP(reason)             \
  do {                                    \
    ::peerless::test::record_skip(reason); \
    return;                               \
  } while (false)
