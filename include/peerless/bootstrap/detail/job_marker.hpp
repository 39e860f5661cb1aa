// A sign in the kernel that a group of a name is up, for the rank 0 of another job that was given the same name.
#pragma once

#include <atomic>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <string>
#include <system_error>

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <peerless/bootstrap/detail/process.hpp>
#include <peerless/bootstrap/detail/socket.hpp>
#include <peerless/bootstrap/job_identity.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The name at which ranks meet is given up when a group is complete, so that the same ranks may meet again at once. A
// second job of the same name would then come up beside the first, and with bad luck with ranks of it. So rank 0 also
// holds a socket, bound and otherwise unused, whose name adds its pid, for as long as its bootstrap lives.
inline std::string marker_prefix(const job_key& key) { return abstract_address::name_of(key) + "-up-"; }

// None where the sign cannot be set: it only helps to explain errors.
inline unique_fd set_job_marker(const job_key& key) {
  static std::atomic<unsigned> count{0};
  unique_fd marker(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto where = abstract_address::named(marker_prefix(key) + std::to_string(::getpid()) + "-" +
                                             std::to_string(count.fetch_add(1)));
  if (marker && ::bind(marker.get(), where.get(), where.length) != 0) marker.reset();
  return marker;
}

// The rank 0 of another live group of this name, 0 if there is none. Own groups do not count, nor does a sign that only
// a child of a dead rank 0 still holds. Reads /proc/net/unix; where that is not to be had the answer is 0.
inline ::pid_t find_other_job(const job_key& key) {
  const std::string prefix = "@" + marker_prefix(key);
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const std::size_t start = line.find(prefix);
    if (start == std::string::npos) continue;
    const char* const digits = line.data() + start + prefix.size();
    ::pid_t pid = 0;
    if (std::from_chars(digits, line.data() + line.size(), pid).ec != std::errc{}) continue;
    if (pid != ::getpid() && !looks_ended(pid)) return pid;
  }
  return 0;
}

}  // namespace detail

PEERLESS_END_NAMESPACE
