// Sentinel one-shot: each rank writes its data once into its own slot, readers poll the data words themselves. No flag
// and no fence on the path. For types with a sentinel only.
//
// Slot reuse. Call k uses slot k mod 6. Beside the data, one thread releases `entered[me] = k`, another acquires
// `entered[p] >= k - 1` of every peer (it lags a call, so it is true at once as a rule), and the rank overwrites its
// own slot of call k - 3 with sentinels: it becomes the slot of call k + 3.
//   Nothing unread is overwritten: in call k - 1 this rank acquired entered[p] >= k - 2, so p had entered call k - 2
//   and its call k - 3, with all its reads, had ended. Nothing stale is taken: p clears in call k; its call ends; it
//   releases entered = k + 1 in call k + 1; this rank acquires that in call k + 2; its call ends; it polls the slot in
//   call k + 3.
// "Ended" and "before" are ends of kernels (or of calls on a CPU), which order everything. So the duties of one call
// may run in any order and side by side, and a lag of one call needs 2 (1 + 2) = 6 slots.
#pragma once

#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/patience.hpp>

PEERLESS_BEGIN_NAMESPACE

inline constexpr std::uint64_t sentinel_clear_distance = 3;  // calls until a written slot is cleared by its owner
inline constexpr std::uint64_t sentinel_acquire_lag = 1;     // calls by which the acquire of `entered` lags

// The duties of one rank in one call. Each is run once a call by the group given, in any order and concurrently, save
// that a rank posts (header, data) before or while it awaits. Those that can fail return false with the failure
// recorded.
template <element T, reduction Op, memory_policy Memory>
  requires(has_sentinel(dtype_of<T>))
class sentinel_one_shot {
 public:
  static constexpr std::uint32_t in_flight = 4;  // ranks whose vectors are loaded together

  PEERLESS_HD sentinel_one_shot(Memory m, const rank_view& v, const call_frame& f, const message<T>& msg)
      : m_(m), v_(v), f_(f), msg_(msg), slot_(f.epoch % sentinel_slots) {}

  // One thread: tells the peers that the calls before this one have ended here.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void release_entry() const { m_.store8_release(v_.entered(v_.rank), f_.epoch); }

