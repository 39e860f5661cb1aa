// Protocol `copied` with CPU threads in the place of kernels and copy engines: every rank takes the stages of its calls
// one after the other, in an order of its own drawn among all that the dependencies allow. That is the worst that
// shared hardware queues can do, and a circle of waits would end in a timeout.
// Usage: copied_calls [calls a round [seed]]
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <peerless/protocol/copy_pipeline.hpp>
#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/memory_cpu.hpp>

#include "check.hpp"
#include "support/random.hpp"

namespace peerless::test {
namespace {

struct freed {
  void operator()(std::byte* p) const { std::free(p); }
};

class copy_world {
 public:
  copy_world(std::uint32_t world, copy_sizes sizes, std::uint64_t first_epoch, std::uint64_t deadline_ns)
      : layout_(make_copy_layout(sizes, world)),
        segment_(static_cast<std::byte*>(std::aligned_alloc(4096, layout_.total_bytes))),
        scratch_(world, std::vector<vec16>(std::size_t{copy_scratch(sizes.depth)} * world * sizes.chunk_bytes / 16)),
        controls_(world), calls_(world, make_call_state(first_epoch)), protocols_(world, make_protocol_state(first_epoch)),
        states_(world, make_copy_state(sizes, first_epoch)), deadline_ns_(deadline_ns) {
    std::memset(segment_.get(), 0, layout_.total_bytes);
    initialise_copy_segment(segment_.get(), layout_, first_epoch);
  }
  copy_view view(std::uint32_t r) {
    const rank_view ranks{controls_.data(), &calls_[r], nullptr, &protocols_[r], make_layout({.world_size = layout_.world_size}),
                          deadline_ns_, r};
    return {ranks, segment_.get(), &states_[r], reinterpret_cast<std::byte*>(scratch_[r].data()), layout_};
  }
  failure_record& failure(std::uint32_t r) { return controls_[r].failure; }

 private:
  copy_layout layout_;
  std::unique_ptr<std::byte, freed> segment_;
  std::vector<std::vector<vec16>> scratch_;
  std::vector<control_block> controls_;
  std::vector<call_state> calls_;
  std::vector<protocol_state> protocols_;
  std::vector<copy_state> states_;
  std::uint64_t deadline_ns_;
};

// One call of one rank; what a launch would be is a call of run().
class copied_call {
 public:
  copied_call(const copy_view& v, const message<float>& msg, std::uint32_t chunk_bytes, dtype said = dtype::f32)
      : v_(v), msg_(msg), chunk_(chunk_bytes), fingerprint_(fingerprint_of({msg.n_elements, said, reduce_op::sum, protocol_id::copied})) {
    const std::uint64_t bytes = msg.n_elements * sizeof(float);
    n_chunks_ = bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + chunk_ - 1) / chunk_);
    copies_ = bytes != 0 && v.layout.world_size > 1;
  }

  struct node {
    copy_stage stage;
    std::vector<std::size_t> before;
  };
  std::vector<node> nodes() const {
    std::vector<node> all;
    const auto find = [&](copy_stage s) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].stage.step == s.step && all[i].stage.n == s.n) return i;
      }
      PEERLESS_CHECK(false, s.n);  // enqueued before what it depends on
      return std::size_t{0};
    };
    for_each_copy_stage(n_chunks_, v_.layout.sizes.depth, copies_, [&](copy_stage stage, std::initializer_list<copy_stage> before) {
      node it{stage, {}};
      for (const copy_stage& b : before) it.before.push_back(find(b));
      if (stage.n > 0) it.before.push_back(find({stage.step, stage.n - 1}));
      all.push_back(it);
    });
    return all;
  }

  // All stages in an order drawn by `choices`.
  void run_in_some_order(random_choices& choices) {
    const std::vector<node> all = nodes();
    std::vector<bool> done(all.size());
    const std::uint64_t taste = choices.below(3);  // any stage; the first or the last that may be next, mostly
    for (std::size_t left = all.size(); left > 0; --left) {
      std::vector<std::size_t> next;
      for (std::size_t i = 0; i < all.size(); ++i) {
        bool may = !done[i];
        for (const std::size_t b : all[i].before) may = may && done[b];
        if (may) next.push_back(i);
      }
      const std::size_t any = choices.below(next.size());
      const std::size_t chosen = taste == 0 || choices.once_in(8) ? any : taste == 1 ? 0 : next.size() - 1;
      run(all[next[chosen]].stage);
      done[next[chosen]] = true;
    }
  }

  void run(copy_stage s) {
    const std::uint32_t world = v_.layout.world_size, rank = v_.ranks.rank;
    copy_pipeline<cpu_memory> call(cpu_memory{}, v_);
    const std::size_t at = std::size_t{s.n} * chunk_, bytes = msg_.n_elements * sizeof(float);
    const std::size_t length = at < bytes ? std::min(std::size_t{chunk_}, bytes - at) : 0;
    bool good = true;
    switch (s.step) {
      case copy_step::hand:
        if (s.n == 0 && !is_poisoned(cpu_memory{}, v_.ranks)) {
          const call_frame f = open_call(cpu_memory{}, v_.ranks, fingerprint_);
          call.begin(f, n_chunks_);
          announce_call(cpu_memory{}, v_.ranks, f);
          advance_call(cpu_memory{}, v_.ranks, f);
        }
        good = call.resume();
        for (std::uint32_t p = 0; p < world && good; ++p) good = p == rank || call.await_room(s.n, p);
        if (!good && copies_) call.own_up();
        break;
      case copy_step::upload: std::memcpy(v_.place(rank, s.n), reinterpret_cast<const std::byte*>(msg_.in) + at, length); break;
      case copy_step::announce:
        if (call.resume()) call.publish(s.n);
        break;
      case copy_step::await:
        good = call.resume();
        for (std::uint32_t p = 0; p < world && good; ++p) good = p == rank || call.await_chunk(s.n, p);
        break;
      case copy_step::download:
        // After a failure copies run on, into memory that nobody reads; here a race detector would not know that.
        if (is_poisoned(cpu_memory{}, v_.ranks)) break;
        for (std::uint32_t p = 0; p < world; ++p) {
          if (p != rank) std::memcpy(v_.scratch_of(p, s.n), v_.place(p, s.n), length);
        }
        break;
      case copy_step::fold:
        good = call.resume();
        for (std::uint32_t p = 0; p < world && good; ++p) {
          if (p == rank) continue;
          call.acknowledge(s.n, s.n + 1 == n_chunks_, p);
          if (copies_) good = call.is_sound(p);
        }
        if (!good) break;
        const std::uint64_t first = at / 16, end = (at + length + 15) / 16;
        for (std::uint64_t i = first; i < end; ++i) {
          fold_payload<op::sum, 1>(cpu_memory{}, msg_, rank, world, i, 1, end, [&](std::uint32_t r, std::uint64_t k) {
            return reinterpret_cast<const vec16*>(v_.scratch_of(r, s.n)) + (k - first);
          });
        }
        break;
    }
  }

 private:
  copy_view v_;
  message<float> msg_;
  std::uint32_t chunk_;
  std::uint64_t fingerprint_;
  std::uint32_t n_chunks_;
  bool copies_;
};

