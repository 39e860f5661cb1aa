#include "host_rows.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include <peerless/transport/host.hpp>

#include "host_arm.hpp"

namespace peerless::bench {
namespace {

struct known_transports {
  std::vector<std::string_view> names;
  std::vector<host_rows::maker> makers;
};

// Made by whichever source adds the first.
known_transports& known() {
  static known_transports all;
  return all;
}

const auto rows = rows_of<host>();

}  // namespace

host_rows::host_rows(std::string_view name, maker make) {
  known().names.push_back(name);
  known().makers.push_back(make);
}

std::span<const std::string_view> host_transports() { return known().names; }

std::unique_ptr<arm> make_host_arm(std::string_view name, bootstrap_ref boot, const options& o, std::size_t max_bytes) {
  for (std::size_t i = 0; i < known().names.size(); ++i) {
    if (known().names[i] == name) return known().makers[i](boot, o, max_bytes);
  }
  throw std::invalid_argument("transport '" + std::string(name) + "' has no rows of host memory");
}

}  // namespace peerless::bench
