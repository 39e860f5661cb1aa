#include "copied_states.hpp"

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"

namespace peerless::test {

namespace {

using namespace std::chrono_literals;
using communicator_of_shm = communicator<shm>;

constexpr std::size_t n_elements = 300'001;  // 19 chunks of 64 KiB, the last one short
constexpr std::size_t bytes = n_elements * sizeof(float);
constexpr std::uint32_t chunk_bytes = 64 << 10;
constexpr float poison = -77;

plan copied_plan() { return {shm::name, protocol_id::copied, {4, 256, chunk_bytes}, "asked for by the test"}; }
plan bulk_plan() { return {shm::name, protocol_id::bulk, {16, 256, 8 << 10}, "asked for by the test"}; }

communicator_options options() {
  communicator_options made;
  made.deadline = 20s;
  made.copies = {4, chunk_bytes};
  return made;
}

// A GPU, a stream and two arrays: `in` holds rank + index modulo 1000 + salt, `out` poison.
class place_of_work {
 public:
  explicit place_of_work(int rank) : memory_(rank, 2 * stride), rank_(rank) { reset(0); }

  cudaStream_t stream() const { return memory_.stream(); }
  const float* in() { return reinterpret_cast<const float*>(memory_.arena()); }
  float* out() { return reinterpret_cast<float*>(memory_.arena() + stride); }

  void reset(int salt) {
    auto* values = reinterpret_cast<float*>(memory_.staging());
    for (std::size_t i = 0; i < n_elements; ++i) {
      values[i] = value(rank_, i, salt);
      values[stride / sizeof(float) + i] = poison;
    }
    memory_.upload(2 * stride);
    require_cuda(cudaStreamSynchronize(stream()), "upload");
  }
  // Elements of the output that are not `expected(i)`.
  template <class Expected>
  std::size_t n_wrong(Expected&& expected) {
    auto const* values = reinterpret_cast<const float*>(memory_.fetch(2 * stride)) + stride / sizeof(float);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n_elements; ++i) wrong += values[i] != expected(i);
    return wrong;
  }
  void require_sum(rank_context& context, int salt, const std::string& where) {
    std::size_t const wrong = n_wrong([&](std::size_t i) {
      float sum = 0;
      for (int r = 0; r < context.world_size(); ++r) sum += value(r, i, salt);
      return sum;
    });
    context.require(wrong == 0, where, std::to_string(wrong) + " elements are wrong");
  }
  void require_untouched(rank_context& context, const std::string& where) {
    context.require(n_wrong([](std::size_t) { return poison; }) == 0, where, "wrote its output");
  }