template <class Body>
void on_every_rank(std::uint32_t world, Body body) {
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < world; ++r) threads.emplace_back(body, r);
  for (auto& thread : threads) thread.join();
}

// Small whole numbers: every order of summation is exact.
float input(std::uint64_t seed, std::uint32_t r, std::size_t call, std::size_t i) {
  return static_cast<float>(mix(seed ^ (std::uint64_t{r} << 56 | std::uint64_t{call} << 32 | i)) % 100'000);
}

void torture(std::uint32_t world, std::uint32_t depth, std::uint64_t first_epoch, std::size_t n_calls, std::uint64_t seed) {
  copy_world shared(world, {depth, 64}, first_epoch, 20'000'000'000);
  std::vector<std::size_t> wrong(world);
  on_every_rank(world, [&](std::uint32_t r) {
    const copy_view v = shared.view(r);
    random_choices alike(seed), own(mix(seed + r));
    std::vector<float> in, out;
    for (std::size_t k = 0; k < n_calls; ++k) {
      const std::size_t n = alike.once_in(6) ? 0 : alike.below(16 * 3 * depth);
      const std::uint32_t chunk = alike.once_in(2) ? 64 : 16;
      const bool in_place = own.once_in(3);
      in.resize(n + 1);
      for (std::size_t i = 0; i < n; ++i) in[i] = input(seed, r, k, i);
      out.assign(n + 1, -1.0f);
      in[n] = -1.0f;
      auto& result = in_place ? in : out;
      copied_call({v, message<float>{in.data(), result.data(), n}, chunk}).run_in_some_order(own);
      for (std::size_t i = 0; i < n; ++i) {
        float sum = 0;
        for (std::uint32_t p = 0; p < world; ++p) sum += input(seed, p, k, i);
        wrong[r] += result[i] != sum;
      }
      wrong[r] += result[n] != -1.0f;
    }
  });
  for (std::uint32_t r = 0; r < world; ++r) {
    PEERLESS_CHECK(wrong[r] == 0, wrong[r]);
    PEERLESS_CHECK(shared.failure(r).ready == 0, shared.failure(r).code);
  }
}

void mismatch(std::size_t first, std::size_t second, dtype type) {
  copy_world shared(2, {4, 64}, 1, 5'000'000'000);
  on_every_rank(2, [&](std::uint32_t r) {
    std::vector<float> in(1000, 1.0f), out(1000, -1.0f);
    random_choices own(r);
    const auto call = [&](std::size_t n, dtype said) {
      copied_call({shared.view(r), message<float>{in.data(), out.data(), n}, 64, said}).run_in_some_order(own);
    };
    call(300, dtype::f32);
    call(r == 0 ? first : second, r == 0 ? dtype::f32 : type);
  });
  for (std::uint32_t r = 0; r < 2; ++r) {
    const failure_record& f = shared.failure(r);
    PEERLESS_CHECK(f.ready == 1 && f.code == static_cast<std::uint32_t>(errc::call_mismatch), f.code);
    PEERLESS_CHECK(f.about == 1 - r && f.call == 2, f.about);
  }
}

// Rank 0 ends its call, fails, and goes on to the next, whose upload nobody has given leave for: rank 1, which is still
// at the chunk in that place, must not take it for the first call's.
void failed_rank_overwrites() {
  copy_world shared(2, {4, 64}, 1, 1'000'000'000);
  std::vector<float> in(16, 1.0f), out0(16, -1.0f), out1(16, -1.0f);
  const copy_view v0 = shared.view(0), v1 = shared.view(1);
  copied_call zero(v0, {in.data(), out0.data(), 16}, 64), one(v1, {in.data(), out1.data(), 16}, 64);
  using enum copy_step;
  for (copied_call* call : {&zero, &one}) {
    for (const copy_stage s : {copy_stage{hand, 0}, {upload, 0}, {announce, 0}}) call->run(s);
  }
  for (const copy_stage s : {copy_stage{await, 0}, {download, 0}, {fold, 0}}) zero.run(s);
  PEERLESS_CHECK(out0[15] == 2.0f);
  one.run({await, 0});
  fail_call(cpu_memory{}, v0.ranks, open_call(cpu_memory{}, v0.ranks, fingerprint_of({16, dtype::f32, reduce_op::sum, protocol_id::copied})),
            errc::aborted, 0, 0, 0);
  std::vector<float> other(16, 5.0f);
  copied_call next(v0, {other.data(), out0.data(), 16}, 64);
  for (const copy_stage s : {copy_stage{hand, 0}, {upload, 0}}) next.run(s);
  for (const copy_stage s : {copy_stage{download, 0}, {fold, 0}}) one.run(s);
  const failure_record& f = shared.failure(1);
  PEERLESS_CHECK(f.ready == 1 && f.code == static_cast<std::uint32_t>(errc::aborted) && f.about == 0, f.code);
  PEERLESS_CHECK(out1[0] == -1.0f && out1[15] == -1.0f);
}

void absent() {
  copy_world shared(3, {4, 64}, 5, 50'000'000);
  on_every_rank(2, [&](std::uint32_t r) {
    std::vector<float> in(500, 1.0f), out(500, -1.0f);
    random_choices own(r);
    for (int i = 0; i < 5; ++i) copied_call({shared.view(r), message<float>{in.data(), out.data(), 500}, 64}).run_in_some_order(own);
    for (const float value : out) PEERLESS_CHECK(value == -1.0f);
  });
  for (std::uint32_t r = 0; r < 2; ++r) {
    const failure_record& f = shared.failure(r);
    PEERLESS_CHECK(f.ready == 1 && f.code == static_cast<std::uint32_t>(errc::timeout), f.code);
    PEERLESS_CHECK(f.about == 2 && f.call == 5, f.about);
  }
}

void check_layout() {
  for (const std::uint32_t world : {1u, 2u, 3u, 16u}) {
    for (const std::uint32_t depth : {2u, 4u, 8u, 64u}) {
      copy_view v{};
      v.layout = make_copy_layout({depth, 48}, world);
      v.ranks.layout = make_layout({.world_size = world});
      PEERLESS_CHECK(v.layout.total_bytes % (2 << 20) == 0);
      PEERLESS_CHECK(v.place(world - 1, depth - 1) + 48 <= v.segment + v.layout.total_bytes);
      PEERLESS_CHECK(v.place(0, depth) == v.place(0, 0) && v.place(1, 0) == v.place(0, depth - 1) + 48);
      PEERLESS_CHECK(reinterpret_cast<std::byte*>(v.consumed(world - 1, world - 1) + 1) <= v.place(0, 0));
      PEERLESS_CHECK(reinterpret_cast<std::byte*>(v.taint(world - 1)) < reinterpret_cast<std::byte*>(v.consumed(0, 0)));
      for (const std::uint64_t epoch : {std::uint64_t{1}, std::uint64_t{77}, (std::uint64_t{1} << 63) + 5})
        PEERLESS_CHECK(make_copy_state({depth, 48}, epoch).next_base % depth == 0, epoch);
    }
  }
}

}  // namespace
}  // namespace peerless::test

int main(int argc, char** argv) {
  namespace t = peerless::test;
  using peerless::dtype;
  const std::size_t n_calls = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 300;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
  t::check_layout();
  t::torture(1, 4, 1, 20, seed);
  t::torture(2, 2, 1, n_calls, seed + 5);
  t::torture(2, 4, 1, n_calls, seed + 1);
  t::torture(2, 8, (std::uint64_t{1} << 32) - 40, n_calls, seed + 2);
  t::torture(3, 4, (std::uint64_t{1} << 63) - 40, n_calls, seed + 3);
  t::torture(4, 4, 9, n_calls / 2, seed + 4);
  t::mismatch(300, 301, dtype::f32);
  t::mismatch(0, 300, dtype::f32);
  t::mismatch(300, 300, dtype::i32);
  t::failed_rank_overwrites();
  t::absent();
  return t::report("copied_calls");
}
