// A rank as a launcher starts it: says what it found in the environment, meets its peers, exits with 0.
// `launched_rank expect <source>` also compares the launcher.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include <peerless/bootstrap/from_environment.hpp>
#include <peerless/bootstrap/local_host.hpp>

int main(int argc, char** argv) {
  try {
    const auto found = peerless::from_environment();
    if (argc == 3 && std::strcmp(argv[1], "expect") == 0 && found.source != argv[2]) {
      std::printf("started by %s, expected %s\n", std::string(found.source).c_str(), argv[2]);
      return 1;
    }
    peerless::local_host_options options;
    options.deadline = std::chrono::seconds(20);
    auto boot = peerless::local_host_bootstrap::connect(found.identity, found.rank, found.size, options);
    const auto limit = peerless::deadline::after(std::chrono::seconds(20));
    const auto all = peerless::all_gather_value(boot, found.rank, limit);
    for (int rank = 0; rank < found.size; ++rank) {
      if (all[static_cast<std::size_t>(rank)] != rank) return 2;
    }
    boot.barrier(limit);
    std::printf("rank %d of %d met its peers\n", found.rank, found.size);
    return 0;
  } catch (const peerless::error& caught) {
    std::printf("%s\n", caught.what());
    return 3;
  }
}
