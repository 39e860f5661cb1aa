// What would run: a transport, a protocol and a launch shape, and the table such choices come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <peerless/core/types.hpp>

PEERLESS_BEGIN_NAMESPACE

// Some 10 us: ten times what a store takes through host memory, and nothing beside a deadline.
inline constexpr std::uint32_t most_poll_delay_cycles = 20'000;

// How a call is spread over an executor. For a CPU, `blocks` are parts that one thread takes in turn.
struct launch_shape {
  std::uint32_t blocks = 1;       // most blocks, for copied of a fold; small messages use fewer
  std::uint32_t threads = 1;      // data threads a block
  std::uint32_t chunk_bytes = 0;  // bulk, two-shot and copied only
  bool clear_early = false;       // sentinel kernels only: clear the old slot while waiting, not after
  // Sentinel kernels only: clock cycles of a multiprocessor between the last store of a thread and its first poll. A
  // poll that comes before the data takes link time from it, and the next one comes a whole round trip later.
  // At most most_poll_delay_cycles, since nothing is looked at meanwhile.
  std::uint32_t poll_delay_cycles = 0;
  friend bool operator==(const launch_shape&, const launch_shape&) = default;
};

// A choice and its reason. The same on every rank for the same call.
struct plan {
  std::string_view transport;  // static storage
  protocol_id protocol = protocol_id::flagged;
  launch_shape shape;
  std::string reason;  // one line, for people
};

// Which types a row holds for.
enum class type_class : std::uint8_t {
  any,
  with_sentinel,  // has_sentinel(type)
};

constexpr bool contains(type_class types, dtype type) { return types == type_class::any || has_sentinel(type); }

// One row: messages of [bytes_from, bytes_to] bytes a rank.
struct table_row {
  std::size_t bytes_from = 0;
  std::size_t bytes_to = std::numeric_limits<std::size_t>::max();
  type_class types = type_class::any;
  std::string_view transport;  // static storage
  protocol_id protocol = protocol_id::flagged;
  launch_shape shape;
  double measured_us = 0;   // at bytes_to; 0: not measured on this box
  std::string_view source;  // static storage: where the row comes from
};

// Rows in order of preference: the first that fits a call is taken.
using selection_table = std::vector<table_row>;

// Whether a row is for a message of `bytes` bytes of `type`. Pure.
constexpr bool row_fits(const table_row& row, std::size_t bytes, dtype type) noexcept {
  return bytes >= row.bytes_from && bytes <= row.bytes_to && contains(row.types, type);
}

PEERLESS_END_NAMESPACE
