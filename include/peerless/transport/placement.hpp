// On which NUMA node each rank's region of shared memory belongs.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <peerless/core/page_placement.hpp>
#include <peerless/protocol/layout.hpp>

PEERLESS_BEGIN_NAMESPACE

// The node for each rank's region, given the node of each rank (negative: unknown): that of most of its readers, which
// are all other ranks. A read waits for its round trip, a write does not, so the readers decide. Readers on unknown
// nodes have no say; of nodes with as many readers each, the lowest; -1 where no reader's is known. Pure.
inline std::vector<int> region_nodes(std::span<const int> nodes) {
  std::vector<int> places(nodes.size(), -1);
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    std::map<int, int> readers;
    for (std::size_t other = 0; other < nodes.size(); ++other) {
      if (other != r && nodes[other] >= 0) ++readers[nodes[other]];
    }
    int most = 0;
    for (const auto& [node, count] : readers) {
      if (count > most) most = count, places[r] = node;
    }
  }
  return places;
}

// The ranges of a segment that have a place, for ranks on these nodes. Pure.
inline std::vector<memory_place> region_places(const segment_layout& layout, std::span<const int> nodes) {
  std::vector<memory_place> places;
  const std::vector<int> wanted = region_nodes(nodes);
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    if (wanted[r] >= 0) places.push_back({layout.regions + r * layout.region_bytes, layout.region_bytes, wanted[r]});
  }
  return places;
}

// The node of a PCI device; -1 when it is not known: no such file, one that holds nothing or -1 (virtual machines,
// hosts with one node). `address` as CUDA or the driver spell it: any case, a domain of four or more digits.
inline int numa_node_of_pci(std::string_view address, const std::string& sysfs = "/sys") {
  std::string name;
  for (const char letter : address) name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  // "00000000:21:00.0" is "0000:21:00.0" in sysfs.
  while (name.find(':') != std::string::npos && name.find(':') > 4 && name.front() == '0') name.erase(0, 1);
  if (name.empty() || name.find('/') != std::string::npos) return -1;
  std::ifstream file(sysfs + "/bus/pci/devices/" + name + "/numa_node");
  int node = -1;
  return file >> node && node >= 0 ? node : -1;
}

// The node of the CPU that the calling thread runs on now; -1 when it is not known.
inline int numa_node_of_cpu() noexcept {
  unsigned cpu = 0, node = 0;
  return ::syscall(SYS_getcpu, &cpu, &node, nullptr) == 0 ? static_cast<int>(node) : -1;
}

PEERLESS_END_NAMESPACE
