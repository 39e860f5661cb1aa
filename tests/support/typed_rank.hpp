// The one class that a backend instantiates: a rank_communicator over a communicator type and its memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <peerless/core/error.hpp>

#include "rank_communicator.hpp"

namespace peerless::test {

// A backend is described by
//   static constexpr std::string_view name;
//   using communicator = peerless::communicator<...>;
//   using memory = ...;   // host_memory or cuda_memory: arena, stream, capture
// and, if another protocol is to run in the place of one that the tests ask for,
//   static protocol_id stand_in(protocol_id);
//   static void adjust(plan&, std::size_t bytes);   // a forced plan, for what stands in
// and, to be compiled sooner,
//   static constexpr bool floats_only = true;       // no integer types
template <class Backend>
constexpr bool floats_only_in() {
  if constexpr (requires { Backend::floats_only; }) return Backend::floats_only;
  return false;
}
template <class Backend>
protocol_id stand_in_of(protocol_id asked) {
  if constexpr (requires { Backend::stand_in(asked); }) asked = Backend::stand_in(asked);
  return asked;
}

template <class Backend>
class typed_rank final : public rank_communicator {
 public:
  // The memory first: allocating may synchronise a device, which must not happen while peers' kernels run.
  typed_rank(bootstrap_ref group, const communicator_options& options, std::size_t arena_bytes)
      : memory_(group.rank(), arena_bytes), communicator_(group, options) {}

  int rank() const override { return communicator_.rank(); }
  int world_size() const override { return communicator_.world_size(); }
  plan plan_for(std::size_t bytes, dtype type) const override { return communicator_.plan(bytes, type); }
  plan plan_with(protocol_id asked) const override {
    protocol_id const protocol = stand_in_of<Backend>(asked);
    for (table_row const& row : communicator_.table()) {
      if (row.protocol == protocol) return {row.transport, protocol, row.shape, "asked for by the test"};
    }
    throw error(errc::unsupported, "the table has no row with this protocol");
  }
  failure status() const override { return communicator_.status(); }
  void check() const override { communicator_.check(); }
  void synchronize() override { communicator_.synchronize(memory_.stream()); }
  void abort() override { communicator_.abort(); }
  std::string describe() const override { return communicator_.describe(); }

  void all_reduce(const call_arguments& asked) override {
    call_arguments call = asked;
    if constexpr (requires { Backend::adjust(*call.forced, std::size_t{}); }) {
      if (call.forced) Backend::adjust(*call.forced, call.n_elements * size_bytes(call.type));
    }
    switch (call.type) {
      case dtype::f8_e4m3: return with_type<f8_e4m3>(call);
      case dtype::f8_e5m2: return with_type<f8_e5m2>(call);
      case dtype::f16: return with_type<f16>(call);
      case dtype::bf16: return with_type<bf16>(call);
      case dtype::f32: return with_type<float>(call);
      case dtype::f64: return with_type<double>(call);
      case dtype::i32: return with_type<std::int32_t>(call);
      case dtype::u32: return with_type<std::uint32_t>(call);
      case dtype::i8: return with_type<std::int8_t>(call);
      case dtype::u8: return with_type<std::uint8_t>(call);
      case dtype::i64: return with_type<std::int64_t>(call);
      case dtype::u64: return with_type<std::uint64_t>(call);
    }
    throw error(errc::unsupported, "no such type in the tests");
  }

  std::byte* arena() override { return memory_.arena(); }
  std::byte* staging() override { return memory_.staging(); }
  void upload(std::size_t bytes) override { memory_.upload(bytes); }
  const std::byte* fetch(std::size_t bytes) override {
    synchronize();
    return memory_.fetch(bytes);
  }
  int capture(const std::function<void()>& enqueue) override { return memory_.capture(enqueue); }
  void replay(int graph) override { memory_.replay(graph); }

 private:
  template <class T>
  void with_type(const call_arguments& call) {
    if constexpr (!(floats_only_in<Backend>() && std::is_integral_v<T>)) return with_any_op<T>(call);
    throw error(errc::unsupported, "this backend is compiled without integers");
  }

  template <class T>
  void with_any_op(const call_arguments& call) {
    switch (call.op) {
      case reduce_op::sum: return with_op<T>(call, op::sum{});
      case reduce_op::min: return with_op<T>(call, op::min{});
      case reduce_op::max: return with_op<T>(call, op::max{});
      case reduce_op::prod: return with_op<T>(call, op::prod{});
      case reduce_op::avg: return with_op<T>(call, op::avg{});
    }
    throw error(errc::unsupported, "no such operation in the tests");
  }

  template <class T, class Op>
  void with_op(const call_arguments& call, Op operation) {
    auto const* in = reinterpret_cast<const T*>(call.in);
    auto* out = reinterpret_cast<T*>(call.out);
    if (call.forced) {
      communicator_.all_reduce_as(*call.forced, in, out, call.n_elements, operation, memory_.stream());
    } else {
      communicator_.all_reduce(in, out, call.n_elements, operation, memory_.stream());
    }
  }

  typename Backend::memory memory_;
  typename Backend::communicator communicator_;
};

// Describes a backend to the cases.
template <class Backend>
backend describe_backend() {
  return {
      Backend::name,
      Backend::memory::captures,
      Backend::memory::on_device,
      [](dtype type) { return !floats_only_in<Backend>() || type > dtype::u64; },
      &stand_in_of<Backend>,
      [](bootstrap_ref group, const communicator_options& options, std::size_t arena_bytes) {
        return std::unique_ptr<rank_communicator>(std::make_unique<typed_rank<Backend>>(group, options, arena_bytes));
      }};
}

}  // namespace peerless::test
