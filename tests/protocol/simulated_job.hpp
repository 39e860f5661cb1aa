// Ranks that make calls of all protocols on a simulator: what to do, how it must end, and the check that it does.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <peerless/protocol/bulk_ring.hpp>
#include <peerless/protocol/flagged_one_shot.hpp>
#include <peerless/protocol/memory_cpu.hpp>
#include <peerless/protocol/sentinel_one_shot.hpp>
#include <peerless/protocol/two_shot.hpp>

#include "weak_memory.hpp"

namespace peerless::test {

// How the calls of a run end.
enum class ending : std::uint8_t {
  orderly,   // every rank makes every call and closes
  mismatch,  // one rank makes another call than the others
  absent,    // one rank makes no more calls: a timeout
  died,      // as absent, but without a deadline: the others' hosts learn that it died
  aborted,   // a rank of two is aborted while it waits for the other, which comes later
  closed,    // one rank closes in order before the last calls of the others
};
inline constexpr const char* name_of(ending how) {
  constexpr const char* names[] = {"orderly", "mismatch", "absent", "died", "aborted", "closed"};
  return names[static_cast<int>(how)];
}

struct planned_call {
  protocol_id protocol;
  std::uint32_t n_elements;
  std::uint32_t blocks;
  std::uint32_t chunk_bytes;
  bool in_place;
};

struct plan {
  std::uint64_t seed;
  std::uint32_t world;
  std::uint32_t depth;  // of the rings: a power of two
  std::uint64_t first_epoch;
  std::vector<planned_call> calls;
  ending how;
  std::uint32_t victim;  // the rank that ends the run
  std::size_t at;        // before or in this call
  std::uint64_t ns_per_step;
  unsigned passes_one_in;
  weakness weak;
};

// Runs plans on one simulator, one after the other.
class simulated_job {
 public:
  static constexpr std::uint32_t most_ranks = 3, most_depth = 8;
  static constexpr layout_sizes sizes_of(std::uint32_t world, std::uint32_t depth) {
    return {.world_size = world, .bulk_blocks = 3, .bulk_depth = depth, .bulk_chunk_bytes = 64, .sentinel_slot_bytes = 256,
            .flagged_slot_bytes = 384};
  }

  explicit simulated_job(simulator& s) : s_(&s) {
    const std::size_t bytes = segment_offset + make_layout(sizes_of(most_ranks, most_depth)).total_bytes;
    arena_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    arena_bytes_ = bytes;
    s.on_payload_load = [this](const vec16* from, std::size_t taken) { check_own_input(from, taken); };
  }

  void run(const plan& what) {
    plan_ = &what;
    choices_ = random_choices(mix(what.seed) + 1);
    layout_ = make_layout(sizes_of(what.world, what.depth));
    std::memset(arena_.get(), 0, arena_bytes_);
    initialise_segment(arena_.get() + segment_offset, layout_, what.first_epoch);
    s_->memory.reset({arena_.get(), arena_bytes_}, what.world, mix(what.seed) + 2, what.weak);
    s_->fibers.reset(mix(what.seed) + 3, what.passes_one_in);
    s_->steps = 0;
    s_->most_steps = 16'000'000;
    s_->ns_per_step = what.ns_per_step;
    victim_gone_ = waiter_gone_ = false;
    ranks_.clear();
    ranks_.resize(what.world);
    for (std::uint32_t r = 0; r < what.world; ++r) {
      rank_state& rank = ranks_[r];
      rank.view = view_of(r);
      new (rank.view.calls) call_state(make_call_state(what.first_epoch));
      new (rank.view.protocols) protocol_state(make_protocol_state(what.first_epoch));
      rank.driver = s_->fibers.spawn([this, r] { drive(r); }, 0);
      s_->memory.start(rank.driver, r, nullptr);
      const int host = s_->fibers.spawn([this, r] { watch(r); }, 4);
      s_->memory.start(host, r, nullptr);
    }
    s_->fibers.run();
  }

