// What a conformance case is, and the settings under which the list of cases is run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/call_checker.hpp"
#include "support/slots.hpp"

namespace peerless::test {

inline constexpr std::array all_types = {dtype::f8_e4m3, dtype::f8_e5m2, dtype::f16, dtype::bf16,
                                         dtype::f32,     dtype::f64,     dtype::i8,  dtype::u8,
                                         dtype::i32,     dtype::u32,     dtype::i64, dtype::u64};
inline constexpr std::array all_ops = {reduce_op::sum, reduce_op::prod, reduce_op::min, reduce_op::max, reduce_op::avg};
inline constexpr std::array all_protocols = {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk,
                                             protocol_id::two_shot};

// A group of sessions that asks for the same cases.
enum session_kind : unsigned {
  full_session = 1,    // everything, with small slots so that the edges of slots and rings are cheap to reach
  epoch_session = 2,   // counters near their edges
  wide_session = 4,    // 16 ranks
  large_session = 8,   // the default slots and messages of many megabytes
  brief_session = 16,  // one case of each kind, to be run once more under other circumstances
};

// One session: a set of ranks with one communicator, through which all its cases go.
struct setting {
  int world = 2;
  ranks_as how = ranks_as::processes;
  session_kind kind = full_session;
  communicator_options options{};
  std::size_t arena_bytes = std::size_t{2} << 20;
  unsigned effort = 1;    // multiplies the length of random sequences
  bool captures = false;  // of the backend
};

// What a case works with on one rank.
class case_run {
 public:
  case_run(const setting& s, call_checker& checker, std::uint64_t seed)
      : setting_(&s), checker_(&checker), choices_(seed) {}

  const setting& session() const { return *setting_; }
  call_checker& checker() { return *checker_; }
  // Choices that all ranks make alike.
  random_choices& choices() { return choices_; }
  int rank() { return checker_->context().rank(); }
  int world() const { return setting_->world; }

  // Whether a forced protocol carries the call: the sentinel no type that lacks one, slots no more than their size.
  bool admits(protocol_id protocol, dtype type, std::size_t bytes) const {
    switch (protocol) {
      case protocol_id::sentinel: return has_sentinel(type) && bytes <= setting_->options.sizes.sentinel_slot_bytes;
      case protocol_id::flagged: return bytes <= setting_->options.sizes.flagged_slot_bytes;
      case protocol_id::bulk:
      case protocol_id::copied: return true;
      case protocol_id::two_shot: return setting_->world >= static_cast<int>(least_two_shot_world);
    }
    return false;
  }

  void run(const call_spec& call) { checker_->run(call); }
  void run(std::span<const call_spec> calls) { checker_->run(calls); }

  // A call drawn at random, at most `limit_bytes` large, that every protocol drawn can carry.
  call_spec any_call(std::size_t limit_bytes) {
    call_spec call;
    call.type = all_types[choices_.below(all_types.size())];
    call.op = all_ops[choices_.below(all_ops.size())];
    call.data = static_cast<payload>(choices_.below(static_cast<std::uint64_t>(payload::last_)));
    call.n_elements = choices_.log_uniform(limit_bytes / size_bytes(call.type));
    std::uint64_t const which = choices_.below(all_protocols.size() + 1);
    if (which < all_protocols.size() && admits(all_protocols[which], call.type, call.bytes()))
      call.protocol = all_protocols[which];
    if (call.protocol && choices_.once_in(2)) {
      call.blocks = 1 + static_cast<std::uint32_t>(choices_.below(setting_->options.sizes.bulk_blocks));
      call.chunk_bytes =
          16 * (1 + static_cast<std::uint32_t>(choices_.below(setting_->options.sizes.bulk_chunk_bytes / 16)));
    }
    // Where it lies in memory is each rank's own affair.
    std::uint64_t const place = mix(choices_.next() + static_cast<std::uint64_t>(rank()));
    call.in_place = place % 4 == 0;
    call.in_offset = (place >> 8) % 3 == 0 ? (place >> 16) % 16 : 0;
    call.out_offset = (place >> 24) % 3 == 0 ? (place >> 32) % 16 : 0;
    return call;
  }

 private:
  const setting* setting_;
  call_checker* checker_;
  random_choices choices_;
};

// One case. The list in cases.hpp is the suite.
struct conformance_case {
  const char* name;
  unsigned kinds;      // sessions that run it
  bool needs_capture;  // for backends whose calls can be captured only
  void (*run)(case_run&);
};

}  // namespace peerless::test
