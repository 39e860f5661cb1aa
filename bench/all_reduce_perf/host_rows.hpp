// The row set of transport `host`: host memory among processes or threads.
#pragma once

#include <memory>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "options.hpp"

namespace peerless::bench {

// Collective. `max_bytes` is the largest problem. `o` must outlive the arm.
std::unique_ptr<arm> make_host_arm(bootstrap_ref boot, const options& o, std::size_t max_bytes);

}  // namespace peerless::bench
