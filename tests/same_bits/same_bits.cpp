// Every type and operation of one backend, through every protocol that it has, in several launch shapes, in place and
// not: all must hash to what the file says.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "golden.hpp"
#include "support/catch.hpp"
#include "support/rank_communicator.hpp"
#include "support/run_ranks.hpp"
#include "support/slots.hpp"

using namespace peerless::test;
using peerless::bootstrap_ref;
using peerless::protocol_id;

namespace {

struct form {
  protocol_id protocol;
  std::uint32_t blocks;
  std::uint32_t chunk_bytes;
  bool in_place;
  std::size_t offset;  // elements
};

std::vector<form> forms(int world, dtype type) {
  std::vector<form> all;
  for (bool const in_place : {false, true}) {
    for (std::uint32_t const blocks : {1u, 4u}) {
      if (peerless::has_sentinel(type))
        all.push_back({protocol_id::sentinel, blocks, 0, in_place, blocks == 1 ? 1u : 0u});
      all.push_back({protocol_id::flagged, blocks, 0, in_place, blocks == 1 ? 1u : 0u});
      for (std::uint32_t const chunk : {272u, 1024u}) {
        all.push_back({protocol_id::bulk, blocks, chunk, in_place, chunk == 272 ? 1u : 0u});
        if (world >= static_cast<int>(peerless::least_two_shot_world))
          all.push_back({protocol_id::two_shot, blocks, chunk, in_place, chunk == 272 ? 1u : 0u});
      }
    }
  }
  return all;
}

peerless::communicator_options options() {
  auto options = small_slots();
  options.sizes.sentinel_slot_bytes = options.sizes.flagged_slot_bytes = 20 << 10;
  options.sizes.bulk_blocks = 4;
  options.sizes.bulk_chunk_bytes = 1024;
  return options;
}

std::string describe(const form& f, dtype type, reduce_op operation) {
  return std::string(name_of(type)) + " " + std::string(name_of(operation)) + ", " + std::string(name_of(f.protocol)) +
         ", " + std::to_string(f.blocks) + " blocks, chunks of " + std::to_string(f.chunk_bytes) + " bytes, offset " +
         std::to_string(f.offset) + ", " + (f.in_place ? "in place" : "out of place");
}

void run_rank(rank_context& context, bootstrap_ref group, const golden_hashes& golden) {
  constexpr std::size_t most_bytes = (golden_elements + 2) * 8, arena_bytes = 3 * most_bytes;
  constexpr std::size_t out_at = (most_bytes + 255) / 256 * 256;
  auto const communicator = backend_under_test().make(group, options(), arena_bytes);
  int const world = communicator->world_size();
  for (dtype const type : golden_types) {
    if (!backend_under_test().reduces(type)) continue;
    std::size_t const bytes = golden_elements * peerless::size_bytes(type);
    std::vector<std::byte> input(bytes);
    golden_input(type, context.rank(), input);
    for (reduce_op const operation : golden_ops) {
      for (form const& f : forms(world, type)) {
        std::size_t const in = f.offset * peerless::size_bytes(type);
        std::size_t const out = f.in_place ? in : out_at + (1 - f.offset) * peerless::size_bytes(type);
        std::memset(communicator->staging(), 0xa5, arena_bytes);
        std::memcpy(communicator->staging() + in, input.data(), bytes);
        communicator->upload(arena_bytes);
        peerless::plan how = communicator->plan_with(f.protocol);
        how.shape.blocks = f.blocks;
        if (f.chunk_bytes != 0 && how.shape.chunk_bytes != 0)
          how.shape.chunk_bytes = std::min(f.chunk_bytes, how.shape.chunk_bytes);
        std::byte* arena = communicator->arena();
        communicator->all_reduce({type, operation, arena + in, arena + out, golden_elements, how});
        std::byte const* result = communicator->fetch(arena_bytes);
        if (hash_of({result + out, bytes}) == golden.of(world, type, operation)) {
          context.record().verified.fetch_add(1, std::memory_order_relaxed);
        } else {
          context.fail("same bits", describe(f, type, operation) + " has another hash");
        }
      }
    }
  }
}

void require_same_bits(int world, ranks_as how) {
  golden_hashes const golden(PEERLESS_TEST_HASHES);
  CHECK(golden.size() == golden_worlds.size() * golden_types.size() * golden_ops.size());
  auto const run =
      run_ranks(world, how, [&](rank_context& context, bootstrap_ref group) { run_rank(context, group, golden); });
  CHECK(run.problems() == "");
  CHECK(run.calls_verified() > 0);
  std::printf("%s, %d %s: %llu results with the hash of the file\n", std::string(backend_under_test().name).c_str(),
              world, name_of(how), static_cast<unsigned long long>(run.calls_verified()));
}

}  // namespace

TEST_CASE("the same bits on CPUs", "[.][cpu]") {
  for (int const world : golden_worlds)
    require_same_bits(world, world % 2 == 0 ? ranks_as::processes : ranks_as::threads);
  require_same_bits(4, ranks_as::threads);
  require_same_bits(3, ranks_as::processes);
}

TEST_CASE("the same bits on one GPU", "[.][gpu1]") {
  for (int const world : {1, 2, 3, 4}) require_same_bits(world, ranks_as::threads);
}

TEST_CASE("the same bits on two GPUs", "[.][gpu2]") {
  require_same_bits(2, ranks_as::processes);
  for (int const world : {2, 5, 8}) require_same_bits(world, ranks_as::threads);
}
