// From the times of all ranks to one figure with its spread, and to bandwidths.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace peerless::bench {

// Of one row's samples, us a call. p99 is by nearest rank, so it is the largest of fewer than 100 samples.
struct time_summary {
  double median_us = 0;
  double min_us = 0;
  double p99_us = 0;
};

// `samples` is not empty (std::invalid_argument), in any order. An even number of samples has the mean of the two
// middle ones as its median.
inline time_summary summarize(std::vector<double> samples) {
  if (samples.empty()) throw std::invalid_argument("no samples to summarize");
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  const auto rank = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(n)));
  return {median, samples.front(), samples[std::min(n, std::max<std::size_t>(rank, 1)) - 1]};
}

// The slowest rank of every sample: a collective has ended when it has ended everywhere. `all` holds the samples of
// rank 0, then those of rank 1, and so on, equally many of each.
inline std::vector<double> max_over_ranks(std::span<const double> all, std::size_t n_ranks) {
  if (n_ranks == 0 || all.size() % n_ranks != 0) throw std::invalid_argument("ranks with different numbers of samples");
  const std::size_t n_samples = all.size() / n_ranks;
  std::vector<double> slowest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n_samples));
  for (std::size_t rank = 1; rank < n_ranks; ++rank) {
    for (std::size_t i = 0; i < n_samples; ++i) slowest[i] = std::max(slowest[i], all[rank * n_samples + i]);
  }
  return slowest;
}

// Message bytes a time, GB/s with GB = 10^9. 0 where the time is 0.
inline double algorithm_bandwidth(std::size_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
}

// What each link of a bus-optimal all-reduce would carry: 2 (n - 1) / n of the algorithm bandwidth.
inline double bus_bandwidth(double algorithm_bandwidth, int n_ranks) {
  return n_ranks > 0 ? algorithm_bandwidth * 2 * (n_ranks - 1) / n_ranks : 0;
}

}  // namespace peerless::bench
