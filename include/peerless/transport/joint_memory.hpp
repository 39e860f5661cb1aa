// Host memory that all ranks of a communicator share, as each rank's executor sees it.
#pragma once

#include <memory>
#include <string>

#include <peerless/bootstrap/agreement.hpp>
#include <peerless/core/shared_segment.hpp>
#include <peerless/protocol/layout.hpp>

PEERLESS_BEGIN_NAMESPACE

// A segment and its registration with the executor's memory space. Processes own one each, over the same memfd; ranks
// that are threads share one object, so that a race detector sees one address a word.
//
// A memory space is a tag with the types
//   registration   RAII: made from (std::byte* host, std::size_t bytes); makes host memory reachable by the executor
//   state<T>       RAII: made from (const T& initial); a T in the executor's own memory; get() is its executor address
//   stream_type    what a call is ordered by
//   executes_at_once   whether a call has ended when its function returns
// and the function
//   std::byte* executor_address(std::byte* host)   in registered memory, for the calling thread's device
template <class Space>
class joint_memory {
 public:
  // Collective; `bytes` > 0 and `layout_hash` are equal on all ranks or every rank throws errc::rendezvous_mismatch.
  // Rank 0 creates, runs `initialise(std::byte* host)` and stamps the header; the others attach and check it. A failure
  // anywhere is thrown everywhere. `initialise` leaves the first sizeof(segment_header) bytes alone.
  template <class Initialise>
  static std::shared_ptr<joint_memory> make(bootstrap_ref boot, std::size_t bytes, std::uint64_t layout_hash,
                                            deadline limit, Initialise&& initialise) {
    require_equal(boot, layout_hash, limit);
    std::shared_ptr<joint_memory> memory;
    agree_on(boot, limit, [&] {
      if (boot.rank() != 0) return;
      auto segment = shared_segment::create(bytes);
      initialise(segment.data());
      *reinterpret_cast<segment_header*>(segment.data()) = {segment_magic, layout_hash, bytes};
      memory.reset(new joint_memory(std::move(segment)));
    });
    if (boot.same_process()) {
      // The address of rank 0's pointer is enough: it stays valid until the agreement below has ended.
      const auto owners = all_gather_value(boot, &memory, limit);
      agree_on(boot, limit, [&] {
        if (boot.rank() != 0) memory = *owners[0];
      });
      return memory;
    }
    unique_fd fd = boot.broadcast_fd(boot.rank() == 0 ? memory->segment_.fd() : -1, 0, limit);
    agree_on(boot, limit, [&] {
      if (boot.rank() == 0) return;
      auto segment = shared_segment::attach(std::move(fd), bytes);
      require_header(*reinterpret_cast<const segment_header*>(segment.data()), bytes, layout_hash);
      memory.reset(new joint_memory(std::move(segment)));
    });
    return memory;
  }

  // As this process's host sees it.
  std::byte* host_data() const { return segment_.data(); }
  // As the executor of the calling thread sees it.
  std::byte* executor_data() const { return Space::executor_address(segment_.data()); }
  std::size_t size_bytes() const { return segment_.size_bytes(); }

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
  explicit joint_memory(shared_segment segment)
      : segment_(std::move(segment)), registration_(segment_.data(), segment_.size_bytes()) {}

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
  typename Space::registration registration_;
};

PEERLESS_END_NAMESPACE
