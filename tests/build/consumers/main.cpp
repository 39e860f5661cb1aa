// A user's program: two ranks, as threads, reduce in host memory.
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

int main() {
  constexpr int world_size = 2;
  peerless::thread_group group(world_size);
  std::vector<std::vector<float>> results(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto boot = group.rank(rank);
      peerless::communicator<peerless::host> comm(boot);
      std::vector<float> values{1.0f + static_cast<float>(rank), 10.0f, -2.5f * static_cast<float>(rank)};
      comm.all_reduce(std::span<const float>(values), std::span<float>(values), peerless::op::sum{}, peerless::host_stream{});
      results[static_cast<std::size_t>(rank)] = values;
    });
  }
  for (auto& rank : ranks) rank.join();
  const std::vector<float> expected{3.0f, 20.0f, -2.5f};
  const bool right = results[0] == expected && results[1] == expected;
  std::printf("version %d.%d.%d: %s\n", PEERLESS_VERSION_MAJOR, PEERLESS_VERSION_MINOR, PEERLESS_VERSION_PATCH,
              right ? "right" : "WRONG");
  return right ? 0 : 1;
}
