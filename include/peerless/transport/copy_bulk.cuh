// Bulk calls by copy engines: the places in host memory, the streams of the steps, and how a call is enqueued.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <peerless/select/plan.hpp>
#include <peerless/transport/copy_kernels.cuh>
#include <peerless/transport/copy_lane.cuh>
#include <peerless/transport/device_space.cuh>
#include <peerless/transport/joint_memory.hpp>
#include <peerless/transport/kernel_list.cuh>
#include <peerless/transport/options.hpp>

PEERLESS_BEGIN_NAMESPACE

// Most chunks of a call. Each takes six launches, and a stream holds about a thousand before a launch blocks.
inline constexpr std::uint32_t max_copy_chunks = 256;

// Owned by a transport. Of the device that was current at construction.
class copy_bulk {
 public:
  // There is nothing but refusals, for the reason given; static storage.
  explicit copy_bulk(const char* why_off) : why_off_(why_off) {}

  // Collective; every rank throws the same error if any rank fails. The depth is not 0. `shared`: whether ranks share a
  // GPU.
  copy_bulk(bootstrap_ref boot, const communicator_options& options, bool shared, deadline limit)
      : shared_(shared), layout_(make_copy_layout(options.copies, static_cast<std::uint32_t>(boot.size()))) {
    const memory_request want{layout_.total_bytes, layout_hash(layout_), memory_origin::segment, options.segments};
    memory_ = joint_memory<device_space>::make(
        boot, want, limit, [&](std::byte* segment) { initialise_copy_segment(segment, layout_, options.first_epoch); });
    agree_on(boot, limit, [&] {
      state_.emplace(make_copy_state(layout_.sizes, options.first_epoch));
      segment_ = memory_->executor_data();
      start_.create();
      // One after the other, so that they are dealt to different queues of the hardware. A step waits for its own kind
      // and for steps at most the depth behind it.
      for (std::size_t i = 0; i < n_copy_steps; ++i) lanes_.emplace_back(std::size_t{layout_.sizes.depth});
      const std::size_t buffers = std::size_t{copy_scratch(layout_.sizes.depth)} * (layout_.world_size - 1);
      if (buffers == 0) return;
      scratch_.allocate(buffers * layout_.sizes.chunk_bytes, lane(copy_step::download).stream());
      try {
        warm_up(static_cast<std::uint32_t>(boot.rank()), limit);
      } catch (...) {  // a copy may still be on its way
        abandon();
        throw;
      }
    });
  }
  copy_bulk(const copy_bulk&) = delete;
  copy_bulk& operator=(const copy_bulk&) = delete;
  // Graphs that captured calls still copy when they are replayed, though nobody reads it: then the memory stays until
  // the process ends.
  ~copy_bulk() {
    if (captured_) keep_memory();
  }

  bool is_on() const noexcept { return why_off_ == nullptr; }

  // Leaves everything to the end of the process: something may still be using it.
  void abandon() noexcept {
    if (abandoned_) return;
    abandoned_ = true;
    keep_memory();
    static_cast<void>(new (std::nothrow) detail::owned_event(std::move(start_)));
    static_cast<void>(new (std::nothrow) std::vector<detail::copy_lane>(std::move(lanes_)));
  }

  // Why a call of `bytes` bytes cannot take this shape; nullptr when it can. `blocks` and `threads` are those of a
  // fold.
  const char* refuse(const launch_shape& shape, std::size_t bytes) const noexcept {
    if (!is_on()) return why_off_;
    if (shape.blocks == 0 || shape.blocks > max_blocks) return "a launch has 1 to 64 blocks";
    if (shape.threads == 0 || shape.threads % 32 != 0 || shape.threads > copy_fold_most_threads)
      return "a block that folds has a multiple of 32 threads, at most 512";
    if (shape.chunk_bytes == 0 || shape.chunk_bytes % 16 != 0) return "chunk_bytes must be a positive multiple of 16";
    if (shape.chunk_bytes > layout_.sizes.chunk_bytes) return "the chunk is larger than a place for it";
    if (bytes > std::size_t{max_copy_chunks} * shape.chunk_bytes) return "more than 256 chunks";
    return nullptr;
  }

  // Why a call cannot go onto this stream as it is now: where ranks share a GPU none is captured, since the steps of
  // several ranks' graphs share queues and hold each other up. nullptr when it can. Throws errc::cuda_error.
  const char* refuse_on(cudaStream_t stream) const {
    return shared_ && is_capturing(stream) ? "it cannot be captured where ranks share a GPU" : nullptr;
  }

