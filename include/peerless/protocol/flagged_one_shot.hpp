// Flagged one-shot: data into the own slot, a barrier of the block, one release flag a block; readers acquire the flag
// and then read. For every type, and for messages too large to be worth clearing.
//
// Slot reuse. Call k uses slot k mod 2. A rank that has ended call k - 1 has acquired every peer's flag of that call,
// so every peer had ended call k - 2 with all its reads: its slot may be overwritten in call k. Flag lines alternate by
// parity for the same reason: a peer may be one call ahead, never two.
#pragma once

#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/patience.hpp>

PEERLESS_BEGIN_NAMESPACE

// The steps of one block of one rank in one call: post(), then await(), then fold() when await() returned true. Every
// step is run by the same group, with the same number of blocks on all ranks. A block whose part is empty exchanges its
// flag only.
template <element T, reduction Op, memory_policy Memory>
class flagged_one_shot {
 public:
  PEERLESS_HD flagged_one_shot(Memory m, const rank_view& v, const call_frame& f, const message<T>& msg,
                               std::uint32_t block, std::uint32_t n_blocks)
      : m_(m), v_(v), f_(f), msg_(msg), block_(block), slot_(f.epoch % flagged_slots) {
    const std::uint64_t vectors = msg.n_vectors();
    const std::uint64_t part = (vectors + n_blocks - 1) / n_blocks;
    begin_ = part * block < vectors ? part * block : vectors;
    end_ = begin_ + part < vectors ? begin_ + part : vectors;
  }

  // Writes this block's part into the own slot and releases its flag.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void post(Group g) const {
    vec16* own = v_.flagged_slot(slot_, v_.rank);
    for (std::uint64_t i = begin_ + g.thread_rank(); i < end_; i += g.size())
      m_.store16_payload(own + i, load_vector(msg_, i));
    g.sync();
    if (g.thread_rank() == 0) {
      auto& flag = half(v_.rank);
      m_.store8(&flag.fingerprint, f_.fingerprint);
      m_.store8_release(&flag.value, f_.epoch);  // cumulative over the barrier: covers the whole block's stores
    }
  }

  // Waits for the flag of every peer's same block and compares fingerprints. False: the call has failed.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD bool await(Group g) const {
    bool good = true;
    for (std::uint32_t p = g.thread_rank(); p < v_.world_size() && good; p += g.size()) {
      if (p != v_.rank) good = await_flag(p);
    }
    return g.all(good);
  }

  // Folds this block's part of all slots in rank order into the output.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void fold(Group g) const {
    constexpr unsigned at_once = 2;
    const auto source = [this](std::uint32_t r, std::uint64_t i) -> const vec16* {
      return v_.flagged_slot(slot_, r) + i;
    };
    for (std::uint64_t i = begin_ + g.thread_rank(); i < end_; i += at_once * g.size()) {
      fold_payload<Op, at_once>(m_, msg_, v_.rank, v_.world_size(), i, g.size(), end_, source);
    }
  }

 private:
  PEERLESS_HD flag_line::half& half(std::uint32_t r) const { return v_.flag(r, block_)->parity[f_.epoch & 1u]; }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_flag(std::uint32_t p) const {
    const auto& flag = half(p);
    patience waiting;
    for (;;) {
      const std::uint64_t seen = m_.load8_acquire(&flag.value);
      if (static_cast<std::int64_t>(seen - f_.epoch) >= 0) break;
      if (!waiting.poll_again(m_, v_, f_, p, f_.epoch, seen)) return false;
    }
    const std::uint64_t theirs = m_.load8(&flag.fingerprint);
    if (theirs == f_.fingerprint) return true;
    fail_call(m_, v_, f_, errc::call_mismatch, p, f_.fingerprint, theirs);
    return false;
  }

  Memory m_;
  const rank_view& v_;
  const call_frame& f_;
  const message<T>& msg_;
  std::uint32_t block_;
  std::uint64_t slot_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

PEERLESS_END_NAMESPACE