 private:
  static constexpr std::size_t calls_offset = 8192, protocols_offset = 16384, posted_offset = 32768;
  static constexpr std::size_t segment_offset = 65536;
  static constexpr std::uint32_t poison_bits = 0xdeadbeefu;
  static constexpr std::uint64_t endless = ~std::uint64_t{0} / 4;
  static_assert(most_ranks * sizeof(control_block) <= calls_offset && most_ranks * sizeof(protocol_state) <= 16384);

  struct rank_state {
    rank_view view{};
    int driver = -1;
    unsigned running = 1;  // duties of the call, and the driver until it waits
    bool good = true;      // none of them has failed
    bool in_place = false;
    bool ended = false;
    std::size_t call = 0;
    std::vector<std::unique_ptr<fiber_barrier>> barriers;
    std::vector<float> in, out;
  };
  struct release_memory {
    void operator()(std::byte* p) const { std::free(p); }
  };

  rank_view view_of(std::uint32_t r) const {
    std::byte* base = arena_.get();
    // A deadline far above every delay that a run injects; none where something else must end the wait.
    const bool bounded = plan_->how == ending::orderly || plan_->how == ending::absent || plan_->how == ending::closed;
    const std::uint64_t steps = hurried() ? 400'000 : 6'000'000;
    return {reinterpret_cast<control_block*>(base), reinterpret_cast<call_state*>(base + calls_offset) + r,
            base + segment_offset, reinterpret_cast<protocol_state*>(base + protocols_offset) + r, layout_,
            bounded ? steps * plan_->ns_per_step : endless, r};
  }
  // Small delays, where the run waits for a deadline, which must be above them.
  bool hurried() const { return plan_->how == ending::absent; }
  std::uint32_t* posted(std::uint32_t r, std::uint32_t block) const {
    return reinterpret_cast<std::uint32_t*>(arena_.get() + posted_offset) + r * max_blocks + block;
  }

  // Element `i` of a rank's input: unlike that of any other rank, call or index; now and then a word of all ones.
  std::uint32_t input_bits(std::uint32_t r, std::size_t call, std::size_t i) const {
    const std::uint64_t h = mix(plan_->seed * 0x10001 + (std::uint64_t{r} << 48 | std::uint64_t{call} << 32 | i));
    if (h % 32 == 0) return sentinel_word;
    return static_cast<std::uint32_t>(h >> 63) << 31 | (124 + static_cast<std::uint32_t>(h >> 60 & 7)) << 23 |
           static_cast<std::uint32_t>(h >> 32 & 0x7fffff);
  }
  // Ranks in order, each sum rounded once: a double holds the sum of two such floats exactly.
  std::uint32_t expected_bits(std::size_t call, std::size_t i) const {
    float sum = 0;
    for (std::uint32_t r = 0; r < plan_->world; ++r) {
      const std::uint32_t bits = input_bits(r, call, i);
      if (bits == sentinel_word) return 0x7fffffffu;
      const auto value = std::bit_cast<float>(bits);
      sum = r == 0 ? value : static_cast<float>(static_cast<double>(sum) + static_cast<double>(value));
    }
    return std::bit_cast<std::uint32_t>(sum);
  }

  // An in-place bulk call overwrites its input as it folds: the own chunk must have left it. Chunks of the own ring and
  // of a peer's are stored in step, so their counts compare.
  void check_own_input(const vec16* from, std::size_t taken) {
    const std::uint32_t r = s_->memory.current_rank();
    if (!ranks_[r].in_place) return;
    const std::byte* regions = arena_.get() + segment_offset + layout_.regions;
    const std::byte* at = reinterpret_cast<const std::byte*>(from);
    if (at < regions) return;
    const std::size_t offset = static_cast<std::size_t>(at - regions) % layout_.region_bytes;
    if (offset < layout_.bulk_data || (plan_->world >= least_two_shot_world && offset >= layout_.two_shot_posted_lines)) return;
    if (s_->memory.known_stores(regions + r * layout_.region_bytes + offset) < taken) {
      s_->fail("rank " + std::to_string(r) + " overwrites its input without an order after the load of it");
    }
  }

  // --- one rank ---

