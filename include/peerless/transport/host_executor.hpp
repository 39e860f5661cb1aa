// Runs the protocols on one CPU thread a rank: what a kernel does in warps and blocks, one thread takes in turn.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <peerless/protocol/bulk_ring.hpp>
#include <peerless/protocol/flagged_one_shot.hpp>
#include <peerless/protocol/memory_cpu.hpp>
#include <peerless/protocol/sentinel_one_shot.hpp>
#include <peerless/protocol/two_shot.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// IEEE arithmetic for a scope: rounding to nearest, no traps, subnormal numbers as they are. (A program linked with
// -ffast-math flushes them to zero in every thread.) On x86-64; elsewhere the mode is the caller's.
class ieee_scope {
 public:
  ieee_scope(const ieee_scope&) = delete;
  ieee_scope& operator=(const ieee_scope&) = delete;
#if defined(__x86_64__)
  ieee_scope() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(0x1f80); }  // what a process begins with
  ~ieee_scope() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  ieee_scope() {}
#endif
};

// A permutation of the duties of a sentinel call. The two posts come before the two waits, whatever the draw: one
// thread that waited first would never post. Everything else may come first or last.
class duty_order {
 public:
  enum duty : std::uint8_t {
    post_header,
    post_data,
    await_headers,
    fold_data,
    release_entry,
    acquire_entries,
    clear_slot
  };
  static constexpr int n_duties = 7;

  // The natural order for seed 0, else one drawn from seed, rank and call.
  duty_order(std::uint64_t seed, std::uint32_t rank, std::uint64_t call)
      : duties_{release_entry, post_header, post_data, await_headers, fold_data, clear_slot, acquire_entries} {
    if (seed == 0) return;
    std::uint64_t random = (seed + rank) * 0x9e3779b97f4a7c15ull + call * 0xbf58476d1ce4e5b9ull;
    for (std::uint32_t left = n_duties; left > 1; --left) {
      random ^= random >> 30;
      random = random * 0x94d049bb133111ebull + 0x2545f4914f6cdd1dull;
      std::swap(duties_[left - 1], duties_[(random >> 33) % left]);
    }
    // Posts and waits take the places of the four in the draw, posts first; each pair keeps its own order.
    std::array<duty, 4> drawn{};
    std::size_t at = 0;
    for (const duty d : duties_) {
      if (d <= fold_data) drawn[at++] = d;
    }
    std::stable_partition(drawn.begin(), drawn.end(), [](duty d) { return d <= post_data; });
    at = 0;
    for (duty& d : duties_) {
      if (d <= fold_data) d = drawn[at++];
    }
  }

  auto begin() const { return duties_.begin(); }
  auto end() const { return duties_.end(); }

 private:
  std::array<duty, n_duties> duties_;
};

template <element T, reduction Op>
bool run_sentinel(cpu_memory m, const rank_view& v, const call_frame& f, const message<T>& msg,
                  std::uint64_t duty_seed) {
  const sentinel_one_shot<T, Op, cpu_memory> call(m, v, f, msg);
  const single_thread alone;
  const std::uint64_t vectors = msg.n_vectors();
  for (const auto duty : duty_order(duty_seed, v.rank, f.call)) {
    bool good = true;
    switch (duty) {
      case duty_order::release_entry: call.release_entry(); break;
      case duty_order::acquire_entries: good = call.acquire_entries(alone); break;
      case duty_order::post_header: call.post_header(); break;
      case duty_order::post_data:
        for (std::uint64_t i = 0; i < vectors; ++i) call.post(i, call.load(i));
        break;
      case duty_order::await_headers:
        call.note_reads();
        good = call.await_headers(alone);
        break;
      case duty_order::fold_data:
        call.note_reads();
        for (std::uint64_t i = 0; i < vectors && good; ++i) {
          const vec16 own = call.load(i);
          good = call.fold(i, own, call.look(i, own));
        }
        break;
      case duty_order::clear_slot: call.clear(alone, call.load_extents(m, v)); break;
    }
    if (!good) return false;
  }
  return true;
}

template <element T, reduction Op>
bool run_flagged(cpu_memory m, const rank_view& v, const call_frame& f, const message<T>& msg, std::uint32_t n_blocks) {
  using exchange = flagged_one_shot<T, Op, cpu_memory>;
  const single_thread alone;
  for (std::uint32_t b = 0; b < n_blocks; ++b) exchange(m, v, f, msg, b, n_blocks).post(alone);
  for (std::uint32_t b = 0; b < n_blocks; ++b) {
    const exchange block(m, v, f, msg, b, n_blocks);
    if (!block.await(alone)) return false;
    block.fold(alone);
  }
  return true;
}

