// Sums vectors that live in the host memory of several processes, then of several threads. Needs no GPU.
//   all_reduce_host            forks two ranks, then runs two threads
//   torchrun / mpirun / srun   each process is the rank that its launcher says
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <peerless/peerless.hpp>

namespace {

constexpr std::size_t n_elements = 100'000;

// The whole of it: any bootstrap will do, the communicator does not need it any longer once it exists.
bool sum_over_ranks(peerless::bootstrap_ref boot) {
  peerless::communicator<peerless::host> comm(boot);

  std::vector<float> mine(n_elements), sum(n_elements);
  for (std::size_t i = 0; i < n_elements; ++i)
    mine[i] = static_cast<float>(comm.rank() + 1) * static_cast<float>(i % 1000);

  comm.all_reduce(std::span<const float>(mine), std::span<float>(sum), peerless::op::sum{}, peerless::host_stream{});

  // 1 + 2 + ... + n times i % 1000: small integers, so f32 has them exactly.
  const int n = comm.world_size();
  std::size_t n_wrong = 0;
  for (std::size_t i = 0; i < n_elements; ++i)
    n_wrong += sum[i] != static_cast<float>(n * (n + 1) / 2 * static_cast<int>(i % 1000));

  const auto plan = comm.plan(n_elements * sizeof(float), peerless::dtype::f32);
  std::printf("rank %d of %d: sum[999] = %g, %zu wrong, by %.*s\n", comm.rank(), n, static_cast<double>(sum[999]),
              n_wrong, static_cast<int>(plan.transport.size()), plan.transport.data());
  return n_wrong == 0;
}

bool run_as_process(const peerless::job_identity& job, int rank, int world_size) {
  auto boot = peerless::local_host_bootstrap::connect(job, rank, world_size);
  return sum_over_ranks(boot);
}

// One of two processes: this one, and a child.
bool run_two_processes() {
  const auto job = peerless::job_identity::named("example " + std::to_string(::getpid()));
  const ::pid_t child = ::fork();
  if (child < 0) throw peerless::error(peerless::errc::system_error, "fork");
  if (child == 0) {
    bool right = false;
    try {
      right = run_as_process(job, 1, 2);
    } catch (const peerless::error& e) {
      std::fprintf(stderr, "rank 1: %s\n", e.what());
    }
    std::fflush(nullptr);
    ::_exit(right ? 0 : 1);
  }
  const bool right = run_as_process(job, 0, 2);
  int status = 0;
  ::waitpid(child, &status, 0);  // it has deadlines of its own
  return right && status == 0;
}

bool run_two_threads() {
  const peerless::thread_group group(2);
  bool right[2] = {false, false};
  const auto rank = [&](int r) {
    try {
      auto boot = group.rank(r);
      right[r] = sum_over_ranks(boot);
    } catch (const peerless::error& e) {
      std::fprintf(stderr, "rank %d: %s\n", r, e.what());
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  return right[0] && right[1];
}

}  // namespace

int main() {
  try {
    const auto launch = peerless::from_environment();
    if (launch.size > 1) return run_as_process(launch.identity, launch.rank, launch.size) ? 0 : 1;
    return run_two_processes() && run_two_threads() ? 0 : 1;
  } catch (const peerless::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
