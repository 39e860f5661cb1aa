// How a row set on a GPU is verified and timed: the same code for every transport, NCCL included.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "gpu_buffers.cuh"
#include "gpu_support.cuh"
#include "options.hpp"

namespace peerless::bench {

// What differs between transports. enqueue() puts one all-reduce on the stream and returns; it may be captured. It
// throws errc::unsupported, with no effect and on every rank, for a problem that the transport refuses. wait() returns
// when the stream has ended, and throws when it failed or at the deadline of the run.
template <class B>
concept gpu_backend = requires(B& backend, const problem& p, const void* in, void* out, cudaStream_t stream) {
  { B::name } -> std::convertible_to<std::string_view>;
  { B::rule } -> std::convertible_to<exactness>;
  { backend.describe() } -> std::convertible_to<std::string>;
  { backend.enqueue(p, in, out, stream) } -> std::same_as<void>;
  { backend.wait(stream) } -> std::same_as<void>;
};

template <gpu_backend Backend>
class gpu_arm final : public arm {
 public:
  template <class... Args>
  gpu_arm(bootstrap_ref boot, const options& o, std::shared_ptr<gpu_buffers> buffers, Args&&... args)
      : boot_(boot),
        options_(o),
        buffers_(std::move(buffers)),
        stream_(make_stream()),
        start_(make_event()),
        stop_(make_event()),
        backend_(std::forward<Args>(args)...) {}

  std::string_view name() const override { return Backend::name; }
  std::string describe() const override { return backend_.describe(); }
  timing_mode mode() const override { return options_.captured ? timing_mode::captured : timing_mode::eager; }

  // So many calls that the cost of starting vanishes, so few that large messages end soon.
  sampling plan_samples(const problem& p) override {
    const int usual = p.bytes() < (std::size_t{4} << 20) ? 100 : 20;
    return {options_.iterations.value_or(usual), options_.samples.value_or(23)};
  }

  std::string refuses(const problem& p) override {
    try {
      call(p);
    } catch (const error& e) {
      if (e.code() != errc::unsupported) throw;
      return e.message();
    }
    backend_.wait(stream_.get());
    return {};
  }

  std::uint64_t verify(const problem& p) override {
    buffers_->prepare(p, stream_.get());
    call(p);
    if (options_.check) return verify_output(p);
    backend_.wait(stream_.get());
    return 0;
  }

  std::uint64_t verify_output(const problem& p) override {
    buffers_->judge(p, Backend::rule, stream_.get());
    backend_.wait(stream_.get());
    return buffers_->n_wrong();
  }

  std::vector<double> time(const problem& p, sampling s) override {
    for (int i = 0; i < options_.warmup.value_or(5); ++i) call(p);
    backend_.wait(stream_.get());
    const auto calls = [&](cudaStream_t) {
      for (int i = 0; i < s.n_calls; ++i) call(p);
    };
    executable_graph graph;
    if (options_.captured) graph = capture(stream_.get(), calls);
    std::vector<double> samples;
    for (int i = 0; i < n_dropped_samples + s.n_samples; ++i) {
      backend_.wait(stream_.get());
      boot_.barrier(deadline::after(options_.deadline()));
      for (int k = 0; k < n_aligning_calls; ++k) call(p);
      check_cuda(cudaEventRecord(start_.get(), stream_.get()), "recording an event");
      if (options_.captured) {
        check_cuda(cudaGraphLaunch(graph.get(), stream_.get()), "launching a graph");
      } else {
        calls(stream_.get());
      }
      check_cuda(cudaEventRecord(stop_.get(), stream_.get()), "recording an event");
      backend_.wait(stream_.get());
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "time between events");
      if (i >= n_dropped_samples) samples.push_back(static_cast<double>(milliseconds) * 1e3 / s.n_calls);
    }
    // Destroying a graph may wait for all kernels of the device: where ranks share it, for a peer's next call as well,
    // which waits for this rank. So nobody goes on before all have done it.
    graph = {};
    boot_.barrier(deadline::after(options_.deadline()));
    return samples;
  }

 private:
  void call(const problem& p) { backend_.enqueue(p, buffers_->input(p), buffers_->output(), stream_.get()); }

  bootstrap_ref boot_;
  const options& options_;
  std::shared_ptr<gpu_buffers> buffers_;
  cuda_stream stream_;
  cuda_event start_, stop_;
  Backend backend_;
};

}  // namespace peerless::bench
