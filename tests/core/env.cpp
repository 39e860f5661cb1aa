// Strict parsing: every legal spelling, and an error that says the variable, its value and the legal ones for the rest.
#include "support/catch.hpp"
#include "support/environment.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <peerless/core/env.hpp>

using peerless::errc;
using peerless::test::scoped_environment;
namespace env = peerless::env;

namespace {

constexpr const char* name = "PEERLESS_TEST_VARIABLE";

// The text of the error that reading `value` gives, "" if it is legal; fails the test if the error is of another kind.
template <class T>
std::string complaint(const std::string& value) {
  const scoped_environment set(name, value);
  try {
    (void)env::get<T>(name);
  } catch (const peerless::error& caught) {
    CHECK(caught.code() == errc::bad_environment);
    CHECK_THAT(caught.what(), peerless::test::contains(std::string(name) + "=\"" + value + "\""));
    return caught.what();
  }
  return {};
}

template <class T>
T legal(const std::string& value) {
  const scoped_environment set(name, value);
  return env::get<T>(name).value();
}

}  // namespace

TEST_CASE("unset and empty are the same for every type") {
  for (const bool empty : {false, true}) {
    const scoped_environment removed(name, "");
    if (!empty) ::unsetenv(name);
    CHECK_FALSE(env::get<bool>(name).has_value());
    CHECK_FALSE(env::get<int>(name).has_value());
    CHECK_FALSE(env::get<std::uint64_t>(name).has_value());
    CHECK_FALSE(env::get<std::chrono::milliseconds>(name).has_value());
    CHECK_FALSE(env::get<std::string>(name).has_value());
    CHECK_FALSE(env::get<std::vector<std::string>>(name).has_value());
    CHECK_FALSE(env::get_choice(name, {"a", "b"}).has_value());
  }
}

TEST_CASE("a switch is read by its value, never by its presence") {
  for (const char* off : {"0", "false", "off", "no", "FALSE", "Off", "nO"}) CHECK_FALSE(legal<bool>(off));
  for (const char* on : {"1", "true", "on", "yes", "TRUE", "On", "yES"}) CHECK(legal<bool>(on));
  for (const char* wrong : {"2", "01", "-1", "y", "n", "enable", " 1", "1 ", "truee", "o"}) {
    CHECK_THAT(complaint<bool>(wrong), peerless::test::contains("0, false, off, no, 1, true, on, yes"));
  }
}

TEST_CASE("whole numbers use the whole text and keep to their range") {
  CHECK(legal<int>("-2147483648") == INT32_MIN);
  CHECK(legal<int>("2147483647") == INT32_MAX);
  CHECK(legal<std::uint32_t>("4294967295") == UINT32_MAX);
  CHECK(legal<std::uint64_t>("18446744073709551615") == UINT64_MAX);
  CHECK(legal<std::int64_t>("-9223372036854775808") == INT64_MIN);
  CHECK(legal<std::uint8_t>("255") == 255);
  for (const char* wrong : {"2147483648", "-2147483649", "1x", "x1", "0x10", "1.0", "1e3", "+1", " 1", "1 ", "--1", "-",
                            "1,000", "99999999999999999999"}) {
    CHECK_THAT(complaint<int>(wrong), peerless::test::contains("from -2147483648 to 2147483647"));
  }
  for (const char* wrong : {"-1", "4294967296", "-0x1"})
    CHECK_THAT(complaint<std::uint32_t>(wrong), peerless::test::contains("from 0 to 4294967295"));
  CHECK_FALSE(complaint<std::uint8_t>("256").empty());
}

TEST_CASE("a range says its ends") {
  const scoped_environment set(name, "17");
  CHECK(env::get_between<int>(name, 0, 17) == 17);
  CHECK(env::get_between<int>(name, 17, 17) == 17);
  CHECK_THROWS_AS(env::get_between<int>(name, 0, 16), peerless::error);
  CHECK_THROWS_AS(env::get_between<int>(name, 18, 20), peerless::error);
}

TEST_CASE("durations are whole milliseconds") {
  CHECK(legal<std::chrono::milliseconds>("0") == std::chrono::milliseconds(0));
  CHECK(legal<std::chrono::milliseconds>("600000") == std::chrono::minutes(10));
  for (const char* wrong : {"-1", "1s", "1.5", "1 ms", "2147483648"}) {
    CHECK_THAT(complaint<std::chrono::milliseconds>(wrong), peerless::test::contains("milliseconds"));
  }
}

TEST_CASE("lists have no empty items") {
  CHECK(legal<std::vector<std::string>>("shm") == std::vector<std::string>{"shm"});
  CHECK(legal<std::vector<std::string>>("p2p,shm,nccl") == std::vector<std::string>{"p2p", "shm", "nccl"});
  for (const char* wrong : {",", "a,", ",a", "a,,b"}) CHECK_FALSE(complaint<std::vector<std::string>>(wrong).empty());
}

TEST_CASE("a choice lists what is legal") {
  const scoped_environment set(name, "SHM");
  CHECK(env::get_choice(name, {"p2p", "SHM"}) == "SHM");
  try {
    (void)env::get_choice(name, {"p2p", "shm"});
    FAIL("a value that is not listed was taken");
  } catch (const peerless::error& caught) {
    CHECK(caught.code() == errc::bad_environment);
    CHECK(caught.message() == std::string(name) + "=\"SHM\": legal are p2p, shm");
  }
}
