// Strict reading of environment variables: a value is legal, absent or an error, never guessed.
#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

// Every function: local, does not block, may run in several threads as long as none sets variables. Unset and empty
// are the same: nullopt. A value that is not legal throws errc::bad_environment with the variable, its value and the
// legal ones; a variable is never taken for true because it is there.
namespace env {

// The raw text.
inline std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

// Throws errc::bad_environment: "NAME=value: legal are <legal>".
[[noreturn]] inline void reject(std::string_view name, std::string_view value, std::string_view legal,
                                source_location where = source_location::current()) {
  std::string message(name);
  message += "=\"";
  message += value;
  message += "\": legal are ";
  message += legal;
  throw error(errc::bad_environment, std::move(message), -1, 0, where);
}

// A whole number in [least, most], decimal, the whole text: no sign but '-', no blanks, no suffix.
template <std::integral T>
  requires(!std::same_as<T, bool>)
std::optional<T> get_between(const char* name, T least, T most, std::string_view unit = {}) {
  const std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  T number{};
  const char* const end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, number);
  if (parsed.ec == std::errc{} && parsed.ptr == end && number >= least && number <= most) return number;
  std::string legal = "whole numbers";
  if (!unit.empty()) legal.append(" of ").append(unit);
  reject(name, *value, legal + " from " + std::to_string(least) + " to " + std::to_string(most));
}

// One of `legal`, as it stands.
inline std::optional<std::string> get_choice(const char* name, std::initializer_list<std::string_view> legal) {
  const std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  std::string listed;
  for (const std::string_view each : legal) {
    if (*value == each) return value;
    listed.append(listed.empty() ? "" : ", ").append(each);
  }
  reject(name, *value, listed);
}

// By type: bool (0 false off no, 1 true on yes, in any case), whole numbers in their type's range,
// std::chrono::milliseconds (a whole number of milliseconds from 0 to 2^31 - 1), std::string, and
// std::vector<std::string> (separated by commas, none empty).
template <class T>
std::optional<T> get(const char* name) {
  if constexpr (std::same_as<T, std::string>) {
    return text(name);
  } else if constexpr (std::same_as<T, bool>) {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    std::string lower;
    for (const char letter : *value)
      lower += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    if (lower == "0" || lower == "false" || lower == "off" || lower == "no") return false;
    if (lower == "1" || lower == "true" || lower == "on" || lower == "yes") return true;
    reject(name, *value, "0, false, off, no, 1, true, on, yes");
  } else if constexpr (std::same_as<T, std::chrono::milliseconds>) {
    const auto number = get_between<std::int64_t>(name, 0, std::numeric_limits<std::int32_t>::max(), "milliseconds");
    return number ? std::optional<T>(*number) : std::nullopt;
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    std::vector<std::string> items(1);
    for (const char letter : *value) {
      if (letter == ',') {
        items.emplace_back();
      } else {
        items.back() += letter;
      }
    }
    for (const std::string& item : items) {
      if (item.empty()) reject(name, *value, "names separated by single commas");
    }
    return items;
  } else {
    static_assert(std::integral<T>, "no environment variable has this type");
    return get_between<T>(name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
}

}  // namespace env

PEERLESS_END_NAMESPACE