  void drive(std::uint32_t r) {
    rank_state& rank = ranks_[r];
    bool good = true;
    for (std::size_t k = 0; k < plan_->calls.size() && good; ++k) {
      if (r == plan_->victim && k == plan_->at) {
        victim_gone_ = true;
        if (plan_->how == ending::absent || plan_->how == ending::died) break;
        if (plan_->how == ending::closed) break;
        while (plan_->how == ending::aborted && !waiter_gone_) idle(1);
      }
      if (choices_.once_in(8)) idle(choices_.log_uniform(hurried() ? 100 : 2000));
      if (!hurried() && choices_.once_in(1000)) idle(choices_.below(150'000));
      rank.call = k;
      good = make_call(r, k);
    }
    finish(r, good);
    rank.ended = true;
    if (r != plan_->victim) waiter_gone_ = true;
  }

  void idle(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) simulated_memory(*s_).relax(0);
  }

  bool make_call(std::uint32_t r, std::size_t k) {
    rank_state& rank = ranks_[r];
    planned_call call = plan_->calls[k];
    std::uint64_t fingerprint = fingerprint_of({call.n_elements, dtype::f32, reduce_op::sum, call.protocol});
    if (plan_->how == ending::mismatch && r == plan_->victim && k == plan_->at) fingerprint = other_call(call);
    constexpr std::size_t guard = 4;
    const auto poison = std::bit_cast<float>(poison_bits);
    rank.in.assign(call.n_elements + 2 * guard, poison);
    for (std::size_t i = 0; i < call.n_elements; ++i) rank.in[guard + i] = std::bit_cast<float>(input_bits(r, k, i));
    if (!call.in_place) rank.out.assign(call.n_elements + 2 * guard, poison);
    rank.in_place = call.in_place;
    auto& result = call.in_place ? rank.in : rank.out;
    const message<float> msg{rank.in.data() + guard, result.data() + guard, call.n_elements};

    const simulated_memory m(*s_);
    if (is_poisoned(m, rank.view)) s_->fail("a call began although the rank had failed");
    const call_frame f = open_call(m, rank.view, fingerprint);
    rank.good = true;
    start(r, [&] {
      announce_call(m, rank.view, f);
      return true;
    });
    switch (call.protocol) {
      case protocol_id::sentinel: run_sentinel(r, f, msg, call.in_place || choices_.once_in(2)); break;
      case protocol_id::flagged: run_flagged(r, f, msg, blocks_of(call)); break;
      case protocol_id::bulk: run_bulk(r, f, msg, blocks_of(call), call.chunk_bytes); break;
      case protocol_id::two_shot: run_two_shot(r, f, msg, blocks_of(call), call.chunk_bytes); break;
      case protocol_id::copied: break;  // has a test of its own
    }
    rank.barriers.clear();
    if (!rank.good) return false;
    advance_call(m, rank.view, f);
    if (plan_->how == ending::mismatch && k == plan_->at) s_->fail("calls that differ succeeded on rank " + std::to_string(r));
    for (std::size_t i = 0; i < result.size(); ++i) {
      const bool inside = i >= guard && i < guard + call.n_elements;
      const std::uint32_t expected = inside ? expected_bits(k, i - guard) : poison_bits;
      if (std::bit_cast<std::uint32_t>(result[i]) == expected) continue;
      s_->fail("rank " + std::to_string(r) + ", call " + std::to_string(k) + " (" + std::string(name_of(call.protocol)) +
               "): element " + std::to_string(static_cast<long>(i) - static_cast<long>(guard)) + " of " +
               std::to_string(call.n_elements) + " is " + std::to_string(std::bit_cast<std::uint32_t>(result[i])) + " instead of " +
               std::to_string(expected));
    }
    return true;
  }

  // Another protocol than the plan's, which the world can run.
  protocol_id other_protocol(protocol_id planned) {
    std::vector<protocol_id> others;
    for (const auto p : {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk, protocol_id::two_shot}) {
      if (p != planned && (p != protocol_id::two_shot || plan_->world >= least_two_shot_world)) others.push_back(p);
    }
    return others[choices_.below(others.size())];
  }

  // Another call than the plan's: the count, the type, the operation or the protocol.
  std::uint64_t other_call(planned_call& call) {
    dtype type = dtype::f32;
    reduce_op operation = reduce_op::sum;
    switch (choices_.below(4)) {
      case 0: call.n_elements = call.n_elements < 8 ? call.n_elements + 1 + static_cast<std::uint32_t>(choices_.below(40)) : 0; break;
      case 1: type = dtype::i32; break;
      case 2: operation = reduce_op::max; break;
      default:
        call.protocol = other_protocol(call.protocol);
        call.n_elements = std::min<std::uint32_t>(call.n_elements, 64);
    }
    return fingerprint_of({call.n_elements, type, operation, call.protocol});
  }
  // No block without work, as the transports have it.
  static std::uint32_t blocks_of(const planned_call& call) {
    const std::uint32_t vectors = (call.n_elements + 3) / 4;
    const bool in_chunks = call.protocol == protocol_id::bulk || call.protocol == protocol_id::two_shot;
    const std::uint32_t per_block = in_chunks ? call.chunk_bytes / 16 : 2;
    return std::clamp((vectors + per_block - 1) / per_block, 1u, call.blocks);
  }

  // Starts a duty: a fiber that begins with what the rank knows, and whose knowledge the rank has when the call ends.
  template <class Duty>
  void start(std::uint32_t r, Duty duty) {
    rank_state& rank = ranks_[r];
    ++rank.running;
    constexpr unsigned laziness[] = {0, 0, 0, 0, 1, 2, 3, 5};
    const int fiber = s_->fibers.spawn(
        [this, &rank, duty] {
          if (!duty()) rank.good = false;
          s_->memory.join(s_->memory.view(rank.driver), s_->memory.view(s_->fibers.current()));
          if (--rank.running == 0) s_->fibers.wake(rank.driver);
        },
        laziness[choices_.below(hurried() ? 5 : 8)]);
    s_->memory.start(fiber, r, &s_->memory.view(rank.driver));
  }
  void await_duties(rank_state& rank) {
    if (--rank.running != 0) s_->fibers.block();
    rank.running = 1;
  }
  fiber_barrier& make_barrier(std::uint32_t r, unsigned size) {
    ranks_[r].barriers.push_back(std::make_unique<fiber_barrier>(*s_, size));
    return *ranks_[r].barriers.back();
  }

  void run_sentinel(std::uint32_t r, const call_frame& f, const message<float>& msg, bool post_and_fold_together) {
    const sentinel_one_shot<float, op::sum, simulated_memory> call(simulated_memory(*s_), ranks_[r].view, f, msg);
    const auto threads = static_cast<unsigned>(1 + choices_.below(2));
    fiber_barrier& none = make_barrier(r, threads);
    start(r, [&] {
      call.release_entry();
      return true;
    });
    start(r, [&] { return call.acquire_entries(single_thread()); });
    start(r, [&] {
      call.post_header();
      return true;
    });
    start(r, [&] {
      call.note_reads();
      return call.await_headers(single_thread());
    });
    for (unsigned t = 0; t < threads; ++t) {
      start(r, [&, t] {
        call.clear(fiber_group(none, t, threads), call.load_extents(simulated_memory(*s_), ranks_[r].view));
        return true;
      });
      start(r, [&, t] {
        for (std::uint64_t i = t; i < msg.n_vectors(); i += threads) call.post(i, call.load(i));
        return !post_and_fold_together || fold(call, msg, t, threads);
      });
      if (!post_and_fold_together) start(r, [&, t] { return fold(call, msg, t, threads); });
    }
    await_duties(ranks_[r]);
  }
  template <class Call>
  static bool fold(const Call& call, const message<float>& msg, unsigned thread, unsigned threads) {
    call.note_reads();
    for (std::uint64_t i = thread; i < msg.n_vectors(); i += threads) {
      const vec16 own = call.load(i);
      if (!call.fold(i, own, call.look(i, own))) return false;
    }
    return true;
  }

  void run_flagged(std::uint32_t r, const call_frame& f, const message<float>& msg, std::uint32_t n_blocks) {
    using exchange = flagged_one_shot<float, op::sum, simulated_memory>;
    const auto threads = static_cast<unsigned>(1 + choices_.below(3));
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      fiber_barrier& barrier = make_barrier(r, threads);
      for (unsigned t = 0; t < threads; ++t) {
        start(r, [this, &barrier, &f, &msg, r, b, n_blocks, t, threads] {
          const exchange block(simulated_memory(*s_), ranks_[r].view, f, msg, b, n_blocks);
          const fiber_group group(barrier, t, threads);
          block.post(group);
          if (!block.await(group)) return false;
          block.fold(group);
          return true;
        });
      }
    }
    await_duties(ranks_[r]);
  }

