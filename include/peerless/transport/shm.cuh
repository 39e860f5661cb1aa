// Transport `shm`: GPUs exchange through host memory that all of them have mapped. Needs no peer access, only that
// every GPU can reach pinned host memory, so it runs on every box.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <peerless/transport/concepts.hpp>
#include <peerless/transport/copy_bulk.cuh>
#include <peerless/transport/device_space.cuh>
#include <peerless/transport/gpu_shares.hpp>
#include <peerless/transport/kernel_list.cuh>
#include <peerless/transport/multiprocessors.cuh>
#include <peerless/transport/side_stream.cuh>
#include <peerless/transport/staging.hpp>
#include <peerless/transport/staging_kernels.cuh>

PEERLESS_BEGIN_NAMESPACE

// See concepts.hpp for each member. The device that is current at construction is the rank's GPU; where the
// current context has only a part of it (a green context), calls are launched in that context, too.
class shm {
 public:
  static constexpr std::string_view name = "shm";
  using space = device_space;

  shm(bootstrap_ref boot, session<device_space>& group, const communicator_options& options, deadline limit)
      : group_(group), staging_(boot, group, options, limit) {
    const detail::relaxed_capture scope;
    agree_on(boot, limit, [&] {
      detail::require_cuda(cudaGetDevice(&device_), "cudaGetDevice");
      const int compiled_for = detail::kernel_list::instance().load_all();
      int major = 0;
      detail::require_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_),
                           "cudaDeviceGetAttribute");
      // Code of an older architecture does not wait for the kernels before it (see kernel_frame.cuh).
      dependent_launch_ = options.dependent_launch && major >= 9 && compiled_for >= 90;
      side_ = std::make_unique<detail::side_stream>();
      int drives_display = 0;
      detail::require_cuda(cudaDeviceGetAttribute(&drives_display, cudaDevAttrKernelExecTimeout, device_),
                           "cudaDeviceGetAttribute");
      if (drives_display != 0 && options.display_deadline < options.deadline) {
        staging_.limit_deadline(options.display_deadline);
        group_.set_wait_note("waits in kernels end after " + std::to_string(options.display_deadline.count()) +
                             " ms, since this GPU drives a display and its driver ends long kernels");
      }
    });
    agree_on_blocks(boot, limit);
    set_up_copies(boot, options, limit);
  }

  shm(const shm&) = delete;
  shm& operator=(const shm&) = delete;

  // The session has ended: kernels that still wait leave within a look, and launches and replays to come find the
  // poison. At most 4 s. What a kernel may still be using then is left to the end of the process.
  ~shm() {
    bool idle = false;
    try {
      if (!group_.is_forked_child()) {
        const detail::device_scope scope(device_);
        const deadline limit = deadline::after(std::chrono::seconds(2));
        auto* poison = reinterpret_cast<std::uint32_t*>(group_.scratch());
        *poison = static_cast<std::uint32_t>(errc::peer_closed);
        idle = side_->copy(&staging_.view().calls->poison, poison, sizeof(*poison), limit);
        idle = idle && wait_until_idle(deadline::after(std::chrono::seconds(2)));
      }
    } catch (...) {  // the device is lost, or the driver is shutting down
    }
    if (idle) return;
    static_cast<void>(side_.release());
    staging_.abandon();
    if (copies_) copies_->abandon();
    group_.abandon();
  }

  // Measured on two H200 on PCIe Gen5 x16 (bench/NOTES.md); a start for other boxes.
  selection_table seed_table() const {
    const layout_sizes& sizes = staging_.view().layout.sizes;
    constexpr std::string_view source = "seed: two H200, PCIe Gen5 x16";
    const std::size_t sentinel = sizes.sentinel_slot_bytes, flagged = sizes.flagged_slot_bytes;
    const auto blocks = [&](std::uint32_t n) { return std::min(n, sizes.bulk_blocks); };
    const auto chunk = [&](std::uint32_t bytes) { return std::min(bytes, sizes.bulk_chunk_bytes); };
    const auto row = [&](std::size_t bytes_to, type_class types, protocol_id protocol, const launch_shape& shape) {
      return table_row{0, bytes_to, types, name, protocol, shape, 0, source};
    };
    const auto sentinel_row = [&](std::size_t bytes_to, bool clear_early, std::uint32_t poll_delay_cycles) {
      return row(std::min(bytes_to, sentinel), type_class::with_sentinel, protocol_id::sentinel,
                 {64, 256, 0, clear_early, poll_delay_cycles});
    };
    selection_table rows{
        sentinel_row(8 << 10, true, 0),
        sentinel_row(16 << 10, true, 800),
        sentinel_row(64 << 10, false, 800),
        sentinel_row(256 << 10, false, 1400),
        sentinel_row(512 << 10, false, 0),
        row(std::min<std::size_t>(64 << 10, flagged), type_class::any, protocol_id::flagged, {16, 512}),
        row(1 << 20, type_class::any, protocol_id::bulk, {blocks(64), 256, chunk(4 << 10)}),
        row(~std::size_t{0}, type_class::any, protocol_id::bulk, {blocks(64), 256, chunk(8 << 10)})};
    // Behind the ring, so for those who ask for it: not measured among more than two GPUs yet.
    if (sizes.world_size >= least_two_shot_world) {
      rows.push_back(row(~std::size_t{0}, type_class::any, protocol_id::two_shot, {blocks(64), 256, chunk(8 << 10)}));
      rows.back().source = "seed: the shape of the ring, not measured";
    }
    return rows;
  }

  const char* refuse(protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) const noexcept {
    if (protocol == protocol_id::sentinel &&
        (shape.threads % 32 != 0 || shape.threads == 0 || shape.threads > sentinel_most_data_threads)) {
      return "a sentinel block has a multiple of 32 threads, at most 384";
    }
    if (protocol == protocol_id::flagged && (shape.threads % 32 != 0 || shape.threads == 0 || shape.threads > 1024)) {
      return "a flagged block has a multiple of 32 threads, at most 1024";
    }
    if (protocol == protocol_id::copied && shares_.most_sharing > 2)
      return "more than two ranks share a GPU, whose queues are too few for their copies";
    if (protocol == protocol_id::copied) return copies_->refuse(shape, bytes);
    return staging_.refuse(protocol, shape, bytes, type);
  }

  const char* refuse_on(protocol_id protocol, cudaStream_t stream) const {
    return protocol == protocol_id::copied ? copies_->refuse_on(stream) : nullptr;
  }

  template <class Op, class T>
    requires foldable<T, Op>
  void all_reduce(protocol_id protocol, const launch_shape& shape, const message<T>& msg, cudaStream_t stream) {
    const detail::device_scope scope(device_);
    using compiled = detail::compiled_op<Op>;
    const void* kernel = nullptr;
    unsigned threads = shape.threads;
    switch (protocol) {
      case protocol_id::sentinel:
        if constexpr (has_sentinel(dtype_of<T>)) kernel = detail::listed_kernel<&sentinel_kernel<T, compiled>>::use();
        threads += sentinel_duty_threads;
        break;
      case protocol_id::flagged: kernel = detail::listed_kernel<&flagged_kernel<T, compiled>>::use(); break;
      case protocol_id::bulk:
        kernel = detail::listed_kernel<&bulk_kernel<T, compiled>>::use();
        threads = bulk_block_threads;
        break;
      case protocol_id::two_shot:
        kernel = detail::listed_kernel<&two_shot_kernel<T, compiled>>::use();
        threads = two_shot_block_threads;
        break;
      case protocol_id::copied: return copies_->enqueue<Op>(staging_.view(), shape, msg, stream);
    }
    const std::uint64_t fingerprint = fingerprint_of({msg.n_elements, dtype_of<T>, Op::id, protocol});
    call_arguments<T> arguments{staging_.view(),  msg, fingerprint, shape.chunk_bytes, shape.poll_delay_cycles,
                                shape.clear_early};
    void* parameters[] = {&arguments};
    const std::uint32_t blocks = std::min(shares_.most_blocks, blocks_for<T>(protocol, shape, msg.n_elements));
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch{};
    launch.gridDim = dim3(blocks);
    launch.blockDim = dim3(threads);
    launch.stream = stream;
    launch.attrs = &dependent;
    launch.numAttrs = may_depend(protocol, blocks) ? 1 : 0;
    detail::require_cuda(cudaLaunchKernelExC(&launch, kernel, parameters), "launching an all-reduce");
  }

  std::string memory_note() const { return staging_.memory_note() + copies_note_; }

  void finish(deadline limit) noexcept {
    try {
      const detail::device_scope scope(device_);
      wait_until_idle(limit);
    } catch (...) {
    }
  }

  // When the device turns out to be lost, the peers, who wait for its kernels, are told.
  bool synchronize(cudaStream_t stream, deadline limit) {
    try {
      const detail::device_scope scope(device_);
      return detail::drain(stream, limit);
    } catch (const error& e) {
      if (side_->is_lost()) group_.end(e.code(), group_.rank());
      throw;
    }
  }

 private:
  // Collective. Memory that is short leaves the copies off where smaller sizes are allowed.
  void set_up_copies(bootstrap_ref boot, const communicator_options& options, deadline limit) {
    const char* why_off = "calls by copy engines are off: the option copies.depth is 0";
    if (options.copies.depth != 0) {
      try {
        copies_ = std::make_unique<copy_bulk>(boot, options, shares_.most_sharing > 1, limit);
        return;
      } catch (const error& e) {
        if (!options.shrink || !is_short_of_memory(e)) throw;
        why_off = "calls by copy engines are off: no memory for their places";
        copies_note_ = ", no copy engines, since " + e.message();
      }
    }
    copies_ = std::make_unique<copy_bulk>(why_off);
  }

  // Whether a call is launched as a dependent one: a short call, whose waiting blocks leave room for the calls of other
  // communicators, which may stand in another order on the peers.
  bool may_depend(protocol_id protocol, std::uint32_t blocks) const noexcept {
    return dependent_launch_ && protocol == protocol_id::sentinel && 2 * blocks <= multiprocessors_;
  }

  // Waits until every block that has entered a call has left it, at most until the limit.
  bool wait_until_idle(deadline limit) {
    auto* seen = reinterpret_cast<call_state*>(group_.scratch());
    for (;;) {
      if (!side_->copy(seen, staging_.view().calls, sizeof(*seen), limit)) return false;
      if (static_cast<std::uint16_t>(seen->gate >> 48) == static_cast<std::uint16_t>(seen->blocks_left)) return true;
      if (limit.expired()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // Collective; see share_gpus().
  void agree_on_blocks(bootstrap_ref boot, deadline limit) {
    gpu_of_rank mine;
    agree_on(boot, limit, [&] {
      cudaDeviceProp properties;
      detail::require_cuda(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
      static_assert(sizeof(properties.uuid) == sizeof(mine.uuid));
      std::memcpy(mine.uuid.data(), &properties.uuid, sizeof(mine.uuid));
      mine.multiprocessors = detail::usable_multiprocessors(device_);
    });
    shares_ = share_gpus(all_gather_value(boot, mine, limit));
    multiprocessors_ = mine.multiprocessors;
    dependent_launch_ = dependent_launch_ && shares_.most_sharing == 1;  // a waiting kernel would take a peer's place
  }

  session<device_space>& group_;
  staging_area<device_space> staging_;
  std::unique_ptr<detail::side_stream> side_;
  std::unique_ptr<copy_bulk> copies_;
  std::string copies_note_;
  gpu_shares shares_;
  std::uint32_t multiprocessors_ = 0;  // of the current context
  bool dependent_launch_ = false;
  int device_ = 0;
};

static_assert(models_transport<shm>());
static_assert(all_reduces<shm, bf16, op::sum> && all_reduces<shm, double, op::max>);

PEERLESS_END_NAMESPACE
