// Says which ranks have not come.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The ranks whose entry is false.
inline std::vector<int> missing_ranks(const std::vector<bool>& present) {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < present.size(); ++rank) {
    if (!present[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

// "missing rank 2 of 4" or "missing ranks 2, 3 of 4".
inline std::string describe_missing(const std::vector<int>& missing, int size) {
  std::string text = missing.size() == 1 ? "missing rank " : "missing ranks ";
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(missing[i]);
  }
  return text + " of " + std::to_string(size);
}

// "rank 1 called all_gather of 8 bytes", "rank 0 called broadcast_fd from root 2".
inline std::string describe_call(int rank, const std::string& what, int root, std::size_t bytes) {
  std::string text = "rank " + std::to_string(rank) + " called " + what;
  if (root >= 0) return text + " from root " + std::to_string(root);
  return text + " of " + std::to_string(bytes) + " bytes";
}

}  // namespace detail

PEERLESS_END_NAMESPACE
