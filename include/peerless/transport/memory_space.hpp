// The contract of a memory space: where an executor's arrays live, what orders its calls, and how it reaches memory
// that ranks share. One concept a member, so that a compiler names the one that is missing.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include <peerless/protocol/control.hpp>

PEERLESS_BEGIN_NAMESPACE

// A memory space is a tag: nobody makes one, all members are types and static ones. They are used by the rank's thread
// while a communicator is made or destroyed; of a call only `stream_type` and `executes_at_once` are part. Where
// nothing else is said a member may be called by the threads of several ranks at a time, and throws peerless::error.

// stream_type: what a call is ordered by. A value: copied into every call.
template <class S>
concept has_stream_type = requires(const typename S::stream_type& stream) {
  { typename S::stream_type(stream) };
};

// static constexpr bool executes_at_once: whether a call has ended when its function returns.
template <class S>
concept has_executes_at_once = requires {
  { S::executes_at_once } -> std::convertible_to<bool>;
};

// registration(std::byte* host, std::size_t bytes): makes `bytes` bytes of mapped host memory, page-aligned, reachable
// by the executor for as long as the object lives. May block while pages are pinned. Throws errc::out_of_memory when
// fewer bytes may do, unsupported when no number would.
template <class S>
concept has_registration = requires(std::byte* host, std::size_t bytes) {
  { typename S::registration(host, bytes) };
};

// allocation(std::size_t bytes): host memory of its own that the executor reaches from every thread of the process,
// page-aligned, all zeros, at data(), until the object's end. `name` is its allocator, for people. Throws
// errc::out_of_memory.
template <class S>
concept has_allocation = requires(const typename S::allocation& own, std::size_t bytes) {
  { typename S::allocation(bytes) };
  { S::allocation::name } -> std::convertible_to<const char*>;
  { own.data() } -> std::same_as<std::byte*>;
};

// state<T>(const T& initial): a T in the executor's own memory, aligned for T, that has the initial value when the
// constructor returns; get() is its address as the executor sees it. T is trivially copyable. Throws
// errc::out_of_memory or the executor's own error.
template <class S>
concept has_state = requires(const typename S::template state<call_state>& held, const call_state& initial) {
  { typename S::template state<call_state>(initial) };
  { held.get() } -> std::same_as<call_state*>;
};

// std::byte* executor_address(std::byte* host): the executor's address of a byte of memory that is registered or of an
// allocation, for the calling thread's device. Does not block.
template <class S>
concept has_executor_address = requires(std::byte* host) {
  { S::executor_address(host) } -> std::same_as<std::byte*>;
};

// int numa_node(const std::string& sysfs): the NUMA node of the calling thread's executor, by files under the root
// `sysfs`; -1: unknown. Does not throw.
template <class S>
concept has_numa_node = requires(const std::string& sysfs) {
  { S::numa_node(sysfs) } -> std::same_as<int>;
};

template <class S>
concept memory_space = has_stream_type<S> && has_executes_at_once<S> && has_registration<S> && has_allocation<S> &&
                       has_state<S> && has_executor_address<S> && has_numa_node<S>;

// The proof that S models memory_space. Does not compile when it does not: one error a member that S lacks, which says
// how it is declared.
template <class S>
consteval bool models_memory_space() {
  static_assert(has_stream_type<S>, "a memory space lacks stream_type: a copyable type");
  static_assert(has_executes_at_once<S>, "a memory space lacks executes_at_once: static constexpr bool");
  static_assert(has_registration<S>,
                "a memory space lacks registration: a class with registration(std::byte* host, std::size_t bytes)");
  static_assert(
      has_allocation<S>,
      "a memory space lacks allocation: a class with explicit allocation(std::size_t bytes), static constexpr "
      "const char* name, std::byte* data() const");
  static_assert(
      has_state<S>,
      "a memory space lacks state: template <class T> class state with state(const T& initial), T* get() const");
  static_assert(has_executor_address<S>,
                "a memory space lacks executor_address: static std::byte* executor_address(std::byte* host)");
  static_assert(has_numa_node<S>, "a memory space lacks numa_node: static int numa_node(const std::string& sysfs)");
  return memory_space<S>;
}

PEERLESS_END_NAMESPACE