  // A group of any size, peers dealt out to its threads: learns that every peer has entered the call before this one.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD bool acquire_entries(Group g) const {
    const std::uint64_t awaited = f_.epoch - sentinel_acquire_lag;
    for (std::uint32_t p = g.thread_rank(); p < v_.world_size(); p += g.size()) {
      if (p == v_.rank) continue;
      patience waiting;
      for (;;) {
        const std::uint64_t seen = m_.load8_acquire(v_.entered(p));
        if (static_cast<std::int64_t>(seen - awaited) >= 0) break;
        if (!waiting.poll_again(m_, v_, f_, p, awaited, seen)) return false;
      }
    }
    return true;
  }

  // One thread: the header of the own slot, and how much of it this call uses.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void post_header() const {
    m_.store16(v_.sentinel_slot(slot_, v_.rank), encode({f_.epoch, f_.fingerprint}));
    m_.store4(v_.protocols->sentinel_extent + slot_, static_cast<std::uint32_t>(msg_.n_vectors() + 1));
  }

  // A group of any size, peers dealt out: polls the peers' headers and compares them with the own call.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD bool await_headers(Group g) const {
    for (std::uint32_t p = g.thread_rank(); p < v_.world_size(); p += g.size()) {
      if (p == v_.rank) continue;
      vec16 header;
      if (!await_vector(p, v_.sentinel_slot(slot_, p), header)) return false;
      const slot_header theirs = decode(header);
      if (theirs.epoch != f_.epoch || theirs.fingerprint != f_.fingerprint) {
        const bool other_epoch = theirs.epoch != f_.epoch;
        fail_call(m_, v_, f_, other_epoch ? errc::overlapped : errc::call_mismatch, p,
                  other_epoch ? f_.epoch : f_.fingerprint, other_epoch ? theirs.epoch : theirs.fingerprint);
        return false;
      }
    }
    return true;
  }

  // Vector `i` of the input, as it is.
  PEERLESS_HD vec16 load(std::uint64_t i) const { return load_vector(msg_, i); }

  // Writes vector `i` into the own slot. Words that equal the sentinel hold NaNs only; they become canonical NaNs.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void post(std::uint64_t i, vec16 v) const {
    for (auto& word : v.word) {
      if (word == sentinel_word) word = canonical_word;
    }
    m_.store16(data(v_.rank) + i, v);
  }

  // The first vectors of a fold, as they were when they were loaded: of ranks 0 to 3.
  struct first_look {
    vec16 of[in_flight];
  };

  // Loads vector `i` of the lowest ranks, without waiting for the loads: what a thread does next runs beside them.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD first_look look(std::uint64_t i, const vec16& own) const {
    first_look first{};
    load_ranks(0, i, own, first.of);
    return first;
  }

  // Polls vector `i` of every peer, folds it with the own contribution in rank order and stores the result.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool fold(std::uint64_t i, const vec16& own, first_look theirs) const {
    vector_fold<T, Op> sum(msg_);
    for (std::uint32_t first = 0;;) {
      PEERLESS_UNROLL
      for (std::uint32_t j = 0; j < in_flight; ++j) {
        const std::uint32_t r = first + j;
        if (r >= v_.world_size()) break;
        if (r != v_.rank && !has_arrived(theirs.of[j]) && !await_vector(r, data(r) + i, theirs.of[j])) return false;
        sum.add(theirs.of[j]);
      }
      first += in_flight;
      if (first >= v_.world_size()) break;
      load_ranks(first, i, own, theirs.of);
    }
    store_vector(msg_, i, sum.result());
    return true;
  }

  // How much of each slot is in use. Loaded as a whole, so that a kernel can do so before it knows its epoch.
  struct extents {
    vec16 low, high;
  };
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD static extents load_extents(Memory m, const rank_view& v) {
    const auto* words = reinterpret_cast<const vec16*>(v.protocols->sentinel_extent);
    return {m.load16(words), m.load16(words + 1)};
  }

  // A group: overwrites the own slot of `sentinel_clear_distance` calls ago with sentinels, as far as it was written.
  // `in_use` was loaded in this call.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void clear(Group g, const extents& in_use) const {
    const std::uint64_t old = (f_.epoch + sentinel_slots - sentinel_clear_distance) % sentinel_slots;
    std::uint32_t extent = in_use.low.word[0];
    PEERLESS_UNROLL
    for (std::uint32_t i = 1; i < sentinel_slots; ++i) {  // a choice of registers, not an indexed load
      if (i == old) extent = i < 4 ? in_use.low.word[i % 4] : in_use.high.word[i % 4];
    }
    vec16* slot = v_.sentinel_slot(old, v_.rank);
    constexpr vec16 nothing{{sentinel_word, sentinel_word, sentinel_word, sentinel_word}};
    for (std::uint32_t i = g.thread_rank(); i < extent; i += g.size())
      m_.store16(i == 0 ? slot : slot + data_offset + i - 1, nothing);
    if (g.thread_rank() == 0) m_.note_overwrite(v_.shadow(old, v_.rank));
  }

  // One thread: tells a race detector which slots this call reads.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void note_reads() const {
    for (std::uint32_t p = 0; p < v_.world_size(); ++p) {
      if (p != v_.rank) m_.note_read(v_.shadow(slot_, p));
    }
  }

 private:
  static constexpr std::uint32_t data_offset =
      line_bytes / sizeof(vec16);  // vectors between a slot's header and its data
  static constexpr std::uint32_t canonical_word = sizeof(T) == 1   ? 0x7f7f7f7fu
                                                  : sizeof(T) == 2 ? 0x7fff7fffu
                                                                   : 0x7fffffffu;

  PEERLESS_HD vec16* data(std::uint32_t r) const { return v_.sentinel_slot(slot_, r) + data_offset; }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void load_ranks(std::uint32_t first, std::uint64_t i, const vec16& own,
                              vec16 (&theirs)[in_flight]) const {
    PEERLESS_UNROLL
    for (std::uint32_t j = 0; j < in_flight; ++j) {
      const std::uint32_t r = first + j;
      if (r < v_.world_size()) theirs[j] = r == v_.rank ? own : m_.load16(data(r) + i);
    }
  }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_vector(std::uint32_t p, const vec16* from, vec16& v) const {
    patience waiting;
    for (v = m_.load16(from); !has_arrived(v); v = m_.load16(from)) {
      if (!waiting.poll_again(m_, v_, f_, p, f_.epoch, sentinel_word)) return false;
    }
    return true;
  }

  Memory m_;
  const rank_view& v_;
  const call_frame& f_;
  const message<T>& msg_;
  std::uint64_t slot_;
};

PEERLESS_END_NAMESPACE