  void run_bulk(std::uint32_t r, const call_frame& f, const message<float>& msg, std::uint32_t n_blocks, std::uint32_t chunk_bytes) {
    using ring = bulk_ring<float, op::sum, simulated_memory>;
    const auto writers = static_cast<unsigned>(1 + choices_.below(2)), readers = static_cast<unsigned>(1 + choices_.below(2));
    const auto block = [&](std::uint32_t b) {
      return ring(simulated_memory(*s_), ranks_[r].view, f, msg, b, n_blocks, chunk_bytes, posted(r, b));
    };
    for (std::uint32_t b = 0; b < n_blocks; ++b) simulated_memory(*s_).store4(posted(r, b), 0);
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      fiber_barrier& among_writers = make_barrier(r, writers);
      fiber_barrier& handoff = make_barrier(r, writers + 1);
      fiber_barrier& among_readers = make_barrier(r, readers);
      fiber_barrier& receipt = make_barrier(r, readers + 1);
      fiber_barrier& alone = make_barrier(r, 1);
      for (unsigned t = 0; t < writers; ++t) {
        start(r, [&, b, t] { return block(b).run_writer(fiber_group(among_writers, t, writers), fiber_group(handoff, t, writers + 1)); });
      }
      start(r, [&, b] { return block(b).run_publisher(fiber_group(handoff, writers, writers + 1), true); });
      for (unsigned t = 0; t < readers; ++t) {
        start(r, [&, b, t] { return block(b).run_reader(fiber_group(among_readers, t, readers), fiber_group(receipt, t, readers + 1)); });
      }
      start(r, [&, b] { return block(b).run_acknowledger(fiber_group(alone, 0, 1), fiber_group(receipt, readers, readers + 1)); });
    }
    await_duties(ranks_[r]);
    for (std::uint32_t b = 0; ranks_[r].good && b < n_blocks; ++b) block(b).finish();
  }

