// Stand-ins of a build without CUDA.
#include "gpu_rows.hpp"

namespace peerless::bench {

built_with gpu_build() { return {}; }
census count_gpus() { return {0, "built without CUDA"}; }
gpu_facts take_gpu(bootstrap_ref, int, const options&) { throw error(errc::unsupported, "built without CUDA"); }
std::unique_ptr<arm> make_gpu_arm(const std::string&, bootstrap_ref, const options&, std::size_t) {
  throw error(errc::unsupported, "built without CUDA");
}

}  // namespace peerless::bench
