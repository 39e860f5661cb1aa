// The contract of a transport: what a backend must offer so that a communicator can use it. Member by member, each with
// a concept of its own, so that a compiler names the one that is missing.
//
// A backend is one header that defines one class and ends in a proof, `static_assert(models_transport<name>())`. There
// is no base class, no registry and no list of backends: a communicator is told its transports as template arguments.
// README.md beside this file adds one, step by step.
//
// An object is one rank's end of a way to move data among all ranks. The rank's communicator makes it, calls it from
// one thread at a time and destroys it; ranks call alike and in the same order, and may differ by one call. Errors are
// peerless::error.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include <peerless/protocol/call.hpp>
#include <peerless/select/plan.hpp>
#include <peerless/transport/memory_space.hpp>
#include <peerless/transport/session.hpp>

PEERLESS_BEGIN_NAMESPACE

// static constexpr std::string_view name: what tables, options and logs call it; unique within a communicator.
template <class X>
concept has_name = requires {
  { X::name } -> std::convertible_to<std::string_view>;
};

// space: where its arrays live and what orders its calls; all transports of one communicator share it.
template <class X>
concept has_space = requires { typename X::space; } && memory_space<typename X::space>;

// X(bootstrap_ref boot, session<space>& group, const communicator_options& options, deadline limit)
//   Collective; blocks at most until the limit; throws the same error on every rank or on none (see agree_on), and then
//   leaves nothing behind. Everything that a call needs is made here: memory, connections, loaded kernels. `group`
//   outlives the object; `boot` and `options` need not. errc::peer_died and rendezvous_timeout end the construction of
//   the communicator; after any other error it tries its next transport. The options have been checked, and are equal
//   on all ranks where options.hpp says so; a transport that is given others than it can use throws
//   errc::invalid_argument or unsupported.
// ~X()
//   Not collective. The session has a verdict by then, so that nothing waits any more; takes seconds at most, and does
//   not throw.
template <class X>
concept has_constructor =
    requires(bootstrap_ref boot, session<typename X::space>& group, const communicator_options& options,
             deadline limit) { X(boot, group, options, limit); };

// selection_table seed_table() const
//   Rows for when nothing was measured, in order of preference; the same on all ranks. At least one row; each has
//   `name` as its transport; sizes are in bytes a rank. Every call that the transport is for fits a row whose protocol
//   and shape refuse() admits. Called once, right after construction. Does not block.
template <class X>
concept has_seed_table = requires(const X& view) {
  { view.seed_table() } -> std::same_as<selection_table>;
};

// const char* refuse(protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) const noexcept
//   Why a call of `bytes` bytes a rank cannot take the protocol and shape, for people, in static storage; nullptr when
//   it can. Asked before every call, and with whatever a user's plan says. Pure, no allocation, never blocks, and the
//   same answer on all ranks. A protocol_id is a name that peers compare: a transport with a way of its own takes the
//   one that comes nearest.
template <class X>
concept has_refuse =
    requires(const X& view, protocol_id protocol, const launch_shape& shape, std::size_t bytes, dtype type) {
      { view.refuse(protocol, shape, bytes, type) } noexcept -> std::same_as<const char*>;
    };

// void finish(deadline limit) noexcept
//   Waits until the calls that are running have ended, at most until the limit. Called once, before destruction, when
//   no call has failed.
template <class X>
concept has_finish = requires(X& x, deadline limit) {
  { x.finish(limit) } noexcept -> std::same_as<void>;
};

// bool synchronize(space::stream_type stream, deadline limit)
//   Waits until everything enqueued on the stream has ended; false at the limit. Throws the executor's own error.
template <class X>
concept has_synchronize = requires(X& x, typename X::space::stream_type stream, deadline limit) {
  { x.synchronize(stream, limit) } -> std::same_as<bool>;
};

// The members that every transport has. One may have in addition
//   const char* refuse_on(protocol_id protocol, stream_type stream) const
//     why a call that refuse() admits cannot go onto this stream as it is now (it is being captured, ...), nullptr when
//     it can; the same answer on all ranks whose streams are in the same state. Does not block.
//   std::string memory_note() const   one line for people about the memory that it took, which describe() shows
template <class X>
concept transport = has_name<X> && has_space<X> && has_constructor<X> && has_seed_table<X> && has_refuse<X> &&
                    has_finish<X> && has_synchronize<X>;

// template <class Op, class T> void all_reduce(protocol_id protocol, const launch_shape& shape, const message<T>& msg,
//                                              space::stream_type stream)
//   Enqueues one call that refuse() admits: out[i] becomes the fold of all ranks' in[i] in rank order, by the rule of
//   vector_fold; nothing else is written. Any count of elements, 0 too; any alignment that T allows; in place or
//   disjoint. Collective, ordered by the stream, does not block, allocates nothing and may be captured. (Where the
//   space executes at once: blocks until the call has ended.) Waits for peers end: by the deadline of the options, and
//   within a look once a verdict is there (see patience.hpp). What a peer did is left in the session (see fail_call),
//   and the call returns; a call that finds the rank poisoned touches nothing. Throws, which ends the communicator,
//   only what kept it from being enqueued. Calls that differ between ranks, in the count, type, operation or protocol,
//   fail on all.
// Constrain it to the types and operations that it is written for: the others are then refused at compile time.
template <class X, class T, class Op>
concept has_all_reduce = requires(X& x, protocol_id protocol, const launch_shape& shape, const message<T>& msg,
                                  typename X::space::stream_type stream) {
  { x.template all_reduce<Op>(protocol, shape, msg, stream) } -> std::same_as<void>;
};

// A transport that can all-reduce T by Op.
template <class X, class T, class Op>
concept all_reduces = transport<X> && element<T> && reduction<Op> && has_all_reduce<X, T, Op>;

// The proof that X models transport. Does not compile when it does not: one error a member that X lacks, which says how
// it is declared. (Of a failed static_assert(transport<X>) nvcc says no more than that it failed.)
template <class X>
consteval bool models_transport() {
  static_assert(has_name<X>, "a transport lacks name: static constexpr std::string_view");
  static_assert(has_seed_table<X>, "a transport lacks seed_table: selection_table seed_table() const");
  static_assert(has_refuse<X>,
                "a transport lacks refuse: const char* refuse(protocol_id, const launch_shape&, std::size_t bytes, "
                "dtype) const noexcept");
  static_assert(has_finish<X>, "a transport lacks finish: void finish(deadline limit) noexcept");
  static_assert(has_space<X>, "a transport lacks space: a type that models memory_space");
  if constexpr (has_space<X>) {
    static_assert(has_constructor<X>,
                  "a transport lacks its constructor: X(bootstrap_ref, session<space>&, const communicator_options&, "
                  "deadline)");
    static_assert(has_synchronize<X>,
                  "a transport lacks synchronize: bool synchronize(space::stream_type, deadline limit)");
  } else if constexpr (requires { typename X::space; }) {
    static_assert(models_memory_space<typename X::space>());
  }
  return transport<X>;
}

// The same for all_reduces.
template <class X, class T, class Op>
consteval bool models_all_reduces() {
  static_assert(models_transport<X>());
  static_assert(element<T> && reduction<Op>, "no element type, or no operation");
  static_assert(has_all_reduce<X, T, Op>,
                "a transport lacks all_reduce for a type and operation: template <class Op, class T> void "
                "all_reduce(protocol_id, const launch_shape&, const message<T>&, space::stream_type)");
  return all_reduces<X, T, Op>;
}

PEERLESS_END_NAMESPACE
