// The same bits in a program compiled and linked with -ffast-math: no reassociation, and subnormal numbers stay.
#include <bit>
#include <cstdint>
#include <thread>
#include <vector>

#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>

#include "check.hpp"

using namespace peerless;

namespace {

// All bits of what each rank gets for one element a rank.
template <class T>
std::vector<T> reduced(const std::vector<T>& ranks, protocol_id protocol) {
  const int world = static_cast<int>(ranks.size());
  thread_group group(world);
  std::vector<T> results(ranks.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      auto boot = group.rank(r);
      communicator<host> comm(boot, communicator_options{});
      const plan choice{"host", protocol, {1, 1, 16}, ""};
      comm.all_reduce_as(choice, &ranks[static_cast<std::size_t>(r)], &results[static_cast<std::size_t>(r)], 1,
                         op::sum{}, host_stream{});
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

template <class T, class Bits>
void check_sum(const std::vector<Bits>& ranks, Bits expected, protocol_id protocol) {
  std::vector<T> values;
  for (const Bits bits : ranks) values.push_back(std::bit_cast<T>(bits));
  for (const T result : reduced(values, protocol))
    PEERLESS_CHECK(std::bit_cast<Bits>(result) == expected, std::bit_cast<Bits>(result));
}

}  // namespace

int main() {
  for (const protocol_id protocol : {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk}) {
    // 1e8 + 1 + 3 - 1e8: both small numbers are lost to rounding in this order, and in this order only.
    check_sum<float, std::uint32_t>({0x4cbebc20u, 0x3f800000u, 0x40400000u, 0xccbebc20u}, 0u, protocol);
    // Subnormal: 3 + 4 units of the least bit.
    check_sum<float, std::uint32_t>({3u, 4u}, 7u, protocol);
    // The largest subnormal and one more bit: the least normal number.
    check_sum<float, std::uint32_t>({0x007fffffu, 1u}, 0x00800000u, protocol);
  }
  // 2^53 + 1 + 1 - 2^53: each 1 alone is lost.
  check_sum<double, std::uint64_t>({0x4340000000000000u, 0x3ff0000000000000u, 0x3ff0000000000000u, 0xc340000000000000u},
                                   0u, protocol_id::flagged);
  check_sum<double, std::uint64_t>({5u, 6u}, 11u, protocol_id::flagged);
  return peerless::test::report("fast_math");
}
