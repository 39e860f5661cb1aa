// Waiting for a peer, always with an end: deadline, abort, a peer's failure, death or close, and calls that differ.
#pragma once

#include <cstdint>

#include <peerless/protocol/call.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Fruitless polls between two looks at the clock and the verdicts. A poll through PCIe takes 1.1 us or more, a look
// several times that: 64 keeps the looks below 5 % of a wait and a death noticed within 100 us.
inline constexpr unsigned polls_per_look = 64;
// How long a peer may be late before its call line is compared; far above any skew of healthy ranks within a call.
inline constexpr std::uint64_t call_line_after_ns = 1'000'000;

// A verdict as it was read. All ones is no verdict but what a failed PCIe read returns.
PEERLESS_HD constexpr std::uint64_t verdict_or_none(std::uint64_t word) { return word == ~std::uint64_t{0} ? 0 : word; }

// The fingerprint of the call that `peer` is in, if its call line tells of another call than ours of the same number; 0
// otherwise (no fingerprint is 0).
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD inline std::uint64_t differing_call(Memory m, const rank_view& v, const call_frame& f, std::uint32_t peer) {
  const std::uint64_t* line = v.control(peer)->call_line;
  const std::uint64_t upper = m.load8(line), lower = m.load8(line + 1);
  const std::uint64_t theirs = upper << 32 | (lower & 0xffffffffu);
  const bool same_call = upper >> 32 == (f.call & 0xffffffffu) && lower >> 32 == (f.call & 0xffffffffu);
  return same_call && theirs != f.fingerprint ? theirs : 0;
}

// One look, while waiting for `peer`. `state` is 0 at the first look and then what the last one returned: the start of
// the wait, doubled, plus 1 once the peer has closed. Returns 0 when the wait must end; the failure is then recorded.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD PEERLESS_NOINLINE std::uint64_t look_around(Memory m, const rank_view& v, call_frame f, std::uint32_t peer,
                                                        std::uint64_t awaited, std::uint64_t seen,
                                                        std::uint64_t state) {
  if (is_poisoned(m, v)) return 0;  // another thread of this rank has failed
  const std::uint64_t own = verdict_or_none(m.load8(&v.control(v.rank)->host_verdict));
  if (own != 0) {
    // A mismatch that the watcher learnt from a rank that has ended: its call line still tells both calls.
    const std::uint32_t about = verdict_about(own);
    const bool tells = verdict_code(own) == errc::call_mismatch && about != v.rank;
    const std::uint64_t theirs = tells ? differing_call(m, v, f, about) : 0;
    fail_call(m, v, f, verdict_code(own), about, theirs != 0 ? f.fingerprint : 0, theirs);
    return 0;
  }
  const control_block* other = v.control(peer);
  const std::uint64_t failed = verdict_or_none(m.load8(&other->kernel_verdict));
  const std::uint64_t ended = failed != 0 ? failed : verdict_or_none(m.load8_acquire(&other->host_verdict));
  const std::uint64_t now = m.now_ns();
  const std::uint64_t since = state != 0 ? state >> 1 : now;
  // A peer that says that calls differ is believed only after looks of our own, which can tell both calls.
  if (now - since > call_line_after_ns || verdict_code(ended) == errc::call_mismatch) {
    if (const std::uint64_t theirs = differing_call(m, v, f, peer); theirs != 0) {
      fail_call(m, v, f, errc::call_mismatch, peer, f.fingerprint, theirs);
      return 0;
    }
  }
  bool closed = (state & 1u) != 0;
  if (verdict_code(ended) == errc::call_mismatch && now - since <= call_line_after_ns) return since << 1;
  if (ended != 0) {
    // What an orderly closed peer sent before it closed is visible now: poll once more before giving up.
    if (verdict_code(ended) != errc::peer_closed || closed) {
      const std::uint32_t about = verdict_about(ended);
      fail_call(m, v, f, verdict_code(ended), about == v.rank ? peer : about, 0, 0);
      return 0;
    }
    closed = true;
  }
  // Another thread of this rank, which waits for peers itself, is never the one to be named.
  if (now - since > (peer == v.rank ? 2 * v.deadline_ns : v.deadline_ns)) {
    fail_call(m, v, f, errc::timeout, peer, awaited, seen);
    return 0;
  }
  return since << 1 | (closed ? 1u : 0u);
}

}  // namespace detail

// Patience of one thread with one peer, in one wait: `while (!arrived()) if (!patience.poll_again(...)) return false;`
class patience {
 public:
  // After a fruitless poll. True: poll again. False: the call has failed, which is recorded, and the thread must leave
  // (through any barrier that others of its group stand at). `awaited` and `seen` go into the account of a failure.
  PEERLESS_EXEC_CHECK_DISABLE
  template <memory_policy Memory>
  PEERLESS_HD bool poll_again(Memory m, const rank_view& v, const call_frame& f, std::uint32_t peer,
                              std::uint64_t awaited, std::uint64_t seen) {
    m.relax(polls_);
    if (++polls_ % detail::polls_per_look != 0) return true;
    state_ = detail::look_around(m, v, f, peer, awaited, seen, state_);
    return state_ != 0;
  }

 private:
  unsigned polls_ = 0;
  std::uint64_t state_ = 0;
};

PEERLESS_END_NAMESPACE
