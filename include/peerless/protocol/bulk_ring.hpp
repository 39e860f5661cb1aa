// Bulk ring: messages of any size flow chunk by chunk through a bounded ring a (rank, block), both directions at once.
// Writers store a chunk and hand it to a publisher, which releases the block's `ready` count; readers acquire the
// peers' counts, fold the chunk and hand it to an acknowledger, which releases `consumed`. A chunk's place is reused
// when every reader has consumed it.
//
// Counts never restart: a call continues where the last one ended, so nothing is reset and nothing is drained. `ready`
// and `consumed` are one writer a word. A rank can be one call ahead of a peer, never two (it needs the peer's chunks
// of its own call), so fingerprints alternate by the parity of the epoch.
//
// Room without asking. A rank that has ended call k - 1 has acquired a chunk of it from every peer, so every peer had
// ended call k - 2 with all its reads: in call k everything before call k - 1 is known to be consumed. Only a call that
// reaches further back looks at `consumed`, a round trip through host memory. On entry to call k a rank acknowledges
// all earlier calls, and within the call only chunks whose places the same call takes again: a call that fits into the
// ring beside the one before it waits for no acknowledgement; one that fits, but not beside it, waits only for the
// peers to enter.
#pragma once

#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/patience.hpp>

PEERLESS_BEGIN_NAMESPACE

// One block of one rank in one call. The four roles run side by side (on a GPU in warps of their own; on a CPU one
// thread takes the steps in turn) and share `posted`, a word of the block that only the publisher writes.
template <element T, reduction Op, memory_policy Memory>
class bulk_ring {
 public:
  // `chunk_bytes` (a multiple of 16, at most the layout's) and `n_blocks` are the same on all ranks. `posted` is zero.
  PEERLESS_HD bulk_ring(Memory m, const rank_view& v, const call_frame& f, const message<T>& msg, std::uint32_t block,
                        std::uint32_t n_blocks, std::uint32_t chunk_bytes, std::uint32_t* posted)
      : m_(m), v_(v), f_(f), msg_(msg), posted_(posted), block_(block), chunk_(chunk_bytes / sizeof(vec16)) {
    const std::uint64_t vectors = msg.n_vectors();
    const std::uint64_t chunks = (vectors + chunk_ - 1) / chunk_;
    const std::uint64_t part = (chunks + n_blocks - 1) / n_blocks * chunk_;
    begin_ = part * block < vectors ? part * block : vectors;
    end_ = begin_ + part < vectors ? begin_ + part : vectors;
    n_chunks_ = static_cast<std::uint32_t>((end_ - begin_ + chunk_ - 1) / chunk_);
    if (block == 0 && n_chunks_ == 0) n_chunks_ = 1;  // an empty call exchanges one empty chunk
    base_ = m_.load8(v_.protocols->chunks_sent + block_);
    known_consumed_ = m_.load8(v_.protocols->chunks_consumed + block_);
    const std::uint32_t depth = v_.layout.sizes.bulk_depth;
    batch_ = depth >= 4 ? depth / 4 : 1;
    if (n_chunks_ > depth) n_acknowledged_ = (n_chunks_ - depth + batch_ - 1) / batch_ * batch_;
  }

  // Chunks of this block in this call.
  PEERLESS_HD std::uint32_t n_chunks() const { return n_chunks_; }

