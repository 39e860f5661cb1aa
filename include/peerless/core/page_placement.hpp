// Where the pages of a shared file shall lie, and how large they are: said before there are any. Wishes, not demands: a
// kernel or a container that refuses costs speed, not the communicator.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <peerless/core/page_bytes.hpp>

PEERLESS_BEGIN_NAMESPACE

// A range of a file, in whole pages, and the NUMA node that it should lie on; -1: wherever.
struct memory_place {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  int node = -1;
};

// What became of the wishes.
struct placement_outcome {
  std::int32_t refused = 0;      // 0, or the errno of the first refusal: EPERM and ENOSYS in containers
  std::uint64_t huge_bytes = 0;  // that are in huge pages
};

// Asks that pages of a shared memory file which are yet to be taken come from `place.node`, by whoever and however they
// are taken (fallocate as well): the wish is kept with the file, not with a mapping. A node without room is passed
// over. 0, or errno. Local, does not block.
inline int prefer_node(int fd, const memory_place& place) noexcept {
  constexpr std::size_t word_bits = 8 * sizeof(unsigned long), most_nodes = 1024;
  if (place.node < 0 || place.bytes == 0) return 0;
  if (static_cast<std::size_t>(place.node) >= most_nodes) return EINVAL;
  // A mapping of its own, so that the one in use is not cut into pieces.
  void* range = ::mmap(nullptr, place.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(place.offset));
  if (range == MAP_FAILED) return errno;
  unsigned long nodes[most_nodes / word_bits] = {};
  nodes[static_cast<std::size_t>(place.node) / word_bits] = 1ul << (static_cast<std::size_t>(place.node) % word_bits);
  // The kernel reads one bit less than it is told.
  const int failure =
      ::syscall(SYS_mbind, range, place.bytes, MPOL_PREFERRED, nodes, most_nodes + 1, 0) == 0 ? 0 : errno;
  ::munmap(range, place.bytes);
  return failure;
}

// How many bytes of the mapping that begins at `data` are in huge pages, by /proc/self/smaps; 0 when it does not tell.
inline std::uint64_t huge_bytes_of(const std::byte* data) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      if (inside) return 0;
      inside = begin == reinterpret_cast<std::uintptr_t>(data);
    } else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %lu", &kib) == 1) {
      return std::uint64_t{kib} << 10;
    }
  }
  return 0;
}

// Takes the pages of a shared memory file of `bytes` bytes as huge ones, as far as there are any; how many bytes are.
// Through an aligned mapping of its own: what a GPU maps goes by where pages lie, not by who else maps them. Linux 6.1
// gives them whatever shmem_enabled says (MADV_COLLAPSE), older ones where it is advise or always. Local; blocks for
// the kernel to supply pages, some ms.
inline std::uint64_t take_huge_pages(int fd, std::size_t bytes) {
  constexpr std::size_t huge = huge_page_bytes;
  constexpr int populate_read = 22, populate_write = 23, collapse = 25;  // of madvise; not in older C libraries
  void* const space = ::mmap(nullptr, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return 0;
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(space) + huge - 1) / huge * huge);
  std::uint64_t got = 0;
  if (::mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) {
    for (const int advice : {MADV_HUGEPAGE, populate_write, collapse, populate_read})
      static_cast<void>(::madvise(aligned, bytes, advice));
    got = huge_bytes_of(aligned);
  }
  ::munmap(space, bytes + huge);
  return got;
}

// The wishes for a file of `bytes` bytes that has no pages yet.
inline placement_outcome place_pages(int fd, std::size_t bytes, const std::vector<memory_place>& places,
                                     bool huge_pages) {
  placement_outcome outcome;
  for (const memory_place& place : places) {
    const int failure = prefer_node(fd, place);
    if (outcome.refused == 0) outcome.refused = failure;
  }
  if (huge_pages) outcome.huge_bytes = take_huge_pages(fd, bytes);
  return outcome;
}

PEERLESS_END_NAMESPACE
