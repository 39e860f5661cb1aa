#include "shm_memory.hpp"

#include <cuda_runtime.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <peerless/communicator.hpp>
#include <peerless/transport/shm.cuh>

#include "support/cuda_memory.cuh"
#include "support/scarce_space.hpp"

namespace peerless::test {

namespace {

using namespace std::chrono_literals;

communicator_options options() {
  communicator_options made;
  made.deadline = 20s;
  return made;
}

std::size_t bytes_after(int steps) {
  layout_sizes sizes;
  sizes.world_size = 2;
  for (int i = 0; i < steps; ++i) sizes = smaller(sizes);
  return make_layout(sizes).total_bytes;
}

void says(rank_context& context, const std::string& line, const std::string& part) {
  context.require(line.find(part) != std::string::npos, "no \"" + part + "\" in", line);
}

// Comes up and sums through every protocol of the table.
void sums_with(rank_context& context, bootstrap_ref group, const communicator_options& with, const std::string& part) {
  constexpr std::size_t most = 2 << 20;
  cuda_memory memory(context.rank(), 2 * most);
  communicator<shm> c(group, with);
  says(context, c.describe(), part);
  for (const std::size_t n : {std::size_t{1}, std::size_t{2048}, std::size_t{40'000}, std::size_t{500'000}}) {
    auto* values = reinterpret_cast<float*>(memory.staging());
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(context.rank() + static_cast<int>(i % 50));
    memory.upload(n * sizeof(float));
    c.all_reduce(reinterpret_cast<const float*>(memory.arena()), reinterpret_cast<float*>(memory.arena()), n, op::sum{},
                 memory.stream());
    c.synchronize(memory.stream());
    const auto* sums = reinterpret_cast<const float*>(memory.fetch(n * sizeof(float)));
    bool right = true;
    for (std::size_t i = 0; i < n; ++i)
      right = right && sums[i] == static_cast<float>(1 + 2 * static_cast<int>(i % 50));
    context.require(right, "a sum of " + std::to_string(n) + " elements", "is wrong");
  }
}

template <class Make>
void fails_with(rank_context& context, errc code, Make&& make) {
  try {
    make();
    context.fail("a construction", "did not fail");
  } catch (const error& e) {
    context.require(e.code() == code, "another error", e.what());
  }
}

}  // namespace

void smaller_slots(rank_context& context, bootstrap_ref group) {
  const std::string root = "/tmp/peerless-memory-" + std::to_string(::getpid()) + "-" + std::to_string(context.rank());
  std::filesystem::create_directories(root);
  std::ofstream(root + "/meminfo") << "MemAvailable: " << bytes_after(1) * 9 / 8 / 1024 + 1 << " kB\n";
  auto with = options();
  with.segments.accounts = {root, root};
  sums_with(context, group, with, std::to_string(bytes_after(1)) + " bytes of staging memory (memfd), slots of ");
  std::filesystem::remove_all(root);
}

void nameless_files(rank_context& context, bootstrap_ref group) {
  auto with = options();
  with.segments.memfd = [](const char*, unsigned) { return errno = ENOSYS, -1; };
  sums_with(context, group, with, std::to_string(bytes_after(0)) + " bytes of staging memory (nameless file in shm)");
}

void no_segments(rank_context& context, bootstrap_ref group) {
  auto with = options();
  with.segments.memfd = [](const char*, unsigned) { return errno = ENOMEM, -1; };
  if (group.same_process()) {
    sums_with(context, group, with, std::to_string(bytes_after(0)) + " bytes of staging memory (cudaHostAlloc)");
  } else {
    cuda_memory memory(context.rank(), 256);  // chooses the device
    fails_with(context, errc::out_of_memory, [&] { communicator<shm> c(group, with); });
  }
}

void no_registration(rank_context& context, bootstrap_ref group) {
  using space = scarce<device_space>;
  cuda_memory memory(context.rank(), 256);  // chooses the device
  scarcity::most_bytes = 64 << 10;          // control words may be pinned, slots may not
  const auto limit = deadline::after(20s);
  for (const errc refusal : {errc::unsupported, errc::out_of_memory}) {
    group.barrier(limit);
    scarcity::refusal = refusal;
    group.barrier(limit);
    session<space> controls(group, options(), limit);
    if (group.same_process()) {
      staging_area<space> staging(group, controls, options(), limit);
      says(context, staging.memory_note(), std::to_string(bytes_after(0)) + " bytes of staging memory (cudaHostAlloc)");
      says(context, staging.memory_note(), "be pinned");
      // A GPU reaches it.
      cudaPointerAttributes attributes{};
      require_cuda(cudaPointerGetAttributes(&attributes, staging.view().segment), "attributes of the memory");
      context.require(attributes.devicePointer != nullptr, "the memory", "is not mapped");
    } else {
      fails_with(context, refusal, [&] { staging_area<space> staging(group, controls, options(), limit); });
    }
  }
  group.barrier(limit);
  context.require(scarcity::registrations == 0, "registrations left", std::to_string(scarcity::registrations));
}

}  // namespace peerless::test
