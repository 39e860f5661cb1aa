// The cases that need GPUs. A build without CUDA has none of them.
#pragma once

namespace peerless::bench {

// GPUs of this machine; 0 without a driver.
int count_gpus();

// What a call costs the CPU that makes it: shm's, NCCL's where it was built in, and a bare kernel launch.
void register_host_cost(int n_gpus);

// What the road through host memory gives when GPUs write and read it at once.
void register_duplex(int n_gpus);

// Where the time of a small all-reduce goes, by stage.
void register_stages(int n_gpus);

}  // namespace peerless::bench
