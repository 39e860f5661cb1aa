// The row sets that need a GPU: transport `shm`, and NCCL. A build without CUDA links stand-ins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "choice.hpp"
#include "options.hpp"

namespace peerless::bench {

// What was compiled in. Touches no GPU.
built_with gpu_build();

// Touches CUDA: only in a process that forks no more.
census count_gpus();

// The GPUs of the ranks and the software that drives them, the same on every rank.
struct gpu_facts {
  std::vector<std::string> gpus;  // by rank: name and PCI address
  std::string cuda;               // version of the CUDA runtime
  std::string nccl;               // of the NCCL library that is loaded
};

// Collective. Makes GPU `local_rank`, modulo the number there are, the device of the calling thread. Throws
// std::invalid_argument when two ranks got the same one without --share-gpus.
gpu_facts take_gpu(bootstrap_ref boot, int local_rank, const options& o);

// Collective, after take_gpu() on the same thread. `name` is "shm", "shm-copied" or "nccl"; `max_bytes` is the largest
// problem. `o` must outlive the arm. Blocks while NCCL connects: the caller bounds it.
std::unique_ptr<arm> make_gpu_arm(const std::string& name, bootstrap_ref boot, const options& o, std::size_t max_bytes);

}  // namespace peerless::bench
