// Classes that model the contract of a transport and do nothing else, and for each member one class without it or with
// another type of it.
#pragma once

#include <peerless/transport/concepts.hpp>

namespace archetypes {

using peerless::bootstrap_ref;
using peerless::communicator_options;
using peerless::deadline;
using peerless::dtype;
using peerless::launch_shape;
using peerless::protocol_id;
using peerless::selection_table;
using peerless::session;

// --- memory spaces --------------------------------------------------------------------------------------------------

// Memory of the process, as far as a world of one rank needs it.
struct least_space {
  struct stream_type {};
  static constexpr bool executes_at_once = true;
  struct registration {
    registration(std::byte*, std::size_t) {}
  };
  struct allocation {
    static constexpr const char* name = "none";
    explicit allocation(std::size_t) {}
    std::byte* data() const { return nullptr; }
  };
  template <class T>
  struct state {
    explicit state(const T& initial) : held(initial) {}
    T* get() const { return const_cast<T*>(&held); }
    T held;
  };
  static std::byte* executor_address(std::byte* host) { return host; }
  static int numa_node(const std::string&) { return -1; }
};

// Its members one by one.
struct streams {
  struct stream_type {};
};
struct executes {
  static constexpr bool executes_at_once = true;
};
struct registers {
  using registration = least_space::registration;
};
struct allocates {
  using allocation = least_space::allocation;
};
struct holds {
  template <class T>
  using state = least_space::state<T>;
};
struct addresses {
  static std::byte* executor_address(std::byte* host) { return host; }
};
struct places {
  static int numa_node(const std::string&) { return -1; }
};

struct space_of_parts : streams, executes, registers, allocates, holds, addresses, places {};

struct space_without_stream_type : executes, registers, allocates, holds, addresses, places {};
struct space_without_executes_at_once : streams, registers, allocates, holds, addresses, places {};
struct space_without_registration : streams, executes, allocates, holds, addresses, places {};
struct space_without_allocation : streams, executes, registers, holds, addresses, places {};
struct space_without_state : streams, executes, registers, allocates, addresses, places {};
struct space_without_executor_address : streams, executes, registers, allocates, holds, places {};
struct space_without_numa_node : streams, executes, registers, allocates, holds, addresses {};

struct space_with_pinned_stream_type : space_without_stream_type {
  struct stream_type {
    stream_type(const stream_type&) = delete;
  };
};
struct space_with_named_executes_at_once : space_without_executes_at_once {
  struct executes_at_once {};
};
struct space_with_registration_of_bytes_only : space_without_registration {
  struct registration {
    explicit registration(std::size_t) {}
  };
};
struct space_with_allocation_of_words : space_without_allocation {
  struct allocation : least_space::allocation {
    using least_space::allocation::allocation;
    unsigned* data() const { return nullptr; }
  };
};
struct space_with_nameless_allocation : space_without_allocation {
  struct allocation {
    explicit allocation(std::size_t) {}
    std::byte* data() const { return nullptr; }
  };
};
struct space_with_untyped_state : space_without_state {
  template <class T>
  struct state {
    explicit state(const T&) {}
    void* get() const { return nullptr; }
  };
};
struct space_with_integer_executor_address : space_without_executor_address {
  static std::uintptr_t executor_address(std::byte*) { return 0; }
};
struct space_with_numa_node_of_nothing : space_without_numa_node {
  static int numa_node() { return -1; }
};

// --- transports ------------------------------------------------------------------------------------------------------

// One row for every message.
inline selection_table table_of(std::string_view transport) {
  peerless::table_row row;
  row.transport = transport;
  return {row};
}

// Models transport and reduces nothing.
struct least {
  static constexpr std::string_view name = "least";
  using space = least_space;
  least(bootstrap_ref, session<space>&, const communicator_options&, deadline) {}
  selection_table seed_table() const { return table_of(name); }
  const char* refuse(protocol_id, const launch_shape&, std::size_t, dtype) const noexcept { return nullptr; }
  void finish(deadline) noexcept {}
  bool synchronize(space::stream_type, deadline) { return true; }
};

// Reduces i32 by any operation, in a world of one.
struct least_that_reduces : least {
  static constexpr std::string_view name = "least that reduces";
  using least::least;
  selection_table seed_table() const { return table_of(name); }
  template <class Op>
  void all_reduce(protocol_id, const launch_shape&, const peerless::message<std::int32_t>& msg, space::stream_type) {
    for (std::uint64_t i = 0; i < msg.n_elements; ++i) msg.out[i] = msg.in[i];
  }
};
struct with_all_reduce_of_counts : least {
  using least::least;
  template <class Op, class T>
  std::size_t all_reduce(protocol_id, const launch_shape&, const peerless::message<T>& msg, space::stream_type) {
    return msg.n_elements;
  }
};
struct with_all_reduce_without_stream : least {
  using least::least;
  template <class Op, class T>
  void all_reduce(protocol_id, const launch_shape&, const peerless::message<T>&) {}
};

// The members one by one.
struct named {
  static constexpr std::string_view name = "parts";
};
struct spaced {
  using space = least_space;
};
struct seeds {
  selection_table seed_table() const { return {}; }
};
struct refuses {
  const char* refuse(protocol_id, const launch_shape&, std::size_t, dtype) const noexcept { return nullptr; }
};
struct finishes {
  void finish(deadline) noexcept {}
};
struct synchronizes {
  bool synchronize(least_space::stream_type, deadline) { return true; }
};

template <class... Parts>
struct made_of : Parts... {
  made_of(bootstrap_ref, session<least_space>&, const communicator_options&, deadline) {}
};

struct transport_of_parts : made_of<named, spaced, seeds, refuses, finishes, synchronizes> {
  using made_of::made_of;
};

struct without_name : made_of<spaced, seeds, refuses, finishes, synchronizes> {
  using made_of::made_of;
};
struct without_space : made_of<named, seeds, refuses, finishes, synchronizes> {
  using made_of::made_of;
};
struct without_constructor : named, spaced, seeds, refuses, finishes, synchronizes {};
struct without_seed_table : made_of<named, spaced, refuses, finishes, synchronizes> {
  using made_of::made_of;
};
struct without_refuse : made_of<named, spaced, seeds, finishes, synchronizes> {
  using made_of::made_of;
};
struct without_finish : made_of<named, spaced, seeds, refuses, synchronizes> {
  using made_of::made_of;
};
struct without_synchronize : made_of<named, spaced, seeds, refuses, finishes> {
  using made_of::made_of;
};

struct with_numeric_name : without_name {
  static constexpr int name = 1;
  using without_name::without_name;
};
struct with_space_of_less : without_space {
  using space = space_without_numa_node;
  using without_space::without_space;
};
struct with_constructor_of_another_space : transport_of_parts {
  with_constructor_of_another_space(bootstrap_ref boot, session<space_of_parts>&, const communicator_options& options,
                                    deadline limit);
};
struct with_mutable_seed_table : without_seed_table {
  using without_seed_table::without_seed_table;
  selection_table seed_table() { return {}; }
};
struct with_seed_table_of_one_row : without_seed_table {
  using without_seed_table::without_seed_table;
  peerless::table_row seed_table() const { return {}; }
};
struct with_boolean_refuse : without_refuse {
  using without_refuse::without_refuse;
  bool refuse(protocol_id, const launch_shape&, std::size_t, dtype) const noexcept { return false; }
};
struct with_throwing_refuse : without_refuse {
  using without_refuse::without_refuse;
  const char* refuse(protocol_id, const launch_shape&, std::size_t, dtype) const { return nullptr; }
};
struct with_throwing_finish : without_finish {
  using without_finish::without_finish;
  void finish(deadline) {}
};
struct with_finish_without_limit : without_finish {
  using without_finish::without_finish;
  void finish() noexcept {}
};
struct with_synchronize_of_nothing : without_synchronize {
  using without_synchronize::without_synchronize;
  void synchronize(least_space::stream_type, deadline) {}
};
struct with_synchronize_of_another_stream : without_synchronize {
  using without_synchronize::without_synchronize;
  bool synchronize(streams::stream_type, deadline) { return true; }
};

}  // namespace archetypes
