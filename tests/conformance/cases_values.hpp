// Cases about values: every kind of data through every type, operation and protocol.
#pragma once

#include <cstddef>

#include "case.hpp"

namespace peerless::test {

// Every type, operation and protocol on one kind of data; unaligned, so that a slot's words are not the buffer's.
template <payload Kind>
void case_values(case_run& c) {
  std::size_t turn = 0;
  for (dtype type : all_types) {
    for (reduce_op operation : all_ops) {
      for (protocol_id protocol : all_protocols) {
        for (std::size_t n : {37, 503}) {
          if (!c.admits(protocol, type, n * size_bytes(type))) continue;
          ++turn;
          c.run({.type = type,
                 .op = operation,
                 .n_elements = n,
                 .data = Kind,
                 .protocol = protocol,
                 .in_offset = turn & 1,
                 .out_offset = turn >> 1 & 1,
                 .in_place = turn % 5 == 0});
        }
      }
    }
  }
}

// Sums with a closed form, at every world size.
inline void case_closed_sums(case_run& c) {
  case_values<payload::counted>(c);
  for (protocol_id protocol : all_protocols) {
    for (dtype type : all_types) {
      if (c.admits(protocol, type, 1))
        c.run({.type = type, .n_elements = 129, .data = payload::partial_sums, .protocol = protocol});
    }
  }
}

}  // namespace peerless::test
