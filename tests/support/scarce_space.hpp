// A memory space whose registration refuses and whose ranks are on the nodes that a test says, and a host transport
// over it: what a low memlock limit, or an executor that takes no foreign memory, does to a communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include <peerless/transport/concepts.hpp>
#include <peerless/transport/host_executor.hpp>
#include <peerless/transport/host_space.hpp>
#include <peerless/transport/staging.hpp>

namespace peerless::test {

// What is refused in this process, until it is set anew.
struct scarcity {
  static inline std::atomic<std::size_t> most_bytes{~std::size_t{0}};  // of one registration
  static inline std::atomic<errc> refusal{errc::out_of_memory};
  static inline std::atomic<int> registrations{0};  // alive
  static inline thread_local int node = -1;         // of the rank that the thread is
};

// Base: the space whose registrations these are.
template <class Base>
struct scarce : Base {
  static int numa_node(const std::string&) { return scarcity::node; }

  class registration : public Base::registration {
   public:
    registration(std::byte* host, std::size_t bytes) : Base::registration(checked(host, bytes), bytes) {
      ++scarcity::registrations;
    }
    ~registration() { --scarcity::registrations; }
    registration(const registration&) = delete;
    registration& operator=(const registration&) = delete;

   private:
    static std::byte* checked(std::byte* host, std::size_t bytes) {
      if (bytes <= scarcity::most_bytes.load()) return host;
      throw error(scarcity::refusal.load(), "a test does not let " + std::to_string(bytes) + " bytes be pinned");
    }
  };
};

// As transport `host`.
class scarce_host {
 public:
  static constexpr std::string_view name = "scarce";
  using space = scarce<host_space>;

  scarce_host(bootstrap_ref boot, session<space>& group, const communicator_options& options, deadline limit)
      : staging_(boot, group, options, limit) {}

  selection_table seed_table() const {
    const layout_sizes& sizes = staging_.view().layout.sizes;
    return {{0, sizes.sentinel_slot_bytes, type_class::with_sentinel, name, protocol_id::sentinel, {1, 1, 0}, 0, ""},
            {0, sizes.flagged_slot_bytes, type_class::any, name, protocol_id::flagged, {1, 1, 0}, 0, ""},
            {0, ~std::size_t{0}, type_class::any, name, protocol_id::bulk, {4, 1, sizes.bulk_chunk_bytes}, 0, ""}};
  }
  const char* refuse(protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) const noexcept {
    return staging_.refuse(protocol, shape, bytes, type);
  }
  template <class Op, class T>
    requires foldable<T, Op>
  void all_reduce(protocol_id protocol, const launch_shape& shape, const message<T>& msg, host_stream) {
    const std::uint64_t fingerprint = fingerprint_of({msg.n_elements, dtype_of<T>, Op::id, protocol});
    run_on_host<T, Op>(staging_.view(), fingerprint, msg, blocks_for<T>(protocol, shape, msg.n_elements),
                       shape.chunk_bytes, 0);
  }
  const std::string& memory_note() const noexcept { return staging_.memory_note(); }
  void finish(deadline) noexcept {}
  bool synchronize(host_stream, deadline) { return true; }

 private:
  staging_area<space> staging_;
};
static_assert(transport<scarce_host>);

}  // namespace peerless::test
