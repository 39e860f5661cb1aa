// The contract of a transport: what a backend must offer so that a communicator can use it.
//
// A backend is one header that defines one class and ends in a proof, `static_assert(transport<name>)`. There is no
// base class, no registry and no list of backends: a communicator is told its transports as template arguments.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include <peerless/protocol/call.hpp>
#include <peerless/select/plan.hpp>
#include <peerless/transport/session.hpp>

PEERLESS_BEGIN_NAMESPACE

// Where an executor's arrays live and what orders its calls. See joint_memory.hpp for each member.
template <class S>
concept memory_space = requires(std::byte* host, const typename S::allocation& own, const std::string& sysfs) {
  typename S::stream_type;
  typename S::registration;
  { S::allocation::name } -> std::convertible_to<const char*>;
  { own.data() } -> std::same_as<std::byte*>;
  typename S::template state<call_state>;
  { S::executes_at_once } -> std::convertible_to<bool>;
  { S::executor_address(host) } -> std::same_as<std::byte*>;
  { S::numa_node(sysfs) } -> std::same_as<int>;
};

// One rank's end of a way to move data among all ranks. Member by member:
//   name            the name in tables, options and logs; static storage
//   space           where its arrays live; all transports of one communicator share it
//   X(boot, group, options, limit)
//                   collective, at most until the limit; throws the same error on every rank or on none.
//                   Everything that a call needs is made here: memory, connections, loaded kernels. `group` outlives
//                   the transport.
//   seed_table()    rows for when nothing was measured, in order of preference; the same on all ranks
//   refuse(...)     why a call cannot take a protocol and shape, nullptr when it can; pure, no allocation, and the same
//                   answer on all ranks
//   finish(limit)   waits until the calls that are running have ended, at most until the limit; never throws
//   synchronize(stream, limit)
//                   waits until everything enqueued on the stream has ended; false at the limit
// A transport may have memory_note(): one line for people about the memory that it took.
template <class X>
concept transport =
    requires {
      { X::name } -> std::convertible_to<std::string_view>;
      requires memory_space<typename X::space>;
    } &&
    std::constructible_from<X, bootstrap_ref, session<typename X::space>&, const communicator_options&, deadline> &&
    requires(X& x, const X& view, protocol_id protocol, launch_shape shape, std::size_t bytes, dtype type,
             typename X::space::stream_type stream, deadline limit) {
      { view.seed_table() } -> std::same_as<selection_table>;
      { view.refuse(protocol, shape, bytes, type) } noexcept -> std::same_as<const char*>;
      { x.finish(limit) } noexcept -> std::same_as<void>;
      { x.synchronize(stream, limit) } -> std::same_as<bool>;
    };

// A transport that can all-reduce T by Op. `all_reduce<Op>(protocol, shape, msg, stream)` enqueues one call that
// refuse() admits; it is collective, ordered by the stream, does not block (a host transport, whose stream executes at
// once, blocks until the call has ended), allocates nothing and may be captured. Failures of peers are left in the
// session.
template <class X, class T, class Op>
concept all_reduces =
    transport<X> && element<T> && reduction<Op> &&
    requires(X& x, protocol_id protocol, launch_shape shape, message<T> msg, typename X::space::stream_type stream) {
      { x.template all_reduce<Op>(protocol, shape, msg, stream) } -> std::same_as<void>;
    };

PEERLESS_END_NAMESPACE
