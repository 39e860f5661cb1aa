// The shm backend under the conformance suite, as it is, and with calls by copy engines in the place of bulk ones: one
// file, so that the kernels of every type and operation are compiled once.
#include "gpu_backends.hpp"

#include <algorithm>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"
#include "support/typed_rank.hpp"

namespace {

using peerless::protocol_id;

class communicator_with_copies : public peerless::communicator<peerless::shm> {
 public:
  communicator_with_copies(peerless::bootstrap_ref group, const peerless::communicator_options& options)
      : communicator(group, with_places(options)) {
    peerless::selection_table rows;
    for (peerless::table_row row : table()) {
      if (row.protocol != protocol_id::bulk) {
        rows.push_back(row);
        continue;
      }
      peerless::table_row copied = row;
      copied.protocol = protocol_id::copied;
      copied.shape = {2, 64, chunk_bytes(options)};
      copied.source = "asked for by the test";
      rows.push_back(copied);
      rows.push_back(row);  // for what has too many chunks
    }
    load_table(std::move(rows));
    int n_devices = 0;
    peerless::detail::require_cuda(cudaGetDeviceCount(&n_devices), "cudaGetDeviceCount");
    shared_ = n_devices < world_size();
  }

  // What is captured where ranks share a GPU goes round the ring: the table's rows do by themselves, and where the
  // cases ask for copies, they are refused first, with no effect.
  template <class T, class Op>
  void all_reduce_as(peerless::plan choice, const T* in, T* out, std::uint64_t n, Op operation, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    peerless::detail::require_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    if (shared_ && status != cudaStreamCaptureStatusNone && choice.protocol == protocol_id::copied) {
      bool refused = false;
      try {
        communicator::all_reduce_as(choice, in, out, n, operation, stream);
      } catch (const peerless::error& e) {
        refused = e.code() == peerless::errc::unsupported;
      }
      if (!refused) throw peerless::error(peerless::errc::invalid_usage, "captured though ranks share a GPU");
      for (const peerless::table_row& row : table()) {
        if (row.protocol == protocol_id::bulk) choice = {row.transport, row.protocol, row.shape, "captured"};
      }
    }
    communicator::all_reduce_as(choice, in, out, n, operation, stream);
  }

 private:
  // Small rings call for small places: the cases go round them several times.
  static std::uint32_t chunk_bytes(const peerless::communicator_options& options) {
    return options.sizes.bulk_chunk_bytes < 8192 ? 8 * options.sizes.bulk_chunk_bytes : 1u << 20;
  }
  static peerless::communicator_options with_places(peerless::communicator_options options) {
    options.copies = {4, chunk_bytes(options)};
    return options;
  }

  bool shared_ = false;
};

struct copied_backend {
  static constexpr std::string_view name = "shm, by copy engines";
  using communicator = communicator_with_copies;
  using memory = peerless::test::cuda_memory;
  static protocol_id stand_in(protocol_id asked) { return asked == protocol_id::bulk ? protocol_id::copied : asked; }
  // The cases ask for chunks of a few vectors, of which a call may have 256.
  static void adjust(peerless::plan& forced, std::size_t bytes) {
    if (forced.protocol != protocol_id::copied) return;
    auto const least = static_cast<std::uint32_t>((bytes / 64 + 16) / 16 * 16);
    forced.shape.chunk_bytes = std::max(forced.shape.chunk_bytes, least);
  }
};

struct shm_backend {
  static constexpr std::string_view name = "shm";
  using communicator = peerless::communicator<peerless::shm>;
  using memory = peerless::test::cuda_memory;
};

}  // namespace

const peerless::test::backend& peerless::test::backend_of_shm() {
  static const backend it = describe_backend<shm_backend>();
  return it;
}

const peerless::test::backend& peerless::test::backend_of_copies() {
  static const backend it = describe_backend<copied_backend>();
  return it;
}
