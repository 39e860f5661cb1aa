// Copied: bulk messages by copy engines. A call is a pipeline of many small steps, kernels and copies, over the chunks
// of its message; each chunk goes up into one of the rank's places in host memory, and down from the peers' places.
//
// Counts never restart, and a call takes whole turns of the places: its first count is a multiple of the depth, and
// what it leaves unused of the last turn passes as consumed. So chunk c of a call lies in place c % depth in every call
// (addresses of copies are fixed when a call is captured), and the rest is the bulk ring with one block: `ready` and
// `consumed` are one writer a word, chunk n may be written when every reader has consumed n - depth, fingerprints
// alternate by the parity of the epoch.
//
// Copies cannot be called off. A rank that has failed goes through its places without leave, so it first owns up to it
// (`taint`), and a reader looks for that after its copy and before it folds.
#pragma once

#include <initializer_list>

#include <peerless/protocol/copy_layout.hpp>
#include <peerless/protocol/patience.hpp>

PEERLESS_BEGIN_NAMESPACE

// A step of a call. Steps of one kind follow each other in the order of their numbers.
enum class copy_step : std::uint8_t {
  hand,      // kernel: waits for room for chunk n
  upload,    // copy: chunk n into the own place
  announce,  // kernel: makes chunk n visible to the peers
  await,     // kernel: waits for chunk n of every peer
  download,  // copies: chunk n of every peer into scratch memory
  fold       // kernel: gives the peers' places back, folds chunk n into the output
};
inline constexpr std::size_t n_copy_steps = 6;

struct copy_stage {
  copy_step step;
  std::uint32_t n;
};

// Calls `visit(stage, {stages that must have ended before, beside those of its own kind})` for every stage of a call of
// `n_chunks` chunks, in an order in which they can be enqueued. `copies`: whether anything is copied at all.
//
// From one copy to the next of its kind there is no way through a kernel but over half the depth, so that what a hop
// between engines costs (10 us and more beside copies) is hidden.
//
// Steps may run in any order that the dependencies allow, one at a time even: what shares a queue of the hardware waits
// behind what waits for a peer. That never becomes a circle. Say a rank that is held up in hand(n) is at n - lead, and
// one that is held up in await(n) is at n. It has announced every chunk up to where it is, and it has folded, of
// hand(n), up to n - depth, of await(n), up to n - scratch; lead + scratch is the depth. So whoever has not yet
// consumed or announced what another waits for is held up at an earlier place, and the earliest of all is held up by
// nobody.
template <class Visitor>
constexpr void for_each_copy_stage(std::uint32_t n_chunks, std::uint32_t depth, bool copies, Visitor&& visit) {
  using enum copy_step;
  const std::uint32_t lead = copy_lead(depth), scratch = copy_scratch(depth);
  for (std::uint32_t n = 0; n < n_chunks; ++n) {
    const auto of = [n](copy_step step) { return copy_stage{step, n}; };
    if (n >= depth) {
      visit(of(hand), {copy_stage{announce, n - lead}, copy_stage{fold, n - depth}});
    } else if (n >= lead) {
      visit(of(hand), {copy_stage{announce, n - lead}});
    } else {
      visit(of(hand), {});
    }
    if (copies) visit(of(upload), {of(hand)});
    visit(of(announce), {of(copies ? upload : hand)});
    if (n >= scratch) {
      visit(of(await), {of(announce), copy_stage{fold, n - scratch}});
    } else {
      visit(of(await), {of(announce)});
    }
    if (copies) visit(of(download), {of(await)});
    visit(of(fold), {of(copies ? download : await)});
  }
}

// What the kernels of a call do on one rank, but for the fold itself.
template <memory_policy Memory>
class copy_pipeline {
 public:
  PEERLESS_HD copy_pipeline(Memory m, const copy_view& v) : m_(m), v_(v) {}

