// Transport `mailbox`: every rank has a box in memory that all ranks map, puts one chunk after the other into it, and
// takes what is in the others' boxes. Written with public headers alone, to show what a transport consists of. The
// library's own transport for CPUs is `host`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <peerless/protocol/fold.hpp>
#include <peerless/protocol/memory_cpu.hpp>
#include <peerless/protocol/patience.hpp>
#include <peerless/transport/concepts.hpp>
#include <peerless/transport/host_space.hpp>

namespace toy {

using peerless::protocol_id;

// See peerless/transport/concepts.hpp for each member. Calls block: a rank's thread executes them itself.
//
// Chunks are numbered through all calls; chunk n goes to place n mod 2 of the rank's box. A rank puts chunk n when it
// has taken chunk n - 1 of every peer, which had taken every chunk n - 2 before it put that one: the place is free. A
// peer is at most one chunk ahead, so that the flag of chunk n is still there, too.
class mailbox {
 public:
  static constexpr std::string_view name = "mailbox";
  using space = peerless::host_space;

  mailbox(peerless::bootstrap_ref boot, peerless::session<space>& group, const peerless::communicator_options& options,
          peerless::deadline limit)
      : next_chunk_(options.first_epoch) {
    const auto world = static_cast<std::uint32_t>(boot.size());
    const peerless::memory_request want{.bytes = peerless::page_bytes + world * sizeof(box),
                                        .layout_hash = peerless::hash_values({sizeof(box), world, next_chunk_}),
                                        .source = options.segments};
    memory_ = peerless::joint_memory<space>::make(boot, want, limit, [&](std::byte* host) {
      for (std::uint32_t r = 0; r < world; ++r) {
        for (auto& flag : box_of(host, r).flags.parity) flag.value = next_chunk_ - 1;  // nothing was put yet
      }
    });
    peerless::agree_on(boot, limit, [&] { protocols_.emplace(peerless::make_protocol_state(options.first_epoch)); });
    view_.controls = group.controls();
    view_.calls = group.calls();
    view_.protocols = protocols_->get();
    view_.layout.sizes.world_size = world;
    view_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(options.deadline).count());
    view_.rank = static_cast<std::uint32_t>(boot.rank());
  }

  // One row: a call of any size, in chunks of a whole place.
  peerless::selection_table seed_table() const {
    return {{0, ~std::size_t{0}, peerless::type_class::any, name, protocol_id::bulk, {1, 1, place_bytes}, 0, "seed"}};
  }

  // One thread does all, whatever the blocks and threads of the shape.
  const char* refuse(protocol_id protocol, const peerless::launch_shape& shape, std::size_t,
                     peerless::dtype) const noexcept {
    if (protocol != protocol_id::bulk) return "mailbox has the protocol bulk only";
    if (shape.chunk_bytes == 0 || shape.chunk_bytes % 16 != 0) return "chunk_bytes must be a positive multiple of 16";
    return shape.chunk_bytes > place_bytes ? "the chunk is larger than a place of the box" : nullptr;
  }

  template <class Op, class T>
    requires peerless::foldable<T, Op>
  void all_reduce(protocol_id protocol, const peerless::launch_shape& shape, const peerless::message<T>& msg,
                  peerless::host_stream) {
    if (peerless::is_poisoned(m_, view_)) return;
    const std::uint64_t fingerprint =
        peerless::fingerprint_of({msg.n_elements, peerless::dtype_of<T>, Op::id, protocol});
    const peerless::call_frame call = peerless::open_call(m_, view_, fingerprint);
    peerless::announce_call(m_, view_, call);
    const std::uint64_t vectors = msg.n_vectors(), per_chunk = shape.chunk_bytes / sizeof(peerless::vec16);
    std::uint64_t begin = 0;
    do {  // a call without elements exchanges an empty chunk
      const std::uint64_t end = std::min(begin + per_chunk, vectors);
      put(call, msg, begin, end);
      for (std::uint32_t peer = 0; peer < view_.world_size(); ++peer) {
        if (peer != view_.rank && !await(call, peer)) return;
      }
      take<Op>(msg, begin, end);
      ++next_chunk_;
      begin = end;
    } while (begin < vectors);
    peerless::advance_call(m_, view_, call);
  }

  // A call has ended when it returned.
  void finish(peerless::deadline) noexcept {}
  bool synchronize(peerless::host_stream, peerless::deadline) { return true; }

 private:
  static constexpr std::uint32_t place_bytes = 8 << 10;
  struct box {
    peerless::flag_line flags;  // of each place: the number of the chunk in it, and the call it is of
    peerless::vec16 places[2][place_bytes / sizeof(peerless::vec16)];
  };

  static box& box_of(std::byte* segment, std::uint32_t rank) {
    return reinterpret_cast<box*>(segment + peerless::page_bytes)[rank];
  }
  box& box_of(std::uint32_t rank) const { return box_of(memory_->executor_data(), rank); }

  // Vectors begin .. end of the message into the own box, then the flag that covers them.
  template <class T>
  void put(const peerless::call_frame& call, const peerless::message<T>& msg, std::uint64_t begin, std::uint64_t end) {
    box& own = box_of(view_.rank);
    for (std::uint64_t i = begin; i < end; ++i)
      m_.store16_payload(own.places[next_chunk_ % 2] + (i - begin), peerless::load_vector(msg, i));
    auto& flag = own.flags.parity[next_chunk_ % 2];
    m_.store8(&flag.fingerprint, call.fingerprint);
    m_.store8_release(&flag.value, next_chunk_);
  }

  // Waits for a peer's chunk; its flag is acquired then. False: the call has failed, and the session knows.
  bool await(const peerless::call_frame& call, std::uint32_t peer) const {
    const auto& flag = box_of(peer).flags.parity[next_chunk_ % 2];
    peerless::patience waiting;
    for (;;) {
      const std::uint64_t seen = m_.load8_acquire(&flag.value);
      if (seen == next_chunk_) break;
      if (!waiting.poll_again(m_, view_, call, peer, next_chunk_, seen)) return false;
    }
    const std::uint64_t theirs = m_.load8(&flag.fingerprint);
    if (theirs == call.fingerprint) return true;
    peerless::fail_call(m_, view_, call, peerless::errc::call_mismatch, peer, call.fingerprint, theirs);
    return false;
  }

  // Folds the chunk of all boxes in rank order. The own one is read there, too: the message may be its own output.
  template <class Op, class T>
  void take(const peerless::message<T>& msg, std::uint64_t begin, std::uint64_t end) const {
    for (std::uint64_t i = begin; i < end; ++i) {
      peerless::vector_fold<T, Op> sum;
      for (std::uint32_t r = 0; r < view_.world_size(); ++r)
        sum.add(m_.load16_payload(box_of(r).places[next_chunk_ % 2] + (i - begin)));
      peerless::store_vector(msg, i, sum.result());
    }
  }

  static constexpr peerless::cpu_memory m_{};
  std::shared_ptr<peerless::joint_memory<space>> memory_;
  std::optional<space::state<peerless::protocol_state>> protocols_;
  peerless::rank_view view_{};
  std::uint64_t next_chunk_;
};

static_assert(peerless::models_transport<mailbox>());
static_assert(peerless::models_all_reduces<mailbox, peerless::bf16, peerless::op::sum>());

}  // namespace toy
