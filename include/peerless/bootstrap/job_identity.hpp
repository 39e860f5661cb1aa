// What tells one job on a box from another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <peerless/config.hpp>
#include <peerless/core/hash.hpp>

PEERLESS_BEGIN_NAMESPACE

// The name under which the ranks of one job find each other: equal on all ranks of a job, different between jobs that
// run on one box at the same time. Two users never meet, whatever their names.
struct job_identity {
  std::string text;    // any bytes; compared whole
  std::string origin;  // where `text` is from, for messages: "PEERLESS_JOB_ID", "torchrun", ...; not compared

  // Chosen by the program.
  static job_identity named(std::string text) { return {std::move(text), "the program"}; }

  // For ranks that a shell or a script started without saying a name: its session, qualified by the pid namespace in
  // which the number means something. Two jobs of one session at the same time need PEERLESS_JOB_ID.
  static job_identity of_session() {
    struct stat pid_namespace = {};
    const bool known = ::stat("/proc/self/ns/pid", &pid_namespace) == 0;
    return {"session " + std::to_string(::getsid(0)) + " of pid namespace " +
                (known ? std::to_string(pid_namespace.st_ino) : std::string("?")),
            "the login session"};
  }

  friend bool operator==(const job_identity& a, const job_identity& b) { return a.text == b.text; }
};

namespace detail {

// 128 bits that stand for an identity on the wire and in the socket's name.
struct job_key {
  std::uint64_t high;
  std::uint64_t low;

  static constexpr job_key of(std::string_view text) noexcept { return {stable_hash(text, 1), stable_hash(text, 2)}; }
  friend constexpr bool operator==(job_key, job_key) = default;
};

// Ends the messages about jobs that meet or miss each other.
inline std::string identity_advice(const job_identity& identity) {
  return "the job's name is \"" + identity.text + "\" (from " + identity.origin +
         "); give each job on this machine its own PEERLESS_JOB_ID, the same on all its ranks";
}

}  // namespace detail

PEERLESS_END_NAMESPACE
