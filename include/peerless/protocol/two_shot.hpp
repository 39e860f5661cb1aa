// Two-shot: every rank reduces one part of the message and hands the result to the others (reduce-scatter, then
// all-gather). A rank reads 2 (n - 1) / n messages instead of the n - 1 of a one-shot, for one more hop of latency: for
// worlds above 2, from some size on. Messages of any size flow chunk by chunk through two bounded rings a (rank,
// block): `data`, what the rank contributes, and `results`, its part of each chunk as reduced. A chunk has a part for
// every rank, in rank order; the last ones of a short chunk are short or empty.
//
// Of chunk c a block stores the parts of its peers and releases `posted`; acquires the peers' `posted`, folds its own
// part of all ranks in rank order and releases `reduced`; acquires the peers' `reduced` and copies their parts. Counts
// never restart, as in bulk_ring.hpp, and have one writer a word. A fingerprint needs no second place for the call
// after it: a block of a peer ends its call when it has acquired this rank's `reduced`, which is released when the
// peer's fingerprint has been looked at.
//
// Reuse without acknowledgements. A chunk is stored only when the same block has gathered the chunk `depth` before it.
// Its place in `data` is then free: gathering acquired every peer's `reduced`, which that peer released when it had
// read the data. The place in `results` is free when it is written: that is after the acquire of every peer's `posted`,
// which that peer released when it had gathered the chunk `depth` before. A call begins where the last one has ended,
// so both hold across calls. In place: a part is read and written by one thread; the parts of peers are overwritten
// after the acquire of their `reduced`, which follows from the release of `posted` here, when all of them had been
// read.
#pragma once

#include <cstdint>

#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/patience.hpp>

PEERLESS_BEGIN_NAMESPACE

// One block of one rank in one call. The five roles run side by side (on a GPU in warps of their own; on a CPU one
// thread takes the steps in turn) and share `gathered`, a word of the block that only the gatherers write.
template <element T, reduction Op, memory_policy Memory>
class two_shot {
 public:
  // `chunk_bytes` (a multiple of 16, at most the layout's) and `n_blocks` are the same on all ranks. `gathered` is
  // zero.
  PEERLESS_HD two_shot(Memory m, const rank_view& v, const call_frame& f, const message<T>& msg, std::uint32_t block,
                       std::uint32_t n_blocks, std::uint32_t chunk_bytes, std::uint32_t* gathered)
      : m_(m), v_(v), f_(f), msg_(msg), gathered_(gathered), block_(block), chunk_(chunk_bytes / sizeof(vec16)) {
    const std::uint64_t vectors = msg.n_vectors();
    const std::uint64_t chunks = (vectors + chunk_ - 1) / chunk_;
    const std::uint64_t share = (chunks + n_blocks - 1) / n_blocks * chunk_;
    begin_ = share * block < vectors ? share * block : vectors;
    end_ = begin_ + share < vectors ? begin_ + share : vectors;
    n_chunks_ = static_cast<std::uint32_t>((end_ - begin_ + chunk_ - 1) / chunk_);
    if (block == 0 && n_chunks_ == 0) n_chunks_ = 1;  // an empty call exchanges one empty chunk
    base_ = m_.load8(v_.protocols->two_shot_chunks + block_);
  }

  // Chunks of this block in this call.
  PEERLESS_HD std::uint32_t n_chunks() const { return n_chunks_; }