  void run_two_shot(std::uint32_t r, const call_frame& f, const message<float>& msg, std::uint32_t n_blocks, std::uint32_t chunk_bytes) {
    using exchange = two_shot<float, op::sum, simulated_memory>;
    const auto some = [this] { return static_cast<unsigned>(1 + choices_.below(2)); };
    const unsigned writers = some(), reducers = some(), gatherers = some();
    const auto block = [&](std::uint32_t b) {
      return exchange(simulated_memory(*s_), ranks_[r].view, f, msg, b, n_blocks, chunk_bytes, posted(r, b));
    };
    for (std::uint32_t b = 0; b < n_blocks; ++b) simulated_memory(*s_).store4(posted(r, b), 0);
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      fiber_barrier& among_writers = make_barrier(r, writers);
      fiber_barrier& handoff = make_barrier(r, writers + 1);
      fiber_barrier& among_reducers = make_barrier(r, reducers);
      fiber_barrier& receipt = make_barrier(r, reducers + 1);
      fiber_barrier& among_gatherers = make_barrier(r, gatherers);
      for (unsigned t = 0; t < writers; ++t) {
        start(r, [&, b, t] { return block(b).run_writer(fiber_group(among_writers, t, writers), fiber_group(handoff, t, writers + 1)); });
      }
      start(r, [&, b] { return block(b).run_publisher(fiber_group(handoff, writers, writers + 1), true); });
      for (unsigned t = 0; t < reducers; ++t) {
        start(r, [&, b, t] { return block(b).run_reducer(fiber_group(among_reducers, t, reducers), fiber_group(receipt, t, reducers + 1)); });
      }
      start(r, [&, b] { return block(b).run_result_publisher(fiber_group(receipt, reducers, reducers + 1), true); });
      for (unsigned t = 0; t < gatherers; ++t) {
        start(r, [&, b, t] { return block(b).run_gatherer(fiber_group(among_gatherers, t, gatherers)); });
      }
    }
    await_duties(ranks_[r]);
    for (std::uint32_t b = 0; ranks_[r].good && b < n_blocks; ++b) block(b).finish();
  }

  // --- how a rank ends ---

  errc expected_code(std::uint32_t r) const {
    switch (plan_->how) {
      case ending::orderly: return errc::ok;
      case ending::mismatch: return errc::call_mismatch;
      case ending::absent: return r == plan_->victim ? errc::ok : errc::timeout;
      case ending::died: return r == plan_->victim ? errc::ok : errc::peer_died;
      case ending::aborted: return errc::aborted;
      case ending::closed: return r == plan_->victim ? errc::ok : errc::peer_closed;
    }
    return errc::ok;
  }

  void finish(std::uint32_t r, bool good) {
    rank_state& rank = ranks_[r];
    const simulated_memory m(*s_);
    const errc expected = expected_code(r);
    const failure_record& record = rank.view.control(r)->failure;
    const errc code = m.load8(&record.ready) != 0 ? static_cast<errc>(m.load4(&record.code)) : errc::ok;
    if (good == (code != errc::ok) || code != expected) {
      s_->fail("rank " + std::to_string(r) + " ended in call " + std::to_string(rank.call) + " with: " +
               std::string(describe(code)) + " (about rank " + std::to_string(m.load4(&record.about)) + ", awaited " +
               std::to_string(m.load8(&record.awaited)) + ", seen " + std::to_string(m.load8(&record.seen)) +
               "), where this was to come: " + std::string(describe(expected)));
    }
    const bool orderly_exit = good && (plan_->how == ending::orderly || plan_->how == ending::closed);
    if (orderly_exit) m.store8_release(&rank.view.control(r)->host_verdict, encode_verdict(errc::peer_closed, r));
  }

  // The rank's host, beside its kernels: delivers verdicts, and reads the account as soon as there is one.
  void watch(std::uint32_t r) {
    rank_state& rank = ranks_[r];
    const simulated_memory m(*s_);
    control_block* own = rank.view.control(r);
    const bool delivers = r != plan_->victim && (plan_->how == ending::died || plan_->how == ending::aborted);
    bool delivered = false;
    std::uint64_t delay = random_choices(mix(plan_->seed + r)).log_uniform(20'000);
    while (!rank.ended) {
      m.relax(0);
      if (delivers && victim_gone_ && !delivered && delay-- == 0) {
        delivered = true;
        const bool died = plan_->how == ending::died;
        m.store8_release(&own->host_verdict, died ? encode_verdict(errc::peer_died, plan_->victim) : encode_verdict(errc::aborted, r));
      }
      if (m.load8_acquire(&own->failure.ready) == 0) continue;
      const auto code = static_cast<errc>(m.load4(&own->failure.code));
      const std::uint64_t call = m.load8(&own->failure.call);
      const auto protocol = static_cast<protocol_id>(m.load4(&own->failure.protocol));
      const bool complete = code == expected_code(r) && call == plan_->first_epoch + rank.call &&
                            name_of(protocol) != "?" && m.load4(&own->failure.about) < plan_->world;
      if (!complete) {
        s_->fail("the host of rank " + std::to_string(r) + " read this account in call " + std::to_string(rank.call) + ": " +
                 std::string(describe(code)) + " about rank " + std::to_string(m.load4(&own->failure.about)) + " in call " +
                 std::to_string(call - plan_->first_epoch) + " (" + std::string(name_of(protocol)) + "), where this was to come: " +
                 std::string(describe(expected_code(r))));
      }
      return;
    }
  }

  simulator* s_;
  std::unique_ptr<std::byte, release_memory> arena_;
  std::size_t arena_bytes_ = 0;
  segment_layout layout_{};
  const plan* plan_ = nullptr;
  random_choices choices_{0};
  std::vector<rank_state> ranks_;
  bool victim_gone_ = false;
  bool waiter_gone_ = false;
};

}  // namespace peerless::test
