// Sums vectors among four threads through a transport of our own, which the library knows nothing of.
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include <peerless/peerless.hpp>

#include "mailbox.hpp"

namespace {

constexpr int world_size = 4;
constexpr std::size_t n_elements = 100'000;

// True when every element is the sum of all ranks'.
bool sum_over_ranks(peerless::bootstrap_ref boot) {
  // `host` stands in where `mailbox` does not come up; here PEERLESS_TRANSPORT=host would ask for it.
  peerless::communicator<toy::mailbox, peerless::host> comm(boot);

  std::vector<float> values(n_elements);
  for (std::size_t i = 0; i < n_elements; ++i)
    values[i] = static_cast<float>(comm.rank() + 1) * static_cast<float>(i % 1000);
  comm.all_reduce(std::span<float>(values), peerless::op::sum{}, peerless::host_stream{});

  // (1 + 2 + 3 + 4) times i % 1000: small integers, so f32 has them exactly.
  std::size_t n_wrong = 0;
  for (std::size_t i = 0; i < n_elements; ++i) n_wrong += values[i] != 10.0f * static_cast<float>(i % 1000);
  const auto plan = comm.plan(n_elements * sizeof(float), peerless::dtype::f32);
  std::printf("rank %d of %d: %zu elements verified, %zu wrong, by %.*s\n", comm.rank(), comm.world_size(), n_elements,
              n_wrong, static_cast<int>(plan.transport.size()), plan.transport.data());
  return n_wrong == 0;
}

}  // namespace

int main() {
  const peerless::thread_group group(world_size);
  bool right[world_size] = {};
  std::vector<std::thread> ranks;
  for (int r = 0; r < world_size; ++r) {
    ranks.emplace_back([&, r] {
      try {
        auto boot = group.rank(r);
        right[r] = sum_over_ranks(boot);
      } catch (const peerless::error& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const bool one : right) {
    if (!one) return 1;
  }
  return 0;
}
