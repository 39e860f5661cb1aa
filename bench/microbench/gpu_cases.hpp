// The cases that need GPUs. A build without CUDA has none of them.
#pragma once

#include <cstdio>
#include <string>

namespace peerless::bench {

// GPUs of this machine; 0 without a driver.
int count_gpus();

// The label of cases whose two ranks, threads of this process, share the only GPU.
inline constexpr const char* shared_gpu = "shared GPU";
// ... where each would else launch its calls as dependent ones.
inline constexpr const char* shared_gpu_ordinary = "shared GPU, ordinary launches";

// One line on stderr in place of cases that cannot run here.
inline void leave_out(const std::string& cases, const std::string& why) {
  std::fprintf(stderr, "%s: left out, %s\n", cases.c_str(), why.c_str());
}

// What a call costs the CPU that makes it: shm's, NCCL's where it was built in, and a bare kernel launch.
void register_host_cost(int n_gpus);

// What the road through host memory gives when GPUs write and read it at once.
void register_duplex(int n_gpus);

// Where the time of a small all-reduce goes, by stage.
void register_stages(int n_gpus);

}  // namespace peerless::bench