  // Enqueues one call that refuse() and refuse_on() admit. No allocation; may be captured. Throws errc::cuda_error.
  template <class Op, class T>
  void enqueue(const rank_view& ranks, const launch_shape& shape, const message<T>& msg, cudaStream_t stream) {
    captured_ = captured_ || is_capturing(stream);
    const std::size_t bytes = msg.n_elements * sizeof(T), chunk = shape.chunk_bytes;
    const auto n_chunks = static_cast<std::uint32_t>(std::max<std::size_t>(1, (bytes + chunk - 1) / chunk));
    const bool copies = bytes != 0 && layout_.world_size > 1;
    const copy_view view{ranks, segment_, state_->get(), scratch_.get(), layout_};
    const std::uint64_t fingerprint = fingerprint_of({msg.n_elements, dtype_of<T>, Op::id, protocol_id::copied});
    copy_step_arguments step{view, fingerprint, 0, n_chunks, copies};
    copy_fold_arguments<T> fold{view, msg, shape.chunk_bytes, 0, n_chunks, copies};
    detail::require_cuda(cudaEventRecord(start_.get(), stream), "cudaEventRecord");
    detail::wait_for(lane(copy_step::hand).stream(), start_.get());
    for_each_copy_stage(n_chunks, layout_.sizes.depth, copies,
                        [&](copy_stage stage, std::initializer_list<copy_stage> before) {
                          const detail::copy_lane& on = lane(stage.step);
                          for (const copy_stage& b : before) detail::wait_for(on.stream(), lane(b.step).event(b.n));
                          step.n = fold.n = stage.n;
                          const std::size_t at = stage.n * chunk, length = std::min(chunk, bytes - std::min(at, bytes));
                          switch (stage.step) {
                            case copy_step::hand: launch(hand_kernel(), 1, copy_step_threads, step, on.stream()); break;
                            case copy_step::upload: upload(view, stage.n, msg.in, at, length); break;
                            case copy_step::announce:
                              launch(announce_kernel(), 1, copy_step_threads, step, on.stream());
                              break;
                            case copy_step::await:
                              launch(await_kernel(), 1, copy_step_threads, step, on.stream());
                              break;
                            case copy_step::download: download(view, stage.n, length); break;
                            case copy_step::fold:
                              launch(detail::listed_kernel<&copy_fold_kernel<T, detail::compiled_op<Op>>>::use(),
                                     fold_blocks(shape, length), shape.threads, fold, on.stream());
                              break;
                          }
                          on.record(stage.n);
                        });
    detail::wait_for(stream, lane(copy_step::fold).event(n_chunks - 1));
    launch(detail::listed_kernel<&copy_leave_kernel<copy_step_threads>>::use(), 1, copy_step_threads, step, stream);
  }

 private:
  static const void* hand_kernel() { return detail::listed_kernel<&copy_hand_kernel<copy_step_threads>>::use(); }
  static const void* announce_kernel() {
    return detail::listed_kernel<&copy_announce_kernel<copy_step_threads>>::use();
  }
  static const void* await_kernel() { return detail::listed_kernel<&copy_await_kernel<copy_step_threads>>::use(); }
  // No block without work for its threads, two vectors each.
  static unsigned fold_blocks(const launch_shape& shape, std::size_t length) {
    const std::size_t of_a_block = std::size_t{shape.threads} * 2 * sizeof(vec16);
    return static_cast<unsigned>(
        std::max<std::size_t>(1, std::min<std::size_t>(shape.blocks, (length + of_a_block - 1) / of_a_block)));
  }

  const detail::copy_lane& lane(copy_step step) const { return lanes_[static_cast<std::size_t>(step)]; }

  template <class Arguments>
  static void launch(const void* kernel, unsigned blocks, unsigned threads, Arguments& arguments, cudaStream_t stream) {
    void* parameters[] = {&arguments};
    detail::require_cuda(cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), parameters, 0, stream),
                         "launching a step of an all-reduce");
  }
  static void copy(void* to, const void* from, std::size_t bytes, const detail::copy_lane& on) {
    detail::require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.stream()), "cudaMemcpyAsync");
  }
  void upload(const copy_view& view, std::uint32_t c, const void* in, std::size_t at, std::size_t length) const {
    copy(view.place(view.ranks.rank, c), static_cast<const std::byte*>(in) + at, length, lane(copy_step::upload));
  }
  void download(const copy_view& view, std::uint32_t c, std::size_t length) const {
    for (std::uint32_t i = 1; i < layout_.world_size; ++i) {
      const std::uint32_t peer = (view.ranks.rank + i) % layout_.world_size;
      copy(view.scratch_of(peer, c), view.place(peer, c), length, lane(copy_step::download));
    }
  }

  static bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    detail::require_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  void keep_memory() noexcept {
    scratch_.release();
    if (memory_) static_cast<void>(new (std::nothrow) std::shared_ptr<joint_memory<device_space>>(memory_));
  }

  // The first copies of a stream may allocate, which a call must not.
  void warm_up(std::uint32_t rank, deadline limit) const {
    const detail::relaxed_capture scope;
    std::byte* place = segment_ + layout_.data + std::size_t{rank} * layout_.sizes.depth * layout_.sizes.chunk_bytes;
    copy(scratch_.get(), place, 16, lane(copy_step::download));
    if (!detail::drain(lane(copy_step::download).stream(), limit)) throw error(errc::timeout, "a first copy");
    copy(place, scratch_.get(), 16, lane(copy_step::upload));
    if (!detail::drain(lane(copy_step::upload).stream(), limit)) throw error(errc::timeout, "a first copy");
  }

  bool shared_ = false;
  copy_layout layout_{};
  std::shared_ptr<joint_memory<device_space>> memory_;
  std::optional<device_space::state<copy_state>> state_;
  std::vector<detail::copy_lane> lanes_;  // by copy_step
  detail::stream_memory scratch_;         // before its stream is destroyed
  detail::owned_event start_;
  const char* why_off_ = nullptr;
  std::byte* segment_ = nullptr;
  bool captured_ = false;
  bool abandoned_ = false;
};

PEERLESS_END_NAMESPACE
