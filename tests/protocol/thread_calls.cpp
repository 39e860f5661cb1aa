// Ranks as threads on plain views, duties in a drawn order: the program for the race detector, and for what only the
// executor of CPUs does. Usage: thread_calls [calls a round [seed]]
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <peerless/transport/host_executor.hpp>

#include "check.hpp"
#include "support/random.hpp"

namespace peerless::test {
namespace {

struct planned_call {
  protocol_id protocol;
  std::uint32_t n_elements;
  std::uint32_t blocks;
  std::uint32_t chunk_bytes;
  bool in_place;
};

struct freed {
  void operator()(std::byte* p) const { std::free(p); }
};

// The memory that ranks of one process share, and what each keeps for itself.
class thread_world {
 public:
  thread_world(std::uint32_t world, std::uint64_t first_epoch, std::uint64_t deadline_ns)
      : layout_(make_layout({.world_size = world, .bulk_blocks = 3, .bulk_depth = 2, .bulk_chunk_bytes = 64,
                             .sentinel_slot_bytes = 1024, .flagged_slot_bytes = 1024})),
        segment_(static_cast<std::byte*>(std::aligned_alloc(4096, layout_.total_bytes))),
        controls_(world), calls_(world, make_call_state(first_epoch)),
        protocols_(world, make_protocol_state(first_epoch)), deadline_ns_(deadline_ns) {
    std::memset(segment_.get(), 0, layout_.total_bytes);
    initialise_segment(segment_.get(), layout_, first_epoch);
  }

  rank_view view(std::uint32_t r) {
    return {controls_.data(), &calls_[r], segment_.get(), &protocols_[r], layout_, deadline_ns_, r};
  }
  failure_record& failure(std::uint32_t r) { return controls_[r].failure; }
  control_block& control(std::uint32_t r) { return controls_[r]; }

