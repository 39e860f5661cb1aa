#include "shm_states.hpp"

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"

namespace peerless::test {

namespace {

using namespace std::chrono_literals;
using communicator_of_shm = communicator<shm>;

constexpr std::size_t n_elements = 1000;
constexpr float poison = -77;

// A GPU, a stream and two arrays: `in` holds rank + index, `out` poison.
class workplace {
 public:
  explicit workplace(int rank) : memory_(rank, 2 * bytes), rank_(rank) { reset(); }

  cudaStream_t stream() const { return memory_.stream(); }
  const float* in() { return reinterpret_cast<const float*>(memory_.arena()); }
  float* out() { return reinterpret_cast<float*>(memory_.arena() + bytes); }

  void reset() {
    auto* values = reinterpret_cast<float*>(memory_.staging());
    for (std::size_t i = 0; i < n_elements; ++i) {
      values[i] = static_cast<float>(rank_) + static_cast<float>(i);
      values[n_elements + i] = poison;
    }
    memory_.upload(2 * bytes);
    require_cuda(cudaStreamSynchronize(stream()), "upload");
  }
  bool out_is_sum(int world) {
    auto const* values = reinterpret_cast<const float*>(memory_.fetch(2 * bytes)) + n_elements;
    for (std::size_t i = 0; i < n_elements; ++i) {
      if (values[i] != static_cast<float>(world * (world - 1) / 2) + static_cast<float>(world) * static_cast<float>(i))
        return false;
    }
    return true;
  }
  bool out_is_poison() {
    auto const* values = reinterpret_cast<const float*>(memory_.fetch(2 * bytes)) + n_elements;
    for (std::size_t i = 0; i < n_elements; ++i) {
      if (values[i] != poison) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t bytes = n_elements * sizeof(float);
  cuda_memory memory_;
  int rank_;
};

communicator_options options() {
  communicator_options made;
  made.deadline = 20s;
  return made;
}

std::string milliseconds(std::int64_t ns) { return std::to_string(ns / 1000000) + " ms"; }

// The plan that forces a protocol, with the shape of the seed table.
plan forced(const communicator_of_shm& c, protocol_id protocol) {
  for (table_row const& row : c.table()) {
    if (row.protocol == protocol) return {row.transport, protocol, row.shape, "asked for by the test"};
  }
  throw error(errc::unsupported, "the table has no row with this protocol");
}

// Captures `n_calls` calls without running them.
cudaGraphExec_t capture(workplace& w, communicator_of_shm& c, const plan& how, int n_calls) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require_cuda(cudaStreamBeginCapture(w.stream(), cudaStreamCaptureModeThreadLocal), "begin of capture");
  for (int i = 0; i < n_calls; ++i) c.all_reduce_as(how, w.in(), w.out(), n_elements, op::sum{}, w.stream());
  require_cuda(cudaStreamEndCapture(w.stream(), &graph), "end of capture");
  auto const made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  require_cuda(made, "instantiation");
  return executable;
}

}  // namespace

void enqueue_does_not_block(rank_context& context, bootstrap_ref group) {
  workplace w(context.rank());
  communicator_of_shm c(group, options());
  if (context.rank() == 1) std::this_thread::sleep_for(500ms);
  std::int64_t const start = now_ns();
  c.all_reduce(w.in(), w.out(), n_elements, op::sum{}, w.stream());
  std::int64_t const took = now_ns() - start;
  context.require(took < 200'000'000, "all_reduce", "blocked for " + milliseconds(took));
  c.synchronize(w.stream());
  context.require(w.out_is_sum(context.world_size()), "all_reduce", "wrong sum");
}

void first_call_is_captured(rank_context& context, bootstrap_ref group) {
  workplace w(context.rank());
  communicator_of_shm c(group, options());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require_cuda(cudaStreamBeginCapture(w.stream(), cudaStreamCaptureModeGlobal), "begin of capture");
  c.all_reduce(w.in(), w.out(), n_elements, op::sum{}, w.stream());
  require_cuda(cudaStreamEndCapture(w.stream(), &graph), "end of capture");
  require_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiation");
  for (int i = 0; i < 3; ++i) {
    w.reset();
    require_cuda(cudaGraphLaunch(executable, w.stream()), "launch");
    c.synchronize(w.stream());
    context.require(w.out_is_sum(context.world_size()), "a replay", "wrong sum");
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

void replay_outlives_communicator(rank_context& context, bootstrap_ref group) {
  workplace w(context.rank());
  auto c = std::make_unique<communicator_of_shm>(group, options());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require_cuda(cudaStreamBeginCapture(w.stream(), cudaStreamCaptureModeThreadLocal), "begin of capture");
  for (int i = 0; i < 20; ++i) c->all_reduce(w.in(), w.out(), n_elements, op::sum{}, w.stream());
  require_cuda(cudaStreamEndCapture(w.stream(), &graph), "end of capture");
  require_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiation");
  require_cuda(cudaGraphLaunch(executable, w.stream()), "launch");
  c->synchronize(w.stream());
  context.require(w.out_is_sum(context.world_size()), "a replay before", "wrong sum");
  c.reset();
  w.reset();
  std::int64_t const start = now_ns();
  require_cuda(cudaGraphLaunch(executable, w.stream()), "launch after the end");
  require_cuda(cudaStreamSynchronize(w.stream()), "a replay after the end");
  context.require(now_ns() - start < 2'000'000'000, "a replay after the end", "took " + milliseconds(now_ns() - start));
  context.require(w.out_is_poison(), "a replay after the end", "wrote its output");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

void graphs_come_and_go(rank_context& context, bootstrap_ref group) {
  for (protocol_id protocol : {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk}) {
    std::string const where(name_of(protocol));
    workplace w(context.rank());
    auto c = std::make_unique<communicator_of_shm>(group, options());
    plan const how = forced(*c, protocol);
    // Both before anything runs on any rank: instantiation may synchronise a device on which a peer's kernel waits.
    cudaGraphExec_t const short_lived = capture(w, *c, how, 8), long_lived = capture(w, *c, how, 20);
    context.enter_phase(static_cast<std::uint64_t>(protocol));
    for (int rank = 0; rank < context.world_size(); ++rank) {
      context.require(context.wait_for_phase(rank, static_cast<std::uint64_t>(protocol)), where,
                      "a rank did not capture");
    }
    auto const replay = [&](cudaGraphExec_t graph, const char* which) {
      w.reset();
      require_cuda(cudaGraphLaunch(graph, w.stream()), "launch");
      c->synchronize(w.stream());
      context.require(w.out_is_sum(context.world_size()), where, std::string("wrong sum of ") + which);
    };
    replay(short_lived, "the first call, a captured one");
    replay(long_lived, "another graph");
    require_cuda(cudaGraphExecDestroy(short_lived), "cudaGraphExecDestroy");
    w.reset();
    c->all_reduce_as(how, w.in(), w.out(), n_elements, op::sum{}, w.stream());
    c->synchronize(w.stream());
    context.require(w.out_is_sum(context.world_size()), where, "wrong sum of a call after the end of a graph");
    replay(long_lived, "a graph after the end of another");
    c.reset();
    for (int i = 0; i < 3; ++i) {
      w.reset();
      std::int64_t const start = now_ns();
      require_cuda(cudaGraphLaunch(long_lived, w.stream()), "launch after the end");
      require_cuda(cudaStreamSynchronize(w.stream()), "a replay after the end");
      std::int64_t const took = now_ns() - start;
      context.require(took < 1'000'000'000, where, "a replay after the end took " + milliseconds(took));
      context.require(w.out_is_poison(), where, "a replay after the end wrote its output");
    }
    require_cuda(cudaGraphExecDestroy(long_lived), "cudaGraphExecDestroy");
  }
}

void overlapping_calls_are_told(rank_context& context, bootstrap_ref group) {
  workplace w(context.rank());
  cudaStream_t other = nullptr;
  require_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "a second stream");
  communicator_of_shm c(group, options());
  // While rank 1 is late, both of rank 0's kernels are on the device.
  if (context.rank() == 1) std::this_thread::sleep_for(500ms);
  errc told = errc::ok;
  try {
    c.all_reduce(w.in(), w.out(), n_elements, op::sum{}, w.stream());
    c.all_reduce(w.in(), w.out(), n_elements, op::sum{}, context.rank() == 0 ? other : w.stream());
    c.synchronize(w.stream());
    c.synchronize(other);
  } catch (const error& e) {
    told = e.code();
  }
  context.require(told == errc::overlapped, "overlapping calls", "told as " + std::string(describe(told)));
  cudaStreamSynchronize(other);
  cudaStreamDestroy(other);
}

void destroyed_while_waiting(rank_context& context, bootstrap_ref group) {
  workplace w(context.rank());
  auto c = std::make_unique<communicator_of_shm>(group, options());
  if (context.rank() == 1) {
    context.require(context.wait_for_phase(0, 1), "rank 0", "did not destroy its communicator");
    return;
  }
  c->all_reduce(w.in(), w.out(), n_elements, op::sum{}, w.stream());
  std::this_thread::sleep_for(50ms);  // the kernel waits by now
  std::int64_t const start = now_ns();
  c.reset();
  context.require(now_ns() - start < 8'000'000'000, "destruction", "took " + milliseconds(now_ns() - start));
  require_cuda(cudaStreamSynchronize(w.stream()), "the stream after the end");
  context.require(now_ns() - start < 8'000'000'000, "the kernel", "went on for " + milliseconds(now_ns() - start));
  context.require(w.out_is_poison(), "a call that never met its peer", "wrote its output");
  context.enter_phase(1);
}

}  // namespace peerless::test
