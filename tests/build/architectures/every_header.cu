// Every header, and every kernel once: compiled for each GPU generation that the library supports, run nowhere.
#include "all_headers.cuh"

void make_every_call(peerless::communicator<peerless::shm>& comm, const peerless::bf16* in, peerless::bf16* out,
                     cudaStream_t stream) {
  comm.all_reduce(in, out, 1, peerless::op::sum{}, stream);
}
