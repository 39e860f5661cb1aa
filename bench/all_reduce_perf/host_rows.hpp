// The transports of host memory that this program has rows of.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "options.hpp"

namespace peerless::bench {

// Their names. Complete when main() begins.
std::span<const std::string_view> host_transports();

// Collective. `name` is one of them; `max_bytes` is the largest problem. `o` must outlive the arm.
std::unique_ptr<arm> make_host_arm(std::string_view name, bootstrap_ref boot, const options& o, std::size_t max_bytes);

// Adds one while it is constructed: see rows_of() in host_arm.hpp.
class host_rows {
 public:
  using maker = std::unique_ptr<arm> (*)(bootstrap_ref boot, const options& o, std::size_t max_bytes);
  host_rows(std::string_view name, maker make);
};

}  // namespace peerless::bench