 private:
  static constexpr std::size_t stride = (bytes + 255) / 256 * 256;
  static float value(int rank, std::size_t i, int salt) {
    return static_cast<float>(rank + static_cast<int>(i % 1000) + salt);
  }
  cuda_memory memory_;
  int rank_;
};

class captured_calls {
 public:
  template <class Enqueue>
  captured_calls(cudaStream_t stream, cudaStreamCaptureMode mode, Enqueue&& enqueue) {
    require_cuda(cudaStreamBeginCapture(stream, mode), "begin of capture");
    enqueue();
    require_cuda(cudaStreamEndCapture(stream, &graph_), "end of capture");
    require_cuda(cudaGraphInstantiate(&executable_, graph_, 0), "instantiation");
    require_cuda(cudaGraphUpload(executable_, stream), "upload of a graph");
    require_cuda(cudaStreamSynchronize(stream), "upload of a graph");
  }
  captured_calls(const captured_calls&) = delete;
  captured_calls& operator=(const captured_calls&) = delete;
  ~captured_calls() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void replay(cudaStream_t stream) const { require_cuda(cudaGraphLaunch(executable_, stream), "launch of a graph"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

std::string milliseconds(std::int64_t ns) { return std::to_string(ns / 1000000) + " ms"; }

}  // namespace

void replays_mix_with_calls(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  communicator_of_shm c(group, options());
  auto const call = [&](const plan& choice) {
    c.all_reduce_as(choice, w.in(), w.out(), n_elements, op::sum{}, w.stream());
  };
  captured_calls const graph(w.stream(), cudaStreamCaptureModeThreadLocal, [&] {
    call(copied_plan());
    call(bulk_plan());
    c.all_reduce_as(copied_plan(), w.in(), w.out(), 1000, op::sum{}, w.stream());  // one chunk
    call(copied_plan());
  });
  for (int i = 0; i < 200; ++i) {
    bool const look = i % 20 == 0;
    if (look) w.reset(i);
    if (i % 3 == 0) call(copied_plan());
    graph.replay(w.stream());
    if (i % 5 == 0) call(bulk_plan());
    if (i % 7 == 0) c.all_reduce(w.in(), w.out(), 100, op::sum{}, w.stream());
    if (!look) continue;
    c.synchronize(w.stream());
    w.require_sum(context, i, "replay " + std::to_string(i));
  }
  c.synchronize(w.stream());
  w.require_sum(context, 180, "the last replay");
}

void first_copied_call_is_captured(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  communicator_of_shm c(group, options());
  captured_calls const graph(w.stream(), cudaStreamCaptureModeGlobal, [&] {
    c.all_reduce_as(copied_plan(), w.in(), w.out(), n_elements, op::sum{}, w.stream());
  });
  for (int i = 0; i < 3; ++i) {
    w.reset(i);
    graph.replay(w.stream());
    c.synchronize(w.stream());
    w.require_sum(context, i, "a replay");
  }
}

void copies_outlive_communicator(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  auto c = std::make_unique<communicator_of_shm>(group, options());
  captured_calls const graph(w.stream(), cudaStreamCaptureModeThreadLocal, [&] {
    for (int i = 0; i < 5; ++i) c->all_reduce_as(copied_plan(), w.in(), w.out(), n_elements, op::sum{}, w.stream());
  });
  graph.replay(w.stream());
  c->synchronize(w.stream());
  w.require_sum(context, 0, "a replay before");
  c.reset();
  w.reset(1);
  std::int64_t const start = now_ns();
  graph.replay(w.stream());
  require_cuda(cudaStreamSynchronize(w.stream()), "a replay after the end");
  context.require(now_ns() - start < 2'000'000'000, "a replay after the end", "took " + milliseconds(now_ns() - start));
  w.require_untouched(context, "a replay after the end");
}

void many_calls_without_peer(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  communicator_options wanted = options();
  wanted.deadline = 600ms;
  communicator_of_shm c(group, wanted);
  captured_calls const graph(w.stream(), cudaStreamCaptureModeThreadLocal, [&] {
    for (int i = 0; i < 160; ++i) c.all_reduce_as(copied_plan(), w.in(), w.out(), n_elements, op::sum{}, w.stream());
  });
  if (context.rank() == 1) {
    context.require(context.wait_for_phase(0, 1), "rank 0", "was not told");
    return;
  }
  std::int64_t const start = now_ns();
  graph.replay(w.stream());
  errc told = errc::ok;
  try {
    c.synchronize(w.stream());
  } catch (const error& e) {
    told = e.code();
  }
  std::int64_t const took = now_ns() - start;
  context.require(told == errc::timeout, "calls without a peer", "told as " + std::string(describe(told)));
  context.require(took > 500'000'000 && took < 1'500'000'000, "calls without a peer", "took " + milliseconds(took));
  w.require_untouched(context, "calls without a peer");
  context.enter_phase(1);
}

void ring_meets_copies(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  communicator_of_shm c(group, options());
  std::int64_t const start = now_ns();
  errc told = errc::ok;
  std::string text;
  try {
    c.all_reduce_as(context.rank() == 0 ? copied_plan() : bulk_plan(), w.in(), w.out(), n_elements, op::sum{},
                    w.stream());
    c.synchronize(w.stream());
  } catch (const error& e) {
    told = e.code();
    text = e.what();
  }
  context.require(told == errc::call_mismatch, "calls that differ", "told as " + std::string(describe(told)));
  context.require(text.find("copied") != std::string::npos && text.find("bulk") != std::string::npos,
                  "calls that differ", "told as " + text);
  context.require(now_ns() - start < 5'000'000'000, "calls that differ",
                  "told after " + milliseconds(now_ns() - start));
}

void refusals_of_copies(rank_context& context, bootstrap_ref group) {
  place_of_work w(context.rank());
  communicator_of_shm with(group, options());
  communicator_options none = options();
  none.copies.depth = 0;
  communicator_of_shm without(group, none);
  auto const told = [&](communicator_of_shm& c, launch_shape shape, std::size_t n) {
    try {
      c.all_reduce_as(plan{shm::name, protocol_id::copied, shape, ""}, w.in(), w.out(), n, op::sum{}, w.stream());
    } catch (const error& e) {
      return e.code();
    }
    return errc::ok;
  };
  auto const refused = [&](communicator_of_shm& c, launch_shape shape, std::size_t n, const char* what) {
    context.require(told(c, shape, n) == errc::unsupported, what, "was not refused");
  };
  refused(without, {4, 256, chunk_bytes}, 1000, "a call without places");
  refused(with, {0, 256, chunk_bytes}, 1000, "no blocks");
  refused(with, {4, 48, chunk_bytes}, 1000, "half a warp");
  refused(with, {4, 1024, chunk_bytes}, 1000, "too many threads");
  refused(with, {4, 256, 0}, 1000, "no chunk");
  refused(with, {4, 256, 24}, 1000, "a chunk that is no multiple of 16");
  refused(with, {4, 256, 2 * chunk_bytes}, 1000, "a chunk larger than a place");
  refused(with, {4, 256, 16}, 256 * 4 + 1, "too many chunks");
  context.require(told(with, {4, 256, 16}, 256 * 4) == errc::ok, "as many chunks as may be", "was refused");
  with.synchronize(w.stream());
  context.require(with.status().code == errc::ok, "a communicator after refusals", "has failed");
}

}  // namespace peerless::test
