// How the command line shows in a communicator.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <peerless/core/error.hpp>
#include <peerless/select/plan.hpp>
#include <peerless/transport/options.hpp>

#include "options.hpp"

namespace peerless::bench {

// The environment's settings; --deadline goes before them, --huge-pages and --no-numa have no variable.
inline communicator_options communicator_settings(const options& o) {
  communicator_options settings = communicator_options::from_environment();
  if (o.deadline_given) {
    settings.deadline = *o.deadline_given;
    settings.setup_deadline = std::min(settings.setup_deadline, *o.deadline_given);
  } else {
    settings.deadline = std::min(settings.deadline, o.deadline());
  }
  settings.numa = o.numa;
  settings.huge_pages = o.huge_pages;
  return settings;
}

// With --protocol, leaves the rows of that protocol alone in the table, the last one for every larger size. Throws
// errc::unsupported where there are none.
template <class Communicator>
void keep_protocol(Communicator& comm, const options& o) {
  if (!o.protocol) return;
  selection_table rows;
  for (const peerless::table_row& row : comm.table()) {
    if (row.protocol == *o.protocol) rows.push_back(row);
  }
  if (rows.empty()) {
    throw error(errc::unsupported, "no transport of " + std::to_string(comm.world_size()) + " ranks has protocol " +
                                       std::string(name_of(*o.protocol)));
  }
  rows.back().bytes_to = peerless::table_row{}.bytes_to;
  comm.load_table(std::move(rows));
}

}  // namespace peerless::bench