 private:
  segment_layout layout_;
  std::unique_ptr<std::byte, freed> segment_;
  std::vector<control_block> controls_;
  std::vector<call_state> calls_;
  std::vector<protocol_state> protocols_;
  std::uint64_t deadline_ns_;
};

template <class Body>
void on_every_rank(std::uint32_t world, Body body) {
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < world; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

std::uint32_t input_bits(std::uint64_t seed, std::uint32_t r, std::size_t call, std::size_t i) {
  const std::uint64_t h = mix(seed ^ (std::uint64_t{r} << 56 | std::uint64_t{call} << 32 | i));
  if (h % 64 == 0) return sentinel_word;
  return (124 + static_cast<std::uint32_t>(h >> 60 & 7)) << 23 | static_cast<std::uint32_t>(h >> 20 & 0x7fffff);
}

std::uint32_t expected_bits(std::uint64_t seed, std::uint32_t world, std::size_t call, std::size_t i) {
  float sum = 0;
  for (std::uint32_t r = 0; r < world; ++r) {
    const std::uint32_t bits = input_bits(seed, r, call, i);
    if (bits == sentinel_word) return 0x7fffffffu;
    const auto value = std::bit_cast<float>(bits);
    sum = r == 0 ? value : static_cast<float>(static_cast<double>(sum) + static_cast<double>(value));
  }
  return std::bit_cast<std::uint32_t>(sum);
}

planned_call draw_call(random_choices& choices, std::uint32_t world) {
  planned_call call{};
  call.protocol = static_cast<protocol_id>(choices.once_in(2) ? 1 : 2 + choices.below(2));
  if (world >= least_two_shot_world && choices.once_in(3)) call.protocol = protocol_id::two_shot;
  constexpr std::uint32_t most[] = {0, 256, 256, 300, 0, 300};
  call.n_elements = choices.once_in(5) ? 0 : static_cast<std::uint32_t>(choices.below(most[static_cast<int>(call.protocol)] + 1));
  call.blocks = static_cast<std::uint32_t>(1 + choices.below(3));
  call.chunk_bytes = choices.once_in(2) ? 64 : 16;
  call.in_place = choices.once_in(4);
  return call;
}

void make_call(const rank_view& v, const planned_call& call, std::vector<float>& in, std::vector<float>& out, std::uint64_t duty_seed,
               dtype said = dtype::f32) {
  auto& result = call.in_place ? in : out;
  const std::uint64_t fingerprint = fingerprint_of({call.n_elements, said, reduce_op::sum, call.protocol});
  run_on_host<float, op::sum>(v, fingerprint, message<float>{in.data(), result.data(), call.n_elements}, call.blocks, call.chunk_bytes,
                              duty_seed);
}

// Many calls of all protocols, every result checked.
void torture(std::uint32_t world, std::uint64_t first_epoch, std::size_t n_calls, std::uint64_t seed) {
  thread_world shared(world, first_epoch, 20'000'000'000);
  random_choices choices(seed);
  std::vector<planned_call> calls;
  for (std::size_t k = 0; k < n_calls; ++k) calls.push_back(draw_call(choices, world));
  std::vector<std::size_t> wrong(world);
  on_every_rank(world, [&](std::uint32_t r) {
    const rank_view v = shared.view(r);
    random_choices own(mix(seed + r));
    std::vector<float> in, out;
    for (std::size_t k = 0; k < n_calls; ++k) {
      const planned_call& call = calls[k];
      in.resize(call.n_elements);
      for (std::size_t i = 0; i < call.n_elements; ++i) in[i] = std::bit_cast<float>(input_bits(seed, r, k, i));
      out.assign(call.n_elements, -1.0f);
      if (own.once_in(16)) std::this_thread::yield();
      make_call(v, call, in, out, seed);
      const auto& result = call.in_place ? in : out;
      for (std::size_t i = 0; i < call.n_elements; ++i) {
        if (std::bit_cast<std::uint32_t>(result[i]) != expected_bits(seed, world, k, i)) ++wrong[r];
      }
    }
  });
  for (std::uint32_t r = 0; r < world; ++r) {
    PEERLESS_CHECK(wrong[r] == 0, r);
    PEERLESS_CHECK(shared.failure(r).ready == 0, shared.failure(r).code);
  }
}

// Ranks whose calls differ, one from the others, all end with a mismatch, long before the deadline; the calls after it return at once
// and touch nothing.
void mismatch(protocol_id protocol, std::uint32_t first_count, std::uint32_t second_count, dtype second_type) {
  const std::uint32_t world = protocol == protocol_id::two_shot ? least_two_shot_world : 2;
  thread_world shared(world, 1, 5'000'000'000);
  std::vector<int> touched(world);
  on_every_rank(world, [&](std::uint32_t r) {
    const rank_view v = shared.view(r);
    std::vector<float> in(64, 1.0f), out(64, -1.0f);
    make_call(v, {protocol, 16, 1, 64, false}, in, out, 0);
    out.assign(64, -1.0f);
    make_call(v, {protocol, r == 0 ? first_count : second_count, 1, 64, false}, in, out, 0, r == 0 ? dtype::f32 : second_type);
    out.assign(64, -1.0f);
    const call_state before = *v.calls;
    make_call(v, {protocol, 16, 1, 64, false}, in, out, 0);
    for (const float value : out) touched[r] += value != -1.0f;
    touched[r] += v.calls->next_call != before.next_call;
    touched[r] += static_cast<std::uint32_t>(shared.control(r).call_line[0] >> 32) != 2;
  });
  for (std::uint32_t r = 0; r < world; ++r) {
    const failure_record& f = shared.failure(r);
    PEERLESS_CHECK(f.ready == 1 && f.code == static_cast<std::uint32_t>(errc::call_mismatch), f.code);
    PEERLESS_CHECK((r == 0) != (f.about == 0) && f.call == 2, f.about);
    PEERLESS_CHECK(touched[r] == 0, touched[r]);
  }
}

// A rank that never comes: a timeout that names it.
void absent(protocol_id protocol) {
  thread_world shared(3, 5, 50'000'000);
  on_every_rank(2, [&](std::uint32_t r) {
    std::vector<float> in(16, 1.0f), out(16, -1.0f);
    make_call(shared.view(r), {protocol, 16, 1, 64, false}, in, out, 3);
  });
  for (std::uint32_t r = 0; r < 2; ++r) {
    const failure_record& f = shared.failure(r);
    PEERLESS_CHECK(f.ready == 1 && f.code == static_cast<std::uint32_t>(errc::timeout), f.code);
    PEERLESS_CHECK(f.about == 2 && f.call == 5 && f.protocol == static_cast<std::uint32_t>(protocol), f.about);
  }
}

}  // namespace
}  // namespace peerless::test

int main(int argc, char** argv) {
  namespace t = peerless::test;
  using peerless::dtype;
  using peerless::protocol_id;
  const std::size_t n_calls = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 2000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
  t::torture(2, 1, n_calls, seed);
  t::torture(3, (std::uint64_t{1} << 32) - n_calls / 3, n_calls, seed + 1);
  t::torture(2, (std::uint64_t{1} << 63) - n_calls / 3, n_calls, seed + 2);
  t::torture(1, 1, 100, seed + 3);
  for (const auto protocol : {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk, protocol_id::two_shot}) {
    t::mismatch(protocol, 16, 17, dtype::f32);
    t::mismatch(protocol, 0, 40, dtype::f32);
    t::mismatch(protocol, 16, 16, dtype::i32);
    t::absent(protocol);
  }
  return t::report("thread_calls");
}
