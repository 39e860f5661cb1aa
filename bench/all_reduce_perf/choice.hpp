// From what was asked for and what there is to what is run. Pure, so that it is tested without a GPU.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"

namespace peerless::bench {

// The GPUs that a process of this program may use.
struct census {
  int n_gpus = 0;
  std::string reason;  // why there is none
};

inline constexpr std::string_view only_host[] = {"host"};

// What was compiled in.
struct built_with {
  bool cuda = false;
  bool nccl = false;
  std::span<const std::string_view> on_host = only_host;  // transports of host memory, "host" among them
};

inline bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct choice {
  int world = 0;
  std::vector<std::string> transports;  // in the order of their rows
  bool on_gpus = false;                 // some transport uses GPUs
  std::vector<std::string> notes;       // for people: why not something else
};

// `launched_world` is set where a launcher has started the ranks; then `found` must be the least of all ranks'. Throws
// std::invalid_argument, with what to do about it, for what cannot be served here.
inline choice choose(const options& o, const census& found, built_with build, std::optional<int> launched_world) {
  if (launched_world) {
    if (o.threads)
      throw std::invalid_argument("ranks of a launcher are processes: leave out -t and --threads, or the launcher");
    if (o.n_runs > 1 || o.nccl_knobs) {
      throw std::invalid_argument(
          "--repeat and --nccl-knobs start ranks anew for every run: use -g in place of a launcher");
    }
    if (o.world && *o.world != *launched_world) {
      throw std::invalid_argument("-g " + std::to_string(*o.world) + " differs from the launcher's world of " +
                                  std::to_string(*launched_world) + " ranks: leave out -g");
    }
  }
  const std::optional<int> world = launched_world ? launched_world : o.world;
  const auto count = [](int n, const char* what) { return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s"); };
  // A launcher may show each rank a GPU of its own; that no two ranks share one is checked when they meet.
  const int gpus_needed = o.share_gpus || launched_world ? 1 : world.value_or(2);

  choice result;
  if (o.transports.empty()) {
    if (found.n_gpus >= gpus_needed) {
      result.transports = {"shm"};
      if (build.nccl && !o.share_gpus) result.transports.push_back("nccl");
      if (!build.nccl) result.notes.push_back("this build has no NCCL to compare with");
      if (o.share_gpus) result.notes.push_back("NCCL is left out: it refuses two ranks on one GPU");
    } else if (found.n_gpus > 0 && world) {
      throw std::invalid_argument(count(*world, "rank") + " on " + count(found.n_gpus, "GPU") + ": use -g " +
                                  std::to_string(found.n_gpus) + ", --share-gpus, or --transports host");
    } else {
      result.transports = {"host"};
      result.notes.push_back(
          found.n_gpus > 0
              ? "one GPU is alone here (-g 1 and --share-gpus would use it): ranks exchange host memory, transport host"
              : "no GPU (" + found.reason + "): ranks exchange host memory, transport host");
    }
  } else {
    for (const std::string& name : o.transports) {
      const bool on_host = contains(build.on_host, name);
      if (!on_host && name != "shm" && name != "shm-copied" && name != "nccl") {
        std::string known = "shm, shm-copied, nccl";
        for (const std::string_view other : build.on_host) known += ", " + std::string(other);
        throw std::invalid_argument("transport '" + name + "' does not exist; use " + known);
      }
      if (std::count(o.transports.begin(), o.transports.end(), name) > 1)
        throw std::invalid_argument("transport " + name + " is named twice");
      if (on_host) continue;
      if (!build.cuda) throw std::invalid_argument("transport " + name + " needs a build with CUDA");
      if (name == "nccl" && !build.nccl) throw std::invalid_argument("transport nccl needs a build with NCCL");
      if (name == "nccl" && o.share_gpus)
        throw std::invalid_argument("NCCL refuses two ranks on one GPU: leave out --share-gpus or nccl");
      if (found.n_gpus == 0) throw std::invalid_argument("transport " + name + " needs a GPU: " + found.reason);
      const int needed = world || o.share_gpus || launched_world ? gpus_needed : 1;
      if (found.n_gpus < needed) {
        throw std::invalid_argument(count(*world, "rank") + " on " + count(found.n_gpus, "GPU") + ": use -g " +
                                    std::to_string(found.n_gpus) + ", --share-gpus, or --transports host");
      }
    }
    result.transports = o.transports;
  }
  if (o.nccl_knobs && std::count(result.transports.begin(), result.transports.end(), "nccl") == 0) {
    throw std::invalid_argument("--nccl-knobs needs rows of NCCL, and " +
                                (!build.nccl         ? std::string("this build has none")
                                 : found.n_gpus == 0 ? "there is no GPU: " + found.reason
                                                     : "transport nccl is not among those that run"));
  }
  result.on_gpus = std::any_of(result.transports.begin(), result.transports.end(),
                               [&](const auto& name) { return !contains(build.on_host, name); });
  result.world = world.value_or(result.on_gpus && !o.share_gpus ? found.n_gpus : 2);
  return result;
}

}  // namespace peerless::bench
