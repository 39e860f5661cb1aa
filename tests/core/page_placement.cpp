// Wishes about pages: kept with the file, for exactly the range; refusals are told and harm nothing.
#include <peerless/core/page_placement.hpp>

#include <unistd.h>

#include <cstring>
#include <string>

#include <peerless/core/shared_segment.hpp>

#include "support/catch.hpp"
#include "support/leak_check.hpp"

using peerless::memory_place;
using peerless::place_pages;
using peerless::placement_outcome;
using peerless::shared_segment;

namespace {

struct policy {
  int mode = -1;
  unsigned long nodes[16] = {};
};

policy policy_at(const std::byte* address) {
  policy found;
  ::syscall(SYS_get_mempolicy, &found.mode, found.nodes, 1024, address, MPOL_F_ADDR);
  return found;
}

int node_of_page(const std::byte* address) {
  int node = -1;
  ::syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_ADDR | MPOL_F_NODE);
  return node;
}

bool has_node(int node) {
  return ::access(("/sys/devices/system/node/node" + std::to_string(node)).c_str(), F_OK) == 0;
}

bool binding_is_refused() {
  const shared_segment probe = shared_segment::create(4096);
  return peerless::prefer_node(probe.fd(), {0, 4096, 0}) != 0;
}

constexpr std::size_t mib = 1 << 20;

}  // namespace

TEST_CASE("pages come from the node that was asked for, whoever maps the file") {
  if (binding_is_refused()) PEERLESS_SKIP("this kernel or container refuses mbind");
  const std::size_t mappings = peerless::test::shared_mappings();
  {
    const int last = has_node(1) ? 1 : 0;
    placement_outcome outcome;
    const shared_segment segment = shared_segment::create(4 * mib, {}, [&](const shared_segment& made) {
      outcome = place_pages(made.fd(), 4 * mib, {{mib, mib, 0}, {2 * mib, mib, last}}, false);
    });
    CHECK(outcome.refused == 0);
    CHECK(outcome.huge_bytes == 0);
    const shared_segment again = shared_segment::attach(peerless::unique_fd::duplicate(segment.fd()), 4 * mib);
    for (const auto* data : {segment.data(), again.data()}) {
      CHECK(policy_at(data).mode == MPOL_DEFAULT);
      CHECK(policy_at(data + mib).mode == MPOL_PREFERRED);
      CHECK(policy_at(data + mib).nodes[0] == 1);
      CHECK(policy_at(data + 3 * mib - 4096).mode == MPOL_PREFERRED);
      CHECK(policy_at(data + 3 * mib - 4096).nodes[0] == 1ul << last);
      CHECK(policy_at(data + 3 * mib).mode == MPOL_DEFAULT);
      for (std::size_t at = 0; at < mib; at += 4096) {
        CHECK(node_of_page(data + mib + at) == 0);
        CHECK(node_of_page(data + 2 * mib + at) == last);
      }
    }
    CHECK(peerless::test::shared_mappings() == mappings + 2);  // each in one piece, none of the binding's left
  }
  CHECK(peerless::test::shared_mappings() == mappings);
  if (!has_node(1)) PEERLESS_SKIP("one NUMA node: that pages of two come apart was not seen");
}

TEST_CASE("nodes that are not there are refused, and the memory is good all the same") {
  for (const int node : {63, 1023, 1024, 1 << 30}) {
    if (has_node(node)) continue;
    INFO(node);
    placement_outcome outcome;
    const shared_segment segment = shared_segment::create(2 * mib, {}, [&](const shared_segment& made) {
      outcome = place_pages(made.fd(), 2 * mib, {{0, mib, node}, {mib, mib, -1}}, false);
    });
    CHECK(outcome.refused != 0);
    std::memset(segment.data(), 1, segment.size_bytes());
  }
  CHECK(peerless::prefer_node(-1, {0, 4096, 0}) == EBADF);
  CHECK(peerless::prefer_node(-1, {0, 4096, -1}) == 0);  // no wish
  CHECK(peerless::prefer_node(-1, {0, 0, 0}) == 0);
}

TEST_CASE("huge pages are asked for, got or not") {
  const std::size_t mappings = peerless::test::shared_mappings();
  placement_outcome outcome;
  const shared_segment segment = shared_segment::create(
      8 * mib, {}, [&](const shared_segment& made) { outcome = place_pages(made.fd(), 8 * mib, {}, true); });
  CHECK(outcome.refused == 0);
  CHECK(outcome.huge_bytes % (2 * mib) == 0);
  CHECK(outcome.huge_bytes <= 8 * mib);
  CHECK(peerless::test::shared_mappings() == mappings + 1);
  std::memset(segment.data(), 1, segment.size_bytes());
  CHECK(peerless::huge_bytes_of(segment.data() + 1) == 0);
  CHECK(peerless::take_huge_pages(-1, 2 * mib) == 0);
  if (outcome.huge_bytes == 0) PEERLESS_SKIP("this kernel gives no huge pages to shared memory");
}
