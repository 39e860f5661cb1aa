// What is measured under one name of the transport column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json_lines.hpp"
#include "problem.hpp"

namespace peerless::bench {

// How a problem is timed: samples, each of so many calls back to back.
struct sampling {
  int n_calls = 1;
  int n_samples = 1;
};

// One rank's part of a row set. All ranks call the collective members in the same order with equal arguments; they
// block at most for the deadline of the run, and throw peerless::error.
class arm {
 public:
  virtual ~arm() = default;

  virtual std::string_view name() const = 0;
  // One line: what was set up, and why.
  virtual std::string describe() const = 0;
  virtual timing_mode mode() const = 0;

  // Collective, before verify() of the same problem; may run it on any data. Why its transport takes no such problem,
  // in or out of place; empty where it does. The same on every rank.
  virtual std::string refuses(const problem&) { return {}; }

  // Collective. Runs the problem once on fresh data, over a poisoned output where it is not in place. The number of
  // elements of this rank's output that are not what they must be.
  virtual std::uint64_t verify(const problem& p) = 0;

  // Collective, after verify() of the same problem. The same on every rank.
  virtual sampling plan_samples(const problem& p) = 0;

  // Collective, after verify() of the same problem. Time of one call, in us, on this rank, of each sample; two more
  // samples before these are dropped. Before each sample the ranks meet and make two calls that are not timed, so that
  // all of them start together.
  virtual std::vector<double> time(const problem& p, sampling s) = 0;

  // Local, after time() of the same problem, which was not in place: as verify(), of the output of the last timed call.
  virtual std::uint64_t verify_output(const problem& p) = 0;
};

// Samples before those that count, and calls that are not timed before each sample.
inline constexpr int n_dropped_samples = 2;
inline constexpr int n_aligning_calls = 2;

}  // namespace peerless::bench
