// The rows of one transport of host memory: host memory among processes or threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <peerless/communicator.hpp>

#include "communicator_settings.hpp"
#include "host_rows.hpp"
#include "reference.hpp"

namespace peerless::bench {

// Page-aligned memory whose pages are there from the start.
class host_buffer {
 public:
  explicit host_buffer(std::size_t bytes)
      : bytes_(std::max<std::size_t>(bytes, 1)), data_(static_cast<std::byte*>(::operator new(bytes_, alignment))) {
    std::memset(data_, poison_byte, bytes_);
  }
  host_buffer(const host_buffer&) = delete;
  host_buffer& operator=(const host_buffer&) = delete;
  ~host_buffer() { ::operator delete(data_, alignment); }

  std::byte* data() const { return data_; }

 private:
  static constexpr std::align_val_t alignment{4096};
  std::size_t bytes_;
  std::byte* data_;
};

// One rank's rows of a transport of host memory.
template <transport X>
class host_arm final : public arm {
 public:
  host_arm(bootstrap_ref boot, const options& o, std::size_t max_bytes)
      : boot_(boot), options_(o), in_(max_bytes), out_(max_bytes), comm_(boot, communicator_settings(o)) {
    keep_protocol(comm_, o);
  }

  std::string_view name() const override { return X::name; }
  std::string describe() const override { return comm_.describe(); }
  timing_mode mode() const override { return timing_mode::host; }

  std::string refuses(const problem& p) override {
    try {
      static_cast<void>(comm_.plan(p.bytes(), p.type));
    } catch (const error& e) {
      if (e.code() != errc::unsupported) throw;
      return e.message();
    }
    return {};
  }

  std::uint64_t verify(const problem& p) override {
    with_element(p.type, [&]<class T>() {
      T* to = reinterpret_cast<T*>(p.in_place ? out_.data() : in_.data());
      for (std::size_t i = 0; i < p.n_elements; ++i) to[i] = input_value<T>(p.seed, boot_.rank(), i);
    });
    if (!p.in_place) std::memset(out_.data(), poison_byte, p.bytes());
    call(p);
    return options_.check ? verify_output(p) : 0;
  }

  std::uint64_t verify_output(const problem& p) override {
    return with_types(p.type, p.operation, [&]<class T, class Op>() {
      const T* got = reinterpret_cast<const T*>(out_.data());
      std::uint64_t n_wrong = 0;
      for (std::size_t i = 0; i < p.n_elements; ++i) {
        n_wrong += is_right<T, Op>(exactness::rank_order, got[i], p.seed, boot_.size(), i) ? 0 : 1;
      }
      return n_wrong;
    });
  }

  // A sample of about 4 ms, so that the clock and the start do not show, and fewer samples of slow calls, so that a run
  // stays short: CPUs differ by far more than GPUs do.
  sampling plan_samples(const problem& p) override {
    double slowest_us = 1;
    for (const double us : all_gather_value(boot_, sample(p, 3), limit())) slowest_us = std::max(slowest_us, us);
    const int n_calls = options_.iterations.value_or(static_cast<int>(std::clamp(4e3 / slowest_us, 1.0, 200.0)));
    const double samples_in_time = 300e3 / (n_calls * slowest_us);
    return {n_calls, options_.samples.value_or(static_cast<int>(std::clamp(samples_in_time, 5.0, 23.0)))};
  }

  std::vector<double> time(const problem& p, sampling s) override {
    for (int i = 0; i < options_.warmup.value_or(1); ++i) call(p);
    std::vector<double> samples;
    for (int i = 0; i < n_dropped_samples + s.n_samples; ++i) {
      const double us = sample(p, s.n_calls);
      if (i >= n_dropped_samples) samples.push_back(us);
    }
    return samples;
  }

 private:
  using clock = std::chrono::steady_clock;

  deadline limit() const { return deadline::after(options_.deadline()); }

  void call(const problem& p) {
    with_types(p.type, p.operation, [&]<class T, class Op>() {
      T* out = reinterpret_cast<T*>(out_.data());
      const T* in = p.in_place ? out : reinterpret_cast<const T*>(in_.data());
      comm_.all_reduce(in, out, p.n_elements, Op{}, {});
    });
  }

  // us a call.
  double sample(const problem& p, int n_calls) {
    boot_.barrier(limit());
    for (int i = 0; i < n_aligning_calls; ++i) call(p);
    const clock::time_point start = clock::now();
    for (int i = 0; i < n_calls; ++i) call(p);
    return std::chrono::duration<double, std::micro>(clock::now() - start).count() / n_calls;
  }

  bootstrap_ref boot_;
  const options& options_;
  host_buffer in_, out_;
  communicator<X> comm_;
};

// Gives a transport of host memory rows: `const auto rows = rows_of<X>();` at namespace scope, in one source of the
// program. --transports may name it then.
template <transport X>
host_rows rows_of() {
  return host_rows(X::name, [](bootstrap_ref boot, const options& o, std::size_t max_bytes) {
    return std::unique_ptr<arm>(std::make_unique<host_arm<X>>(boot, o, max_bytes));
  });
}

}  // namespace peerless::bench
