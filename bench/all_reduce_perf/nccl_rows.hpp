// The row set of NCCL. A build without it has the same functions.
#pragma once

#include <memory>
#include <string>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "options.hpp"

namespace peerless::bench {

class gpu_buffers;

bool nccl_is_built_in();

// Of the library that is loaded, as 2.28.9; empty without one.
std::string nccl_version();

// Collective. Blocks while NCCL connects: the caller bounds it.
std::unique_ptr<arm> make_nccl_arm(bootstrap_ref boot, const options& o, std::shared_ptr<gpu_buffers> buffers);

}  // namespace peerless::bench
