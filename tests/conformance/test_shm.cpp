// The shm backend under the conformance suite.
#include "gpu_backends.hpp"

const peerless::test::backend& peerless::test::backend_under_test() { return backend_of_shm(); }
