// How many blocks a launch has where GPUs differ or are shared.
#include <peerless/transport/gpu_shares.hpp>

#include <algorithm>
#include <vector>

#include "support/catch.hpp"

using peerless::gpu_of_rank;
using peerless::share_gpus;

namespace {

gpu_of_rank gpu(int id, std::uint32_t multiprocessors) {
  gpu_of_rank made{{}, multiprocessors};
  made.uuid[15] = static_cast<std::byte>(id);
  return made;
}

}  // namespace

TEST_CASE("every rank launches what the smallest GPU can hold") {
  CHECK(share_gpus(std::vector{gpu(0, 132), gpu(1, 132)}).most_blocks == 64);
  CHECK(share_gpus(std::vector{gpu(0, 128), gpu(1, 24), gpu(2, 82)}).most_blocks == 24);
  CHECK(share_gpus(std::vector{gpu(0, 128), gpu(1, 24), gpu(2, 82)}).most_sharing == 1);
}

TEST_CASE("blocks of ranks that share a GPU fit on it together") {
  CHECK(share_gpus(std::vector{gpu(0, 132), gpu(0, 132)}).most_blocks == 64);
  CHECK(share_gpus(std::vector(4, gpu(0, 132))).most_blocks == 33);
  CHECK(share_gpus(std::vector(4, gpu(0, 132))).most_sharing == 4);
  CHECK(share_gpus(std::vector{gpu(0, 82), gpu(1, 46), gpu(0, 82), gpu(1, 46)}).most_blocks == 23);
  // Green contexts of one GPU have a part of it each.
  CHECK(share_gpus(std::vector{gpu(0, 16), gpu(0, 40)}).most_blocks == 8);
  CHECK(share_gpus(std::vector(16, gpu(0, 8))).most_blocks == 1);
}

TEST_CASE("the order of ranks does not matter, and one rank has a GPU of its own") {
  std::vector ranks{gpu(3, 30), gpu(1, 68), gpu(3, 30), gpu(2, 40)};
  auto const first = share_gpus(ranks);
  std::reverse(ranks.begin(), ranks.end());
  CHECK(share_gpus(ranks).most_blocks == first.most_blocks);
  CHECK(first.most_blocks == 15);
  CHECK(first.most_sharing == 2);
  CHECK(share_gpus(std::vector{gpu(0, 46)}).most_blocks == 46);
}
