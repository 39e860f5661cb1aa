// Staging through host memory: the slots, rings and counters of one transport, whoever executes the protocols.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <peerless/select/plan.hpp>
#include <peerless/transport/placement.hpp>
#include <peerless/transport/session.hpp>

PEERLESS_BEGIN_NAMESPACE

// Owned by a transport. Space models memory_space (see memory_space.hpp).
template <class Space>
class staging_area {
 public:
  // Collective; every rank throws the same error if any rank fails. The session outlives this object. Takes the first
  // of memory_rungs() that all ranks can have; what was tried before leaves nothing behind.
  staging_area(bootstrap_ref boot, const session<Space>& group, const communicator_options& options, deadline limit) {
    const segment_layout layout = take_memory(boot, options, limit);
    agree_on(boot, limit, [&] {
      protocols_.emplace(make_protocol_state(options.first_epoch));
      view_.segment = memory_->executor_data();
    });
    view_.controls = group.controls();
    view_.calls = group.calls();
    view_.protocols = protocols_->get();
    view_.layout = layout;
    view_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(options.deadline).count());
    view_.rank = static_cast<std::uint32_t>(boot.rank());
  }

  // One line: how much memory, of what, and why not what was asked for.
  const std::string& memory_note() const noexcept { return note_; }

  // For calls. Valid while this object and the session live.
  const rank_view& view() const noexcept { return view_; }
  void limit_deadline(std::chrono::nanoseconds most) noexcept {
    view_.deadline_ns = std::min(view_.deadline_ns, static_cast<std::uint64_t>(most.count()));
  }

  // Leaves the memory to the end of the process: something may still be using it.
  void abandon() noexcept {
    if (memory_) static_cast<void>(new (std::nothrow) std::shared_ptr<joint_memory<Space>>(memory_));
  }

  // Why a call of `bytes` bytes of `type` cannot take this protocol and shape; nullptr when it can. Pure, no
  // allocation.
  const char* refuse(protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) const noexcept {
    const layout_sizes& sizes = view_.layout.sizes;
    if (shape.blocks == 0 || shape.blocks > max_blocks) return "a launch has 1 to 64 blocks";
    const bool in_chunks = protocol == protocol_id::bulk || protocol == protocol_id::two_shot;
    if (!in_chunks && shape.threads == 0) return "a block has at least one thread";
    switch (protocol) {
      case protocol_id::sentinel:
        if (!has_sentinel(type)) return "the type has no sentinel";
        if (shape.poll_delay_cycles > most_poll_delay_cycles) return "poll_delay_cycles is at most 20000";
        return bytes > sizes.sentinel_slot_bytes ? "the message is larger than a sentinel slot" : nullptr;
      case protocol_id::flagged:
        return bytes > sizes.flagged_slot_bytes ? "the message is larger than a flagged slot" : nullptr;
      case protocol_id::two_shot:
        if (sizes.world_size < least_two_shot_world) return "a two-shot is for three ranks or more";
        [[fallthrough]];
      case protocol_id::bulk:
        if (shape.blocks > sizes.bulk_blocks) return "more blocks than rings";
        if (shape.chunk_bytes == 0 || shape.chunk_bytes % 16 != 0)
          return "chunk_bytes must be a positive multiple of 16";
        if (bytes / shape.chunk_bytes > 0x7fffffff) return "too many chunks";
        return shape.chunk_bytes > sizes.bulk_chunk_bytes ? "the chunk is larger than a place of the ring" : nullptr;
      case protocol_id::copied: return "this transport has no copy engines";
    }
    return "no such protocol";
  }

 private:
  // Walks the rungs; fills memory_ and note_.
  segment_layout take_memory(bootstrap_ref boot, const communicator_options& options, deadline limit) {
    layout_sizes sizes = options.sizes;
    sizes.world_size = static_cast<std::uint32_t>(boot.size());
    segment_layout layout{};
    std::optional<error> first, last;
    auto rung_origin = memory_origin::segment;
    const auto nodes = all_gather_value(boot, Space::numa_node(options.segments.accounts.sysfs), limit);
    for (const memory_rung& rung : memory_rungs(sizes, options.shrink, boot.same_process())) {
      // Fewer bytes do not help where registration is refused whatever their number.
      if (last && last->code() == errc::unsupported && rung.origin == memory_origin::segment) continue;
      try {
        const bool huge = options.huge_pages && rung.origin == memory_origin::segment && rung.sizes == sizes;
        layout = make_layout(rung.sizes, huge ? huge_page_bytes : page_bytes);
        memory_request want{layout.total_bytes, layout_hash(layout), rung.origin, options.segments};
        if (options.numa) want.places = region_places(layout, nodes);
        want.huge_pages = huge;
        memory_ = joint_memory<Space>::make(
            boot, want, limit, [&](std::byte* segment) { initialise_segment(segment, layout, options.first_epoch); });
        rung_origin = rung.origin;
        break;
      } catch (const error& e) {
        if (!is_short_of_memory(e)) throw;
        if (!first) first = e;
        last = e;
      }
    }
    if (!memory_) {
      const bool smaller_failed = last->message() != first->message();
      throw error(last->code(), last->message() + (smaller_failed ? "; before that: " + first->message() : ""),
                  last->rank(), last->native_code());
    }
    note_ = std::to_string(layout.total_bytes) + " bytes of staging memory (" + memory_->kind() + ")";
    if (options.numa && rung_origin == memory_origin::segment) note_ += placement_note(nodes);
    if (options.huge_pages) note_ += ", " + std::to_string(memory_->placed().huge_bytes) + " of them in huge pages";
    if (first) note_ += ", " + peerless::describe(layout.sizes) + ", since " + first->message();
    return layout;
  }

  // For people: where each rank's slots lie; nothing when no node is known.
  std::string placement_note(std::span<const int> nodes) const {
    std::string list;
    bool known = false;
    for (const int node : region_nodes(nodes)) {
      list += ' ';
      list += node >= 0 ? std::to_string(node) : std::string("?");
      known = known || node >= 0;
    }
    if (!known) return {};
    const int refused = memory_->placed().refused;
    if (refused == 0) return ", by rank on NUMA nodes" + list;
    return ", not placed on NUMA nodes" + list + " by rank: " + std::generic_category().message(refused);
  }

  std::shared_ptr<joint_memory<Space>> memory_;
  std::optional<typename Space::template state<protocol_state>> protocols_;
  rank_view view_{};
  std::string note_;
};

// Blocks that a message needs of a shape: at most the shape's, at least one, no block without work. The same on all
// ranks.
template <element T>
constexpr std::uint32_t blocks_for(protocol_id protocol, const launch_shape& shape, std::uint64_t n_elements) {
  const std::uint64_t vectors = (n_elements * sizeof(T) + 15) / 16;
  const std::uint64_t per_block =
      protocol == protocol_id::bulk || protocol == protocol_id::two_shot ? shape.chunk_bytes / 16 : shape.threads;
  const std::uint64_t wanted = (vectors + per_block - 1) / per_block;
  return static_cast<std::uint32_t>(wanted < 1 ? 1 : wanted < shape.blocks ? wanted : shape.blocks);
}

PEERLESS_END_NAMESPACE
