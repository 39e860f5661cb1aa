// How the command line shows in a communicator.
#pragma once

#include <algorithm>

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

}  // namespace peerless::bench
