// Host memory that all ranks of a communicator share, as each rank's executor sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <peerless/bootstrap/agreement.hpp>
#include <peerless/core/page_placement.hpp>
#include <peerless/core/shared_segment.hpp>
#include <peerless/transport/memory_rungs.hpp>

PEERLESS_BEGIN_NAMESPACE

// What a joint_memory is to be.
struct memory_request {
  std::size_t bytes = 0;          // positive
  std::uint64_t layout_hash = 0;  // of what every byte means
  memory_origin origin = memory_origin::segment;
  segment_source source{};
  std::vector<memory_place> places{};  // of a segment's ranges; rank 0's count
  bool huge_pages = false;             // asked for in a segment
};

// A segment and its registration with the executor's memory space. Processes own one each, over the same file; ranks
// that are threads share one object, so that a race detector sees one address a word. Registered, and so pinned, for as
// long as the object lives. Space models memory_space (see memory_space.hpp).
template <class Space>
class joint_memory {
 public:
  // Collective; bytes, layout hash and origin are equal on all ranks or every rank throws errc::rendezvous_mismatch.
  // Rank 0 creates, runs `initialise(std::byte* host)` and stamps the header; the others attach and check it. A failure
  // anywhere is thrown everywhere, and leaves nothing behind. `initialise` leaves the first sizeof(segment_header)
  // bytes alone. An allocation is for ranks of one process.
  template <class Initialise>
  static std::shared_ptr<joint_memory> make(bootstrap_ref boot, const memory_request& want, deadline limit,
                                            Initialise&& initialise) {
    require_equal(boot, hash_values({want.layout_hash, want.bytes, static_cast<std::uint64_t>(want.origin)}), limit);
    std::shared_ptr<joint_memory> memory;
    agree_on(boot, limit, [&] {
      if (boot.rank() != 0) return;
      if (want.origin == memory_origin::allocation) {
        memory.reset(new joint_memory(want.bytes, want.source.accounts));
      } else {
        placement_outcome placed;
        auto segment = shared_segment::create(want.bytes, want.source, [&](const shared_segment& made) {
          placed = place_pages(made.fd(), want.bytes, want.places, want.huge_pages);
        });
        memory.reset(new joint_memory(std::move(segment), placed));
      }
      initialise(memory->host_data());
      *reinterpret_cast<segment_header*>(memory->host_data()) = {segment_magic, want.layout_hash, want.bytes};
    });
    if (boot.same_process()) {
      // The address of rank 0's pointer is enough: it stays valid until the agreement below has ended.
      const auto owners = all_gather_value(boot, &memory, limit);
      agree_on(boot, limit, [&] {
        if (boot.rank() != 0) memory = *owners[0];
      });
      return memory;
    }
    struct description {
      segment_kind kind = segment_kind::none;
      placement_outcome placed{};
    };
    const auto made = all_gather_value(
        boot, memory ? description{memory->segment_.kind(), memory->placed_} : description{}, limit)[0];
    unique_fd fd = boot.broadcast_fd(boot.rank() == 0 ? memory->segment_.fd() : -1, 0, limit);
    agree_on(boot, limit, [&] {
      if (boot.rank() == 0) return;
      auto segment = shared_segment::attach(std::move(fd), want.bytes, made.kind);
      require_header(*reinterpret_cast<const segment_header*>(segment.data()), want.bytes, want.layout_hash);
      memory.reset(new joint_memory(std::move(segment), made.placed));
    });
    return memory;
  }

  // As this process's host sees it.
  std::byte* host_data() const { return allocation_ ? allocation_->data() : segment_.data(); }
  // As the executor of the calling thread sees it.
  std::byte* executor_data() const { return Space::executor_address(host_data()); }
  // What it lies in, for people.
  const char* kind() const { return allocation_ ? Space::allocation::name : name_of(segment_.kind()); }

  // What became of the places and huge pages that were asked for.
  const placement_outcome& placed() const { return placed_; }

  // Throws errc::rendezvous_mismatch unless `header` is what this library version would have written.
  static void require_header(const segment_header& header, std::size_t bytes, std::uint64_t layout_hash) {
    if (header.magic == segment_magic && header.layout_hash == layout_hash && header.total_bytes == bytes) return;
    throw error(errc::rendezvous_mismatch,
                "the shared segment has layout " + std::to_string(header.layout_hash) + " and " +
                    std::to_string(header.total_bytes) + " bytes, this rank expects layout " +
                    std::to_string(layout_hash) + " and " + std::to_string(bytes) +
                    " bytes: do all ranks run the same library version with the same options?");
  }

 private:
  joint_memory(shared_segment segment, const placement_outcome& placed)
      : segment_(std::move(segment)), placed_(placed) {
    registration_.emplace(segment_.data(), segment_.size_bytes());
  }
  joint_memory(std::size_t bytes, const account_roots& accounts) {
    require_memory(bytes, accounts);
    allocation_.emplace(bytes);
  }

  static void require_equal(bootstrap_ref boot, std::uint64_t layout_hash, deadline limit) {
    const auto all = all_gather_value(boot, layout_hash, limit);
    for (int r = 0; r < boot.size(); ++r) {
      if (all[static_cast<std::size_t>(r)] == all[0]) continue;
      throw error(errc::rendezvous_mismatch,
                  "rank " + std::to_string(r) +
                      " has another memory layout than rank 0: do all ranks run the same library "
                      "version with the same options?",
                  r);
    }
  }

  shared_segment segment_;
  placement_outcome placed_{};
  std::optional<typename Space::registration> registration_;  // of the segment
  std::optional<typename Space::allocation> allocation_;      // instead of both
};

PEERLESS_END_NAMESPACE