  // Writer, one thread: whether chunk `c` may be stored. `seen` becomes the count of gathered chunks.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool has_room(std::uint32_t c, std::uint64_t& seen) const {
    if (c < v_.layout.sizes.bulk_depth) return true;
    seen = m_.load4_acquire_group(gathered_);
    return c - seen < v_.layout.sizes.bulk_depth;
  }

  // Writer, a group: stores the peers' parts of chunk `c` of the input.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void put(Group g, std::uint32_t c) const {
    constexpr unsigned at_once = 2;  // loads in flight
    vec16* to = v_.two_shot_data(v_.rank, block_, base_ + c);
    const std::uint64_t first = begin_ + std::uint64_t{c} * chunk_;
    const std::uint64_t n = vectors_of(c);
    const part own = part_of(v_.rank, n);
    const auto stores = [&](std::uint64_t i) { return i < n && (i < own.begin || i >= own.end); };
    for (std::uint64_t i = g.thread_rank(); i < n; i += at_once * g.size()) {
      vec16 v[at_once] = {};
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (stores(i + j * g.size())) v[j] = load_vector(msg_, first + i + j * g.size());
      }
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (stores(i + j * g.size())) m_.store16_payload(to + i + j * g.size(), v[j]);
      }
    }
  }

  // Publisher, one thread, after a barrier with the writers: makes chunk `c` visible to the reducers of all ranks.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void publish_data(std::uint32_t c) const {
    auto* line = v_.two_shot_posted(v_.rank, block_);
    if (c == 0) m_.store8(&line->parity[0].fingerprint, f_.fingerprint);
    m_.store8_release(&line->parity[0].value, base_ + c + 1);
  }

  // Reducer, one thread: whether chunk `c` of `peer` has arrived.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_posted(std::uint32_t c, std::uint32_t peer, std::uint64_t& seen) const {
    seen = m_.load8_acquire(&v_.two_shot_posted(peer, block_)->parity[0].value);
    return static_cast<std::int64_t>(seen - (base_ + c)) > 0;
  }

  // Reducer, one thread, after the first chunk of `peer` has arrived: whether it made the same call. Records a
  // mismatch.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_same_call(std::uint32_t peer) const {
    const std::uint64_t theirs = m_.load8(&v_.two_shot_posted(peer, block_)->parity[0].fingerprint);
    if (theirs == f_.fingerprint) return true;
    fail_call(m_, v_, f_, errc::call_mismatch, peer, f_.fingerprint, theirs);
    return false;
  }

  // Reducer, a group: folds the own part of chunk `c` of all ranks into the output and the results.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void reduce(Group g, std::uint32_t c) const {
    constexpr unsigned at_once = 2;
    const std::uint64_t first = begin_ + std::uint64_t{c} * chunk_;
    const part own = part_of(v_.rank, vectors_of(c));
    vec16* results = v_.two_shot_results(v_.rank, block_, base_ + c);
    const auto source = [&](std::uint32_t r, std::uint64_t i) -> const vec16* {
      return v_.two_shot_data(r, block_, base_ + c) + (i - first);
    };
    const auto sink = [&](std::uint64_t i, const vec16& v) {
      store_vector(msg_, i, v);
      m_.store16_payload(results + (i - first - own.begin), v);
    };
    for (std::uint64_t i = first + own.begin + g.thread_rank(); i < first + own.end; i += at_once * g.size()) {
      fold_payload<Op, at_once>(m_, msg_, v_.rank, v_.world_size(), i, g.size(), first + own.end, source, sink);
    }
  }

  // One thread, after a barrier with the reducers: makes the own part of chunk `c` visible to the gatherers of all
  // ranks.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void publish_result(std::uint32_t c) const {
    m_.store8_release(&v_.two_shot_reduced(v_.rank, block_)->value, base_ + c + 1);
  }

  // Gatherer, one thread: whether the part of `peer` of chunk `c` has been reduced.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_reduced(std::uint32_t c, std::uint32_t peer, std::uint64_t& seen) const {
    seen = m_.load8_acquire(&v_.two_shot_reduced(peer, block_)->value);
    return static_cast<std::int64_t>(seen - (base_ + c)) > 0;
  }

  // Gatherer, a group: copies the peers' parts of chunk `c` into the output.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group>
  PEERLESS_HD void gather(Group g, std::uint32_t c) const {
    constexpr unsigned at_once = 2;  // loads in flight, whichever peers they are of
    const std::uint64_t first = begin_ + std::uint64_t{c} * chunk_;
    const auto n = static_cast<std::uint32_t>(vectors_of(c));
    const auto each = static_cast<std::uint32_t>(part_of(0, n).end);
    const part own = part_of(v_.rank, n);
    const auto behind = static_cast<std::uint32_t>(own.end),
               n_theirs = n - static_cast<std::uint32_t>(own.end - own.begin);
    // Vector `i` of those behind the own part and then of those before it: ranks begin at different peers.
    const auto place = [&](std::uint32_t i) { return behind + i < n ? behind + i : behind + i - n; };
    for (std::uint32_t i = g.thread_rank(); i < n_theirs; i += at_once * g.size()) {
      vec16 v[at_once] = {};
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        const std::uint32_t at = place(i + j * g.size());
        if (i + j * g.size() < n_theirs)
          v[j] = m_.load16_payload(v_.two_shot_results(at / each, block_, base_ + c) + at % each);
      }
      PEERLESS_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (i + j * g.size() < n_theirs) store_vector(msg_, first + place(i + j * g.size()), v[j]);
      }
    }
  }

  // Gatherer, one thread, after a barrier of the gatherers: gives the places of chunk `c` back to the writers.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void give_back(std::uint32_t c) const { m_.store4_release_group(gathered_, c + 1); }

  // One thread, when all roles have ended: the next call continues here.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void finish() const { m_.store8(v_.protocols->two_shot_chunks + block_, base_ + n_chunks_); }

  // The whole writer role. `writers` store; `handoff` is the writers and the publisher.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Writers, execution_group Handoff>
  PEERLESS_HD bool run_writer(Writers writers, Handoff handoff) const {
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      const bool good = writers.all(writers.thread_rank() != 0 || await_room(c));
      if (good) put(writers, c);
      if (!handoff.all(good)) return false;
    }
    return true;
  }

  // The whole publisher role: as many threads as `handoff` has beyond the writers, of which `speaks` one.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Handoff>
  PEERLESS_HD bool run_publisher(Handoff handoff, bool speaks) const {
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      if (!handoff.all(true)) return false;
      if (speaks) publish_data(c);
    }
    return true;
  }

  // The whole reducer role. `receipt` is the reducers and the publisher of results. What is known of the peers is kept:
  // a look at a counter is a round trip to host memory.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Reducers, execution_group Receipt>
  PEERLESS_HD bool run_reducer(Reducers reducers, Receipt receipt) const {
    std::uint64_t posted_until = base_;  // chunks below this count have arrived from this thread's peers
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      const auto arrived = [&](std::uint32_t p, std::uint64_t& seen) { return await_data(c, p, seen); };
      const bool good = reducers.all(await_peers(reducers, c, posted_until, arrived));
      if (good) reduce(reducers, c);
      if (!receipt.all(good)) return false;
    }
    return true;
  }

  // The whole role that publishes results: as many threads as `receipt` has beyond the reducers, of which `speaks` one.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Receipt>
  PEERLESS_HD bool run_result_publisher(Receipt receipt, bool speaks) const {
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      if (!receipt.all(true)) return false;
      if (speaks) publish_result(c);
    }
    return true;
  }

  // The whole gatherer role.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Gatherers>
  PEERLESS_HD bool run_gatherer(Gatherers gatherers) const {
    std::uint64_t reduced_until = base_;
    for (std::uint32_t c = 0; c < n_chunks_; ++c) {
      const auto arrived = [&](std::uint32_t p, std::uint64_t& seen) { return await_result(c, p, seen); };
      if (!gatherers.all(await_peers(gatherers, c, reduced_until, arrived))) return false;
      gather(gatherers, c);
      gatherers.sync();
      if (gatherers.thread_rank() == 0) give_back(c);
    }
    return true;
  }

 private:
  // Vectors of a chunk, counted from its first.
  struct part {
    std::uint64_t begin, end;
  };
  PEERLESS_HD part part_of(std::uint32_t r, std::uint64_t n) const {
    const std::uint64_t each = (n + v_.world_size() - 1) / v_.world_size();
    const std::uint64_t begin = each * r < n ? each * r : n;
    return {begin, begin + each < n ? begin + each : n};
  }
  PEERLESS_HD std::uint64_t vectors_of(std::uint32_t c) const {
    const std::uint64_t left = end_ - begin_ - std::uint64_t{c} * chunk_;
    return left < chunk_ ? left : chunk_;
  }

  // One thread of a group: awaits this thread's share of the peers, unless chunk `c` is known to be there; `until`
  // becomes the least of their counts.
  PEERLESS_EXEC_CHECK_DISABLE
  template <execution_group Group, class Await>
  PEERLESS_HD bool await_peers(Group g, std::uint32_t c, std::uint64_t& until, const Await& await) const {
    if (static_cast<std::int64_t>(base_ + c - until) < 0) return true;
    until = base_ + n_chunks_;
    for (std::uint32_t p = g.thread_rank(); p < v_.world_size(); p += g.size()) {
      if (p == v_.rank) continue;
      std::uint64_t seen = 0;
      if (!await(p, seen)) return false;
      if (static_cast<std::int64_t>(seen - until) < 0) until = seen;
    }
    return true;
  }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_room(std::uint32_t c) const {
    patience waiting;
    std::uint64_t seen = 0;
    while (!has_room(c, seen)) {
      if (!waiting.poll_again(m_, v_, f_, v_.rank, c + 1 - v_.layout.sizes.bulk_depth, seen)) return false;
    }
    return true;
  }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_data(std::uint32_t c, std::uint32_t peer, std::uint64_t& seen) const {
    patience waiting;
    while (!is_posted(c, peer, seen)) {
      if (!waiting.poll_again(m_, v_, f_, peer, base_ + c + 1, seen)) return false;
    }
    return c != 0 || is_same_call(peer);
  }

  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_result(std::uint32_t c, std::uint32_t peer, std::uint64_t& seen) const {
    patience waiting;
    while (!is_reduced(c, peer, seen)) {
      if (!waiting.poll_again(m_, v_, f_, peer, base_ + c + 1, seen)) return false;
    }
    return true;
  }

  Memory m_;
  const rank_view& v_;
  const call_frame& f_;
  const message<T>& msg_;
  std::uint32_t* gathered_;
  std::uint32_t block_;
  std::uint32_t chunk_;  // vectors
  std::uint32_t n_chunks_ = 0;
  std::uint64_t begin_ = 0;  // vectors
  std::uint64_t end_ = 0;
  std::uint64_t base_ = 0;  // chunks of this block before this call
};

PEERLESS_END_NAMESPACE
