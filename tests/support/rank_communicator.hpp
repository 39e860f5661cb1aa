// One rank's communicator as the tests see it, whatever its transport: element type, operation and protocol are
// run-time values here, so that every case is compiled once and each backend instantiates one class.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <peerless/bootstrap/bootstrap_ref.hpp>
#include <peerless/communicator.hpp>
#include <peerless/core/types.hpp>

namespace peerless::test {

// The arguments of one all_reduce. Addresses are of the backend's memory.
struct call_arguments {
  dtype type;
  reduce_op op;
  const std::byte* in;
  std::byte* out;
  std::size_t n_elements;
  std::optional<plan> forced{};  // all_reduce_as instead of all_reduce
};

// A communicator with the memory and the stream that it works on. Used by one thread. Errors are peerless::error.
class rank_communicator {
 public:
  virtual ~rank_communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Enqueues; a host backend has finished when it returns.
  virtual void all_reduce(const call_arguments& call) = 0;
  // What would run a call of this size.
  virtual plan plan_for(std::size_t bytes, dtype type) const = 0;
  // A plan that asks for a protocol, with the transport and shape that the table has for it.
  virtual plan plan_with(protocol_id protocol) const = 0;
  virtual failure status() const = 0;
  virtual void check() const = 0;
  // Waits for everything enqueued, bounded.
  virtual void synchronize() = 0;
  virtual void abort() = 0;
  virtual std::string describe() const = 0;

  // The arena: `capacity_bytes` of the backend's memory at arena(), 256-byte aligned. upload() puts the first `bytes`
  // of `from` there (staging() is a good source), in stream order; fetch() waits and returns the first `bytes` as the
  // host sees them, valid until the next upload. Neither allocates, so peers' kernels may be running.
  virtual std::byte* arena() = 0;
  virtual std::byte* staging() = 0;
  virtual void upload(std::size_t bytes) = 0;
  virtual const std::byte* fetch(std::size_t bytes) = 0;

  // Records the calls made by `enqueue` without running them and returns an id; replay() enqueues them. Backends
  // without capture throw errc::unsupported.
  virtual int capture(const std::function<void()>& enqueue) = 0;
  virtual void replay(int graph) = 0;
};

// A kind of communicator.
struct backend {
  std::string_view name;
  bool captures;   // capture and replay work
  bool on_device;  // buffers are of a GPU
  bool (*reduces)(dtype type);
  // What runs when the tests ask for a protocol: a backend may put another in the place of one.
  protocol_id (*stand_in)(protocol_id);
  std::unique_ptr<rank_communicator> (*make)(bootstrap_ref group, const communicator_options& options,
                                             std::size_t arena_bytes);
};

// The backend that this program was built for: each has one file that defines it.
const backend& backend_under_test();

}  // namespace peerless::test
