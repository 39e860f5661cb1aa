// Turns a failed system call into the one error language.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Throws errc::system_error: "<what>: <text of the errno value>". `rank` is the rank concerned, -1 for none. The
// value is a parameter, not read from errno here, because composing `what` may already have changed errno.
[[noreturn]] inline void raise_errno(int errno_value, std::string_view what, int rank = -1,
                                     source_location where = source_location::current()) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(errno_value);
  throw error(errc::system_error, std::move(message), rank, errno_value, where);
}

}  // namespace detail

PEERLESS_END_NAMESPACE
