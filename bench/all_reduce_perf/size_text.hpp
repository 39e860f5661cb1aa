// Sizes as a person writes them on a command line, and the list of sizes that a range stands for.
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace peerless::bench {

// Reads "65536", "64K", "64KB", "64KiB", "1M", "2G" (either case; every suffix is binary). Throws
// std::invalid_argument, naming the text, for anything else and for what does not fit into std::size_t.
inline std::size_t parse_size(std::string_view text) {
  const auto refuse = [&](const char* why) {
    return std::invalid_argument("'" + std::string(text) + "' " + why +
                                 " (a size is a number of bytes, with K, M or G for 2^10, 2^20, 2^30)");
  };
  std::size_t value = 0;
  std::size_t position = 0;
  for (; position < text.size() && text[position] >= '0' && text[position] <= '9'; ++position) {
    const std::size_t digit = static_cast<std::size_t>(text[position] - '0');
    if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) throw refuse("is too large");
    value = value * 10 + digit;
  }
  if (position == 0) throw refuse("is not a size");
  unsigned shift = 0;
  std::string_view rest = text.substr(position);
  if (!rest.empty()) {
    switch (rest.front()) {
      case 'k':
      case 'K': shift = 10; break;
      case 'm':
      case 'M': shift = 20; break;
      case 'g':
      case 'G': shift = 30; break;
      default: break;
    }
    if (shift != 0) rest.remove_prefix(1);
    if (shift != 0 && !rest.empty() && rest.front() == 'i') {
      rest.remove_prefix(1);
      if (rest.empty()) throw refuse("is not a size");
    }
    if (!rest.empty() && (rest.front() == 'b' || rest.front() == 'B')) rest.remove_prefix(1);
    if (!rest.empty()) throw refuse("is not a size");
  }
  if (value > (std::numeric_limits<std::size_t>::max() >> shift)) throw refuse("is too large");
  return value << shift;
}

// "64 KB", "1 MB", "100 B": for messages to people, binary units.
inline std::string size_text(std::size_t bytes) {
  constexpr const char* units[] = {" B", " KB", " MB", " GB"};
  unsigned unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units[unit];
}

// The sizes first, first + step, ... (step_bytes > 0), or first, first * factor, ..., none larger than `last`.
// `first` is at least 1; a factor of 1 or less without a step gives `first` alone. Throws std::invalid_argument for an
// empty range and for more than a million sizes.
inline std::vector<std::size_t> size_range(std::size_t first, std::size_t last, std::size_t step_bytes,
                                           std::size_t factor) {
  if (first == 0) throw std::invalid_argument("the smallest size must be at least 1 byte");
  if (first > last) throw std::invalid_argument("the smallest size is larger than the largest");
  std::vector<std::size_t> sizes;
  for (std::size_t size = first;;) {
    if (sizes.size() == 1'000'000) throw std::invalid_argument("more than a million sizes: use a larger step");
    sizes.push_back(size);
    if (step_bytes > 0) {
      if (last - size < step_bytes) break;
      size += step_bytes;
    } else {
      if (factor <= 1 || size > last / factor) break;
      size *= factor;
    }
  }
  return sizes;
}

}  // namespace peerless::bench
