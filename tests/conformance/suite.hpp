// Runs the list of cases under a setting.
#pragma once

#include <cstdint>
#include <string>

#include "case.hpp"

namespace peerless::test {

struct session_result {
  std::string problems;     // empty: all well
  std::uint64_t calls = 0;  // collective calls that every rank verified
  std::string summary;      // one line: what ran, what does not apply and why
};

// Runs every case that applies on one set of ranks with one communicator. Called by the supervisor.
session_result run_session(const setting& s);

// Runs sessions and prints their summaries. Returns the problems of all; adds to `calls`.
std::string run_sessions(std::span<const setting> sessions, std::uint64_t& calls);

}  // namespace peerless::test
