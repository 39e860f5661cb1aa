// gpu_gate <count> <program> [argument...]: becomes the program if this process may use that many GPUs, else says why
// not and ends with 77, which CTest reports as skipped. Tells the program how many there are in PEERLESS_TEST_GPUS.
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: gpu_gate <count> <program> [argument...]\n");
    return 2;
  }
  const int needed = std::atoi(argv[1]);
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  if (error != cudaSuccess) found = 0;
  if (found < needed) {
    std::printf("peerless: skipped: needs %d GPU(s), found %d (%s)\n", needed, found, cudaGetErrorString(error));
    return 77;
  }
  setenv("PEERLESS_TEST_GPUS", std::to_string(found).c_str(), 1);
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 2;
}