  // One thread, first of all when the call has been entered: leaves what the later steps need.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void begin(const call_frame& f, std::uint32_t n_chunks) const {
    copy_state* s = v_.state;
    const std::uint64_t base = m_.load8(&s->next_base);
    m_.store8(&s->base, base);
    m_.store8(&s->next_base, base + (n_chunks + v_.layout.sizes.depth - 1) / v_.layout.sizes.depth *
                                        std::uint64_t{v_.layout.sizes.depth});
    m_.store8(&s->call, f.call);
    m_.store8(&s->epoch, f.epoch);
    m_.store8(&s->fingerprint, f.fingerprint);
  }

  // Any thread of a later step. False when the communicator has failed: the step is to do nothing.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool resume() {
    const copy_state* s = v_.state;
    f_ = {m_.load8(&s->call), m_.load8(&s->epoch), m_.load8(&s->fingerprint), protocol_id::copied};
    base_ = m_.load8(&s->base);
    return !is_poisoned(m_, v_.ranks);
  }

  // One thread, when the upload of chunk `c` has ended: makes it visible to the readers of all ranks.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void publish(std::uint32_t c) const {
    flag_line* line = v_.ready(v_.ranks.rank);
    if (c == 0) m_.store8(&line->parity[f_.epoch & 1u].fingerprint, f_.fingerprint);
    m_.store8_release(&line->parity[0].value, base_ + c + 1);
  }

  // One thread, before uploads that nobody has given leave for.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void own_up() const { m_.store8_release(v_.taint(v_.ranks.rank), 1); }

  // Waits until `reader` has consumed what lies in the place of chunk `c`. False: the call has failed.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_room(std::uint32_t c, std::uint32_t reader) const {
    const std::uint64_t wanted = base_ + c + 1 - v_.layout.sizes.depth;
    patience waiting;
    for (;;) {
      const std::uint64_t seen = m_.load8_acquire(&v_.consumed(v_.ranks.rank, reader)->value);
      if (static_cast<std::int64_t>(seen - wanted) >= 0) return true;
      if (!waiting.poll_again(m_, v_.ranks, f_, reader, wanted, seen)) return false;
    }
  }

  // Waits until chunk `c` of `peer` has arrived, and sees with the first that it makes the same call. False: the call
  // has failed.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool await_chunk(std::uint32_t c, std::uint32_t peer) const {
    const flag_line* line = v_.ready(peer);
    patience waiting;
    for (;;) {
      const std::uint64_t seen = m_.load8_acquire(&line->parity[0].value);
      if (static_cast<std::int64_t>(seen - (base_ + c)) > 0) break;
      if (!waiting.poll_again(m_, v_.ranks, f_, peer, base_ + c + 1, seen)) return false;
    }
    if (c != 0) return true;
    const std::uint64_t theirs = m_.load8(&line->parity[f_.epoch & 1u].fingerprint);
    if (theirs == f_.fingerprint) return true;
    fail_call(m_, v_.ranks, f_, errc::call_mismatch, peer, f_.fingerprint, theirs);
    return false;
  }

  // When the downloads of a chunk have ended: whether what came from `peer` is what it announced. False: the call has
  // failed.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD bool is_sound(std::uint32_t peer) const {
    if (m_.load8_acquire(v_.taint(peer)) == 0) return true;
    const control_block* other = v_.ranks.control(peer);
    const std::uint64_t failed = detail::verdict_or_none(m_.load8_acquire(&other->kernel_verdict));
    const std::uint64_t said = failed != 0 ? failed : detail::verdict_or_none(m_.load8_acquire(&other->host_verdict));
    const std::uint32_t about = verdict_about(said);
    fail_call(m_, v_.ranks, f_, said != 0 ? verdict_code(said) : errc::peer_closed,
              said == 0 || about == v_.ranks.rank ? peer : about, 0, 0);
    return false;
  }

  // One thread, when the downloads of chunk `c` have ended: gives its place back to `peer`.
  PEERLESS_EXEC_CHECK_DISABLE
  PEERLESS_HD void acknowledge(std::uint32_t c, bool is_last, std::uint32_t peer) const {
    m_.store8_release(&v_.consumed(peer, v_.ranks.rank)->value,
                      is_last ? m_.load8(&v_.state->next_base) : base_ + c + 1);
  }

 private:
  Memory m_;
  const copy_view& v_;
  call_frame f_{};
  std::uint64_t base_ = 0;  // chunks before this call
};

PEERLESS_END_NAMESPACE
