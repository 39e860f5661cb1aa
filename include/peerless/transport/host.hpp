// Transport `host`: ranks are CPU threads or processes of one host, arrays are plain memory, staging goes through a
// memfd. The same protocols as on GPUs; what runs where there is none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <peerless/transport/concepts.hpp>
#include <peerless/transport/host_executor.hpp>
#include <peerless/transport/host_space.hpp>
#include <peerless/transport/staging.hpp>

PEERLESS_BEGIN_NAMESPACE

// See concepts.hpp for each member. Calls block: a rank's thread executes them itself.
class host {
 public:
  static constexpr std::string_view name = "host";
  using space = host_space;

  host(bootstrap_ref boot, session<host_space>& group, const communicator_options& options, deadline limit)
      : staging_(boot, group, options, limit), duty_seed_(options.duty_seed) {}

  // Sentinel slots for the smallest messages; then flags, which need no clearing; then the ring.
  selection_table seed_table() const {
    const layout_sizes& sizes = staging_.view().layout.sizes;
    constexpr std::string_view source = "seed: order of magnitude, not measured";
    selection_table rows{
        {0,
         std::min<std::size_t>(8 << 10, sizes.sentinel_slot_bytes),
         type_class::with_sentinel,
         name,
         protocol_id::sentinel,
         {1, 1, 0},
         0,
         source},
        {0, sizes.flagged_slot_bytes, type_class::any, name, protocol_id::flagged, {1, 1, 0}, 0, source},
        {0, ~std::size_t{0}, type_class::any, name, protocol_id::bulk, {1, 1, sizes.bulk_chunk_bytes}, 0, source}};
    // Behind the ring, so for those who ask for it.
    if (sizes.world_size >= least_two_shot_world) {
      rows.push_back({0,
                      ~std::size_t{0},
                      type_class::any,
                      name,
                      protocol_id::two_shot,
                      {1, 1, sizes.bulk_chunk_bytes},
                      0,
                      source});
    }
    return rows;
  }

  const char* refuse(protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) const noexcept {
    return staging_.refuse(protocol, shape, bytes, type);
  }

  template <class Op, class T>
    requires foldable<T, Op>
  void all_reduce(protocol_id protocol, const launch_shape& shape, const message<T>& msg, host_stream) {
    const std::uint64_t fingerprint = fingerprint_of({msg.n_elements, dtype_of<T>, Op::id, protocol});
    run_on_host<T, detail::compiled_op<Op>>(staging_.view(), fingerprint, msg,
                                            blocks_for<T>(protocol, shape, msg.n_elements), shape.chunk_bytes,
                                            duty_seed_);
  }

  const std::string& memory_note() const noexcept { return staging_.memory_note(); }

  // A call has ended when it returned.
  void finish(deadline) noexcept {}
  bool synchronize(host_stream, deadline) { return true; }

 private:
  staging_area<host_space> staging_;
  std::uint64_t duty_seed_;
};

static_assert(models_transport<host>());
static_assert(all_reduces<host, bf16, op::sum> && all_reduces<host, double, op::max>);

PEERLESS_END_NAMESPACE
