// How much memory this process may still take, asked before it takes any: a limit that is overrun is told by the OOM
// killer, not by an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <sys/resource.h>

#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

// Where the kernel's accounts are read; other paths are for tests.
struct account_roots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  std::string sysfs = "/sys";  // for NUMA nodes of devices
};

// The least room among all limits that could be read.
struct memory_room {
  std::uint64_t free_bytes = 0;
  std::string limit;  // what limits it, for messages
};

namespace detail {

// A file that holds one number. Nothing for a file that cannot be read, holds something else ("max"), or a number so
// large that it means none (cgroup v1 writes 2^63 less a page).
inline std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value) || value >= std::uint64_t{1} << 62) return std::nullopt;
  return value;
}

// The number behind `key` at the start of a line; 0 when there is none.
inline std::uint64_t read_entry(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name && name == key && words >> value) return value;
  }
  return 0;
}

// How a version of cgroups names its files.
struct cgroup_files {
  const char* limit;
  const char* usage;
  const char* inactive;  // entries of memory.stat: pages of files, which the kernel drops before it kills
  const char* active;
};
inline constexpr cgroup_files cgroup_v1_files = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                                 "total_inactive_file", "total_active_file"};
inline constexpr cgroup_files cgroup_v2_files = {"memory.max", "memory.current", "inactive_file", "active_file"};

inline void tighten(std::optional<memory_room>& room, std::uint64_t free_bytes, std::string limit) {
  if (!room || free_bytes < room->free_bytes) room = {free_bytes, std::move(limit)};
}

// From the group `path` of the hierarchy at `root` up to the root itself: the limit of each holds for all below it. A
// path that is not there is the host's view of what a container sees as the root.
inline void tighten_by_cgroups(std::optional<memory_room>& room, const std::string& root, std::string path,
                               const cgroup_files& files) {
  if (path.find("..") != std::string::npos) path.clear();
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string folder = root + path + "/";
    const auto limit = read_number(folder + files.limit);
    const auto usage = read_number(folder + files.usage);
    if (limit && usage) {
      const std::string stat = folder + "memory.stat";
      const std::uint64_t cache = read_entry(stat, files.inactive) + read_entry(stat, files.active);
      const std::uint64_t held = *usage - std::min(*usage, cache);
      tighten(room, *limit - std::min(*limit, held), "the cgroup limit " + folder + files.limit);
    }
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

}  // namespace detail

// A look, not a reservation: others take memory, too. What cannot be read does not count; nothing when nothing can be.
// Local; reads a handful of small files.
inline std::optional<memory_room> free_memory(const account_roots& roots = {}) {
  std::optional<memory_room> room;
  if (const auto kib = detail::read_entry(roots.proc + "/meminfo", "MemAvailable:"); kib != 0)
    detail::tighten(room, kib << 10, "the memory of this host (MemAvailable)");
  // Lines of number:controllers:path; version 2 has no controllers.
  std::ifstream groups(roots.proc + "/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") detail::tighten_by_cgroups(room, roots.cgroup, path, detail::cgroup_v2_files);
    if (controllers.find(",memory,") != std::string::npos)
      detail::tighten_by_cgroups(room, roots.cgroup + "/memory", path, detail::cgroup_v1_files);
  }
  return room;
}

// Throws errc::out_of_memory, with the need, the room and what to do, when `bytes` bytes and an eighth more (page
// tables, the kernel's accounts by CPU, and what the process takes next) are more than free_memory().
inline void require_memory(std::uint64_t bytes, const account_roots& roots = {},
                           source_location where = source_location::current()) {
  const auto room = free_memory(roots);
  if (!room || bytes + bytes / 8 <= room->free_bytes) return;
  throw error(errc::out_of_memory,
              "need " + std::to_string(bytes) + " bytes of host memory and an eighth more, free are " +
                  std::to_string(room->free_bytes) +
                  "; raise the limit (docker run --memory, memory.max), end what else takes memory, or ask for smaller "
                  "slots; limited by " +
                  room->limit,
              -1, 0, where);
}

// RLIMIT_MEMLOCK for messages: "unlimited" or a count of bytes.
inline std::string locked_memory_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
}

PEERLESS_END_NAMESPACE