  // Writer, one thread: whether chunk `c` may be stored as far as `reader` is concerned.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool has_room(std::uint32_t c, std::uint32_t reader, std::uint64_t& seen) const {
    seen = known_consumed_;
    if (fits(base_ + c, seen)) return true;
    seen = m_.load8_acquire(&v_.consumed(v_.rank, reader, block_)->value);
    return fits(base_ + c, seen);
  }

  // Writer, a group: stores chunk `c` of the input into the ring.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void put(Group g, std::uint32_t c) const {
    constexpr unsigned at_once = 2;  // loads in flight
    vec16* to = v_.bulk_chunk(v_.rank, block_, base_ + c);
    const std::uint64_t from = begin_ + std::uint64_t{c} * chunk_;
    const std::uint64_t n = end_ - from < chunk_ ? end_ - from : chunk_;
    for (std::uint64_t i = g.thread_rank(); i < n; i += at_once * g.size()) {
      vec16 v[at_once] = {};
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (i + j * g.size() < n) v[j] = load_vector(msg_, from + i + j * g.size());
      }
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (i + j * g.size() < n) m_.store16_payload(to + i + j * g.size(), v[j]);
      }
    }
  }

  // Publisher, one thread, after a barrier with the writers: makes chunk `c` visible to the readers of all ranks.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void publish(std::uint32_t c) const {
    auto* line = v_.ready(v_.rank, block_);
    if (c == 0) m_.store8(&line->parity[f_.epoch & 1u].fingerprint, f_.fingerprint);
    m_.store8_release(&line->parity[0].value, base_ + c + 1);
    m_.store4_release_group(posted_, c + 1);
  }

  // Reader, one thread: whether chunk `c` of `peer` has arrived; for the own rank, whether it has left the input, which
  // an in-place call is about to overwrite.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_ready(std::uint32_t c, std::uint32_t peer, std::uint64_t& seen) const {
    seen = peer == v_.rank ? base_ + m_.load4_acquire_group(posted_)
                           : m_.load8_acquire(&v_.ready(peer, block_)->parity[0].value);
    return static_cast<std::int64_t>(seen - (base_ + c)) > 0;
  }

  // Reader, one thread, after the first chunk of `peer` has arrived: whether it made the same call. Records a mismatch.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_same_call(std::uint32_t peer) const {
    const std::uint64_t theirs = m_.load8(&v_.ready(peer, block_)->parity[f_.epoch & 1u].fingerprint);
    if (theirs == f_.fingerprint) return true;
    fail_call(m_, v_, f_, errc::call_mismatch, peer, f_.fingerprint, theirs);
    return false;
  }

  // Reader, a group: folds chunk `c` of all ranks into the output.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void take(Group g, std::uint32_t c) const {
    constexpr unsigned at_once = 2;
    const std::uint64_t first = begin_ + std::uint64_t{c} * chunk_;
    const std::uint64_t end = first + chunk_ < end_ ? first + chunk_ : end_;
    const auto source = [&](std::uint32_t r, std::uint64_t i) -> const vec16* {
      return v_.bulk_chunk(r, block_, base_ + c) + (i - first);
    };
    for (std::uint64_t i = first + g.thread_rank(); i < end; i += at_once * g.size()) {
      fold_payload<Op, at_once>(m_, msg_, v_.rank, v_.world_size(), i, g.size(), end, source);
    }
  }

  // Whether this call acknowledges when chunk `c` has been taken: a few chunks at a time, as far as it takes their
  // places again itself.
  PEERLESS_HD bool acknowledges(std::uint32_t c) const { return c < n_acknowledged_ && (c + 1) % batch_ == 0; }

  // Acknowledger, one thread: gives the places of the calls before this one and of its first `n` chunks back to `peer`.
  // On entry with n = 0; then after a barrier with the readers, in order.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void acknowledge(std::uint32_t n, std::uint32_t peer) const {
    m_.store8_release(&v_.consumed(peer, v_.rank, block_)->value, base_ + n);
  }

  // One thread, when all roles have ended: the next call continues here.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void finish() const {
    m_.store8(v_.protocols->chunks_consumed + block_, base_);
    m_.store8(v_.protocols->chunks_sent + block_, base_ + n_chunks_);
  }

  // The whole writer role. `writers` store; `handoff` is the writers and the publisher. What is known of the readers is
  // kept: a look at a counter is a round trip to host memory.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Writers, execution_group Handoff>
  PEERLESS_HD bool run_writer(Writers writers, Handoff handoff) const {
    // Chunks below this count have room, as far as this thread's readers are concerned.
    std::uint64_t room_until = known_consumed_ + v_.layout.sizes.bulk_depth;
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      bool good = true;
      if (static_cast<std::int64_t>(base_ + c - room_until) >= 0) {
        room_until = base_ + c + v_.layout.sizes.bulk_depth;
        for (std::uint32_t p = writers.thread_rank(); p < v_.world_size() && good; p += writers.size()) {
          std::uint64_t consumed = room_until;
          if (p != v_.rank) good = await_room(c, p, consumed);
          room_until = least(room_until, consumed + v_.layout.sizes.bulk_depth);
        }
      }
      good = writers.all(good);
      if (good) put(writers, c);
      if (!handoff.all(good))
        return false;  // joins the publisher: writers that ran ahead would oversubscribe the barrier
    }
    return true;
  }

  // The whole publisher role: as many threads as `handoff` has beyond the writers, of which `speaks` one.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Handoff>
  PEERLESS_HD bool run_publisher(Handoff handoff, bool speaks) const {
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      if (!handoff.all(true)) return false;
      if (speaks) publish(c);
    }
    return true;
  }

  // The whole reader role. `receipt` is the readers and the acknowledger.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Readers, execution_group Receipt>
  PEERLESS_HD bool run_reader(Readers readers, Receipt receipt) const {
    std::uint64_t ready_until = base_;  // chunks below this count have arrived from this thread's peers
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      bool good = true;
      if (static_cast<std::int64_t>(base_ + c - ready_until) >= 0) {
        ready_until = base_ + n_chunks_;
        for (std::uint32_t p = readers.thread_rank(); p < v_.world_size() && good; p += readers.size()) {
          std::uint64_t ready = 0;
          good = await_chunk(c, p, ready);
          ready_until = least(ready_until, ready);
        }
      }
      if (!readers.all(good)) {
        if (c < n_acknowledged_) receipt.all(false);  // the acknowledger still waits for this call's chunks
        return false;
      }
      take(readers, c);
      if (acknowledges(c)) receipt.all(true);
    }
    return true;
  }

  // The whole acknowledger role: a group, peers dealt out; `receipt` is the readers and this group. Apart from the
  // readers, since a release waits for everything before it.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group, execution_group Receipt>
  PEERLESS_HD bool run_acknowledger(Group g, Receipt receipt) const {
    for (std::uint32_t n = 0;; n += batch_) {
      for (std::uint32_t p = g.thread_rank(); p < v_.world_size(); p += g.size()) {
        if (p != v_.rank) acknowledge(n, p);
      }
      if (n >= n_acknowledged_) return true;
      if (!receipt.all(true)) return false;
    }
  }

  // Waits until the ring has room for chunk `c` as far as `reader` is concerned; `consumed` becomes the reader's count.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_room(std::uint32_t c, std::uint32_t reader, std::uint64_t& consumed) const {
    patience waiting;
    while (!has_room(c, reader, consumed)) {
      if (!waiting.poll_again(m_, v_, f_, reader, base_ + c + 1 - v_.layout.sizes.bulk_depth, consumed)) return false;
    }
    return true;
  }

  // Waits until chunk `c` of `peer` has arrived, and checks the fingerprint with the first; `ready` becomes its count.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_chunk(std::uint32_t c, std::uint32_t peer, std::uint64_t& ready) const {
    patience waiting;
    while (!is_ready(c, peer, ready)) {
      if (!waiting.poll_again(m_, v_, f_, peer, base_ + c + 1, ready)) return false;
    }
    return c != 0 || peer == v_.rank || is_same_call(peer);
  }

 private:
  // The lesser of two counts near each other; counts may pass 2^63.
  PEERLESS_HD static std::uint64_t least(std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(a - b) < 0 ? a : b;
  }

  // Whether chunk `count`, by the count that never restarts, has a place when all below `consumed` are consumed.
  PEERLESS_HD bool fits(std::uint64_t count, std::uint64_t consumed) const {
    return static_cast<std::int64_t>(count - consumed) < static_cast<std::int64_t>(v_.layout.sizes.bulk_depth);
  }

  Memory m_;
  const rank_view& v_;
  const call_frame& f_;
  const message<T>& msg_;
  std::uint32_t* posted_;
  std::uint32_t block_;
  std::uint32_t chunk_;  // vectors
  std::uint32_t n_chunks_ = 0;
  std::uint64_t begin_ = 0;  // vectors
  std::uint64_t end_ = 0;
  std::uint64_t base_ = 0;            // chunks of this block before this call
  std::uint64_t known_consumed_ = 0;  // chunks of this block that every reader is known to have consumed
  std::uint32_t batch_ = 1;           // chunks acknowledged at a time
  std::uint32_t n_acknowledged_ = 0;  // chunks of this call that are acknowledged within it; a multiple of batch_
};

PEERLESS_END_NAMESPACE
