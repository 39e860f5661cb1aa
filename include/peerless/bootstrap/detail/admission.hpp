// Which ranks rank 0 admits to its group, and what it says to the others: both values, and what to do.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include <peerless/bootstrap/detail/host_group.hpp>
#include <peerless/bootstrap/detail/wire.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// `pid` below is the kernel's word for who speaks; 0 where that process is of another pid namespace.
inline std::string describe_rank(int rank, ::pid_t pid) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ")";
}

// Is this the beginning of a conversation at all? Anything of another version that calls itself a hello is.
inline bool is_hello(const frame& words) {
  if (words.header.kind != frame_kind::hello) return false;
  return words.header.version != wire_version || words.payload.size() == sizeof(hello);
}

// Before the payload is looked at: only the header is common to all versions.
inline std::optional<error> version_objection(const frame& words, ::pid_t pid) {
  if (words.header.version == wire_version) return std::nullopt;
  return error(errc::rendezvous_mismatch,
               "process " + std::to_string(pid) + " speaks rendezvous version " + std::to_string(words.header.version) +
                   ", rank 0 version " + std::to_string(wire_version) + "; use one version of the library on all ranks",
               words.header.rank);
}

inline std::optional<error> hello_objection(const host_group& group, const hello& said, ::pid_t pid) {
  const std::string who = describe_rank(said.rank, pid);
  const auto refuse = [&](const std::string& why) { return error(errc::rendezvous_mismatch, why, said.rank); };
  if (!(said.key == job_key::of(group.identity.text))) {
    return refuse(who + " is of another job; " + identity_advice(group.identity));
  }
  if (said.layout_hash != group.layout_hash) {
    return refuse(who + " has layout hash " + std::to_string(said.layout_hash) + ", rank 0 has " +
                  std::to_string(group.layout_hash) + "; use one version and build of the library on all ranks");
  }
  if (said.size != group.size) {
    return refuse(who + " says that the world has " + std::to_string(said.size) + " ranks, rank 0 (pid " +
                  std::to_string(::getpid()) + ") says " + std::to_string(group.size) + "; " +
                  identity_advice(group.identity));
  }
  if (said.rank < 0 || said.rank >= group.size) {
    return refuse("process " + std::to_string(pid) + " says that it is rank " + std::to_string(said.rank) + " of " +
                  std::to_string(group.size) + ": ranks are 0 to " + std::to_string(group.size - 1));
  }
  return std::nullopt;
}

// For a rank whose seat is taken.
inline error duplicate_objection(host_group& group, const hello& said, ::pid_t pid) {
  return error(errc::rendezvous_mismatch,
               "two processes say that they are rank " + std::to_string(said.rank) + " (pids " +
                   std::to_string(group.member(said.rank).pid) + " and " + std::to_string(pid) +
                   "): a rank given twice, or two jobs of one name; " + identity_advice(group.identity),
               said.rank);
}

// Descriptors get lost when the receiver has no room for them.
inline std::optional<error> descriptor_objection(const frame& words, const hello& said) {
  const std::size_t expected = said.has_pidfd != 0 ? 2 : 1;
  if (words.header.fds == expected && words.fds.size() == expected) return std::nullopt;
  return error(
      errc::system_error,
      "rank 0 lost descriptors of rank " + std::to_string(said.rank) + "; raise the limit of open files (ulimit -n)", 0,
      EMFILE);
}

}  // namespace detail

PEERLESS_END_NAMESPACE
