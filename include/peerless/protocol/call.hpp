// The life of one call on one rank: entry, announcement, failure, exit. Every protocol and executor goes through here.
#pragma once

#include <cstdint>

#include <peerless/protocol/layout.hpp>
#include <peerless/protocol/memory.hpp>

PEERLESS_BEGIN_NAMESPACE

// What identifies a running call. `epoch` counts the calls of one protocol, `call` those of the communicator.
struct call_frame {
  std::uint64_t call;
  std::uint64_t epoch;
  std::uint64_t fingerprint;
  protocol_id protocol;
};

// The arrays of one all-reduce. `out` is `in` or does not overlap it. Any alignment that T allows.
template <element T>
struct message {
  const T* in;
  T* out;
  std::uint64_t n_elements;
  reduce_op operation = reduce_op::sum;  // for code that serves several

  // 16-byte vectors that the elements fill, the last one perhaps in part.
  PEERLESS_HD constexpr std::uint64_t n_vectors() const { return (n_elements * sizeof(T) + 15) / 16; }
};

// Reads where this rank stands. Every thread of a call may do so; the words do not change while a call runs.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD inline call_frame open_call(Memory m, const rank_view& v, std::uint64_t fingerprint) {
  const auto protocol = signature_of(fingerprint).protocol;
  return {m.load8(&v.calls->next_call), m.load8(v.protocols->next_epoch + (static_cast<int>(protocol) - 1)),
          fingerprint, protocol};
}

// True when an earlier call failed or the communicator was closed: the call must end without touching anything.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD inline bool is_poisoned(Memory m, const rank_view& v) {
  return m.load4(&v.calls->poison) != 0;
}

// Tells the peers which call this rank is in. One thread, once a call; needs no ordering.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD inline void announce_call(Memory m, const rank_view& v, const call_frame& f) {
  auto* line = v.control(v.rank)->call_line;
  m.store8(line, f.call << 32 | f.fingerprint >> 32);
  m.store8(line + 1, f.call << 32 | (f.fingerprint & 0xffffffffu));
}

// Moves on to the next call. One thread, when every thread of the call knows its frame.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD inline void advance_call(Memory m, const rank_view& v, const call_frame& f) {
  m.store8(v.protocols->next_epoch + (static_cast<int>(f.protocol) - 1), f.epoch + 1);
  m.store8(&v.calls->next_call, f.call + 1);
}

// Ends the communicator on this rank: poisons it, leaves the account for the host and tells the peers. The first
// failure of a rank is the one that counts. `about` is the rank concerned; `awaited` and `seen` explain. Any thread.
PEERLESS_EXEC_CHECK_DISABLE
template <memory_policy Memory>
PEERLESS_HD PEERLESS_NOINLINE void fail_call(Memory m, const rank_view& v, call_frame f, errc code, std::uint32_t about,
                                             std::uint64_t awaited, std::uint64_t seen) {
  if (!m.claim(&v.calls->poison, static_cast<std::uint32_t>(code))) return;
  failure_record* record = &v.control(v.rank)->failure;
  m.store4(&record->code, static_cast<std::uint32_t>(code));
  m.store4(&record->about, about);
  m.store4(&record->protocol, static_cast<std::uint32_t>(f.protocol));
  m.store8(&record->call, f.call);
  m.store8(&record->awaited, awaited);
  m.store8(&record->seen, seen);
  m.store8_release(&record->ready, 1);
  m.store8(&v.control(v.rank)->kernel_verdict, encode_verdict(code, about));  // complete in itself: needs no order
}

PEERLESS_END_NAMESPACE