// Takes the writer's and the reader's steps of all blocks in turn, so that no full ring stops a reader.
template <element T, reduction Op>
bool run_bulk(cpu_memory m, const rank_view& v, const call_frame& f, const message<T>& msg, std::uint32_t n_blocks,
              std::uint32_t chunk_bytes) {
  const single_thread alone;
  struct cursor {
    std::uint32_t written = 0;
    std::uint32_t taken = 0;
    std::uint32_t posted = 0;
  };
  std::array<cursor, max_blocks> cursors{};
  using block_ring = bulk_ring<T, Op, cpu_memory>;
  const auto acknowledge_all = [&](const block_ring& ring, std::uint32_t n) {
    for (std::uint32_t p = 0; p < v.world_size(); ++p) {
      if (p != v.rank) ring.acknowledge(n, p);
    }
  };
  for (std::uint32_t b = 0; b < n_blocks; ++b)
    acknowledge_all(block_ring(m, v, f, msg, b, n_blocks, chunk_bytes, nullptr), 0);
  patience waiting;
  for (bool finished = false; !finished;) {
    finished = true;
    bool moved = false;
    std::uint32_t late = v.rank == 0 ? v.world_size() - 1 : 0;
    std::uint64_t awaited = 0, late_seen = 0;
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      cursor& at = cursors[b];
      const block_ring ring(m, v, f, msg, b, n_blocks, chunk_bytes, &at.posted);
      std::uint64_t seen = 0;
      const auto every_peer = [&](auto&& holds) {
        for (std::uint32_t p = 0; p < v.world_size(); ++p) {
          if (p == v.rank || holds(p)) continue;
          late = p;
          awaited = f.epoch;
          late_seen = seen;
          return false;
        }
        return true;
      };
      if (at.written < ring.n_chunks() &&
          every_peer([&](std::uint32_t p) { return ring.has_room(at.written, p, seen); })) {
        ring.put(alone, at.written);
        ring.publish(at.written++);
        moved = true;
      }
      if (at.taken < at.written && every_peer([&](std::uint32_t p) { return ring.is_ready(at.taken, p, seen); })) {
        for (std::uint32_t p = 0; at.taken == 0 && p < v.world_size(); ++p) {
          if (p != v.rank && !ring.is_same_call(p)) return false;
        }
        ring.take(alone, at.taken);
        ++at.taken;
        if (ring.acknowledges(at.taken - 1)) acknowledge_all(ring, at.taken);
        moved = true;
      }
      if (at.taken < ring.n_chunks()) finished = false;
    }
    if (moved) {
      waiting = patience();
    } else if (!finished && !waiting.poll_again(m, v, f, late, awaited, late_seen)) {
      return false;
    }
  }
  for (std::uint32_t b = 0; b < n_blocks; ++b) block_ring(m, v, f, msg, b, n_blocks, chunk_bytes, nullptr).finish();
  return true;
}

// Takes the steps of all blocks in turn, so that no full ring stops what empties it.
template <element T, reduction Op>
bool run_two_shot(cpu_memory m, const rank_view& v, const call_frame& f, const message<T>& msg, std::uint32_t n_blocks,
                  std::uint32_t chunk_bytes) {
  const single_thread alone;
  struct cursor {
    std::uint32_t posted = 0, reduced = 0, gathered = 0;
  };
  std::array<cursor, max_blocks> cursors{};
  using exchange = two_shot<T, Op, cpu_memory>;
  patience waiting;
  for (bool finished = false; !finished;) {
    finished = true;
    bool moved = false;
    std::uint32_t late = v.rank == 0 ? v.world_size() - 1 : 0;
    std::uint64_t awaited = 0, late_seen = 0;
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      cursor& at = cursors[b];
      const exchange block(m, v, f, msg, b, n_blocks, chunk_bytes, &at.gathered);
      std::uint64_t seen = 0;
      const auto every_peer = [&](auto&& holds) {
        for (std::uint32_t p = 0; p < v.world_size(); ++p) {
          if (p == v.rank || holds(p)) continue;
          late = p;
          awaited = f.epoch;
          late_seen = seen;
          return false;
        }
        return true;
      };
      if (at.posted < block.n_chunks() && block.has_room(at.posted, seen)) {
        block.put(alone, at.posted);
        block.publish_data(at.posted++);
        moved = true;
      }
      if (at.reduced < at.posted && every_peer([&](std::uint32_t p) { return block.is_posted(at.reduced, p, seen); })) {
        for (std::uint32_t p = 0; at.reduced == 0 && p < v.world_size(); ++p) {
          if (p != v.rank && !block.is_same_call(p)) return false;
        }
        block.reduce(alone, at.reduced);
        block.publish_result(at.reduced++);
        moved = true;
      }
      if (at.gathered < at.reduced &&
          every_peer([&](std::uint32_t p) { return block.is_reduced(at.gathered, p, seen); })) {
        block.gather(alone, at.gathered);
        block.give_back(at.gathered);
        moved = true;
      }
      if (at.gathered < block.n_chunks()) finished = false;
    }
    if (moved) {
      waiting = patience();
    } else if (!finished && !waiting.poll_again(m, v, f, late, awaited, late_seen)) {
      return false;
    }
  }
  for (std::uint32_t b = 0; b < n_blocks; ++b) exchange(m, v, f, msg, b, n_blocks, chunk_bytes, nullptr).finish();
  return true;
}

}  // namespace detail

// One all-reduce on the calling thread; blocks until it has ended. A failure is left in the control block of the rank.
template <element T, reduction Op>
void run_on_host(const rank_view& v, std::uint64_t fingerprint, const message<T>& msg, std::uint32_t n_blocks,
                 std::uint32_t chunk_bytes, std::uint64_t duty_seed) {
  const cpu_memory m;
  const detail::ieee_scope arithmetic;
  if (is_poisoned(m, v)) return;
  const call_frame f = open_call(m, v, fingerprint);
  announce_call(m, v, f);
  bool good = false;
  switch (f.protocol) {
    case protocol_id::sentinel:
      if constexpr (has_sentinel(dtype_of<T>)) good = detail::run_sentinel<T, Op>(m, v, f, msg, duty_seed);
      break;
    case protocol_id::flagged: good = detail::run_flagged<T, Op>(m, v, f, msg, n_blocks); break;
    case protocol_id::copied: break;  // refused before
    case protocol_id::bulk: good = detail::run_bulk<T, Op>(m, v, f, msg, n_blocks, chunk_bytes); break;
    case protocol_id::two_shot: good = detail::run_two_shot<T, Op>(m, v, f, msg, n_blocks, chunk_bytes); break;
  }
  if (good) advance_call(m, v, f);
}

PEERLESS_END_NAMESPACE
