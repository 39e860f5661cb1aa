// One of the two libraries; LIBRARY_NAME is the function that it exports. Nothing is hidden on purpose: every inline
// function of the library is a symbol of this shared object, and only the namespace keeps the versions apart.
#include "library.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <thread>

#include <peerless/bootstrap/local_host.hpp>
#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

namespace {

int version() {
  return 10000 * PEERLESS_VERSION_MAJOR + 100 * PEERLESS_VERSION_MINOR + PEERLESS_VERSION_PATCH;
}

void reduce_as(peerless::thread_group& group, int rank, double& result) {
  auto boot = group.rank(rank);
  peerless::communicator<peerless::host> comm(boot);
  const double mine = 1.0 + rank;
  comm.all_reduce(std::span<const double>(&mine, 1), std::span<double>(&result, 1), peerless::op::sum{}, peerless::host_stream{});
}

double sum_over_threads() {
  peerless::thread_group group(2);
  std::array<double, 2> results{-1.0, -1.0};
  std::thread other([&] { reduce_as(group, 1, results[1]); });
  reduce_as(group, 0, results[0]);
  other.join();
  return results[0] == results[1] ? results[0] : -1.0;
}

unsigned join(int rank, const char* job) {
  try {
    peerless::local_host_bootstrap::connect(peerless::job_identity::named(job), rank, 2, {.deadline = std::chrono::seconds(10)});
    return 0;
  } catch (const peerless::error& caught) {
    return static_cast<unsigned>(caught.code());
  }
}

}  // namespace

extern "C" library_functions LIBRARY_NAME() { return {&version, &sum_over_threads, &join}; }
