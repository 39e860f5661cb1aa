// Where slots belong, on boxes of every shape.
#include <peerless/transport/placement.hpp>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"

using peerless::numa_node_of_pci;
using peerless::region_nodes;
using nodes = std::vector<int>;

namespace {

const std::string fixtures = PEERLESS_TEST_FIXTURES;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

// The NUMA node of each GPU as `nvidia-smi topo -m` shows it; -1 where it shows none, or several.
nodes nodes_of_matrix(const std::string& name) {
  std::ifstream file(fixtures + "/" + name);
  nodes found;
  std::size_t column = 0;
  for (std::string line; std::getline(file, line);) {
    const auto fields = fields_of(line);
    for (std::size_t i = 0; column == 0 && i < fields.size(); ++i) {
      if (fields[i] == "NUMA Affinity") column = i;
    }
    if (fields.empty() || !std::regex_match(fields[0], std::regex("GPU[0-9]+"))) continue;
    const bool one = column != 0 && column < fields.size() && std::regex_match(fields[column], std::regex("[0-9]+"));
    found.push_back(one ? std::stoi(fields[column]) : -1);
  }
  return found;
}

// PCI addresses of the GPUs of a tree, in order.
std::vector<std::string> gpus_of_tree(const std::string& name) {
  std::ifstream file(fixtures + "/" + name + ".tree");
  std::vector<std::string> found;
  const std::regex gpu("/sys/devices/.*/([0-9a-f:.]+) +# GPU.*");
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, gpu)) found.push_back(match[1]);
  }
  return found;
}

std::string sysfs_of(const std::string& name) { return std::string(PEERLESS_TEST_BOXES) + "/" + name + "/sys"; }

nodes nodes_of_tree(const std::string& name) {
  nodes found;
  for (const auto& address : gpus_of_tree(name)) found.push_back(numa_node_of_pci(address, sysfs_of(name)));
  return found;
}

}  // namespace

TEST_CASE("slots lie with most of their readers") {
  struct box {
    const char* matrix;
    nodes of_gpus;
    nodes of_regions;
  };
  for (const box& b :
       {box{"t01_dual_phb.topo", {0, 0}, {0, 0}}, box{"t04_2xa10_nonuma.topo", {-1, -1}, {-1, -1}},
        box{"t05_hedt_sys.topo", {-1, 1}, {1, -1}},  // rank 1's only reader is on an unknown node
        box{"t10_8xa6000_nv4.topo", {0, 0, 0, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0, 0, 0}},
        box{"t13_1plus3.topo", {0, 1, 1, 1}, {1, 1, 1, 1}}, box{"t16_4xl40s_vm.topo", {0, 0, 1, 1}, {1, 1, 0, 0}},
        box{"t17_4xl40s_node.topo", {0, 0, 1, 1}, {1, 1, 0, 0}}, box{"t23_single.topo", {-1}, {-1}},
        box{"t26_3gpu_nv12.topo", {0, 0, 1}, {0, 0, 0}}}) {  // ranks 0 and 1: one reader on each
    INFO(b.matrix);
    const nodes found = nodes_of_matrix(b.matrix);
    CHECK(found == b.of_gpus);
    CHECK(region_nodes(found) == b.of_regions);
  }
  CHECK(region_nodes({}).empty());
  CHECK(region_nodes(nodes{3}) == nodes{-1});
  CHECK(region_nodes(nodes{1, 0}) == nodes{0, 1});
  CHECK(region_nodes(nodes{5, 9, 7}) == nodes{7, 5, 5});  // ties: the lowest
  CHECK(region_nodes(nodes{-1, -1, 2, -1}) == nodes{2, 2, -1, 2});
}

TEST_CASE("nodes of GPUs by their PCI address") {
  CHECK(nodes_of_tree("t13_1plus3") == nodes{0, 1, 1, 1});
  CHECK(nodes_of_tree("t15_4xpro6000") == nodes{0, 0, 0, 0});
  CHECK(nodes_of_tree("t33_8gpu_pix_pxb") == nodes{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(region_nodes(nodes_of_tree("t33_8gpu_pix_pxb")) == nodes{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(nodes_of_tree("t18_vm_flat") == nodes(8, -1));     // files that say -1
  CHECK(nodes_of_tree("t02_2x3090_phb") == nodes(2, -1));  // no files
  CHECK(region_nodes(nodes_of_tree("t18_vm_flat")) == nodes(8, -1));
}

TEST_CASE("spellings of a PCI address, and what is no node") {
  const std::string sysfs = sysfs_of("t13_1plus3");
  for (const char* same : {"0000:c1:00.0", "0000:C1:00.0", "00000000:C1:00.0"})
    CHECK(numa_node_of_pci(same, sysfs) == 1);
  for (const char* other : {"", ":", "0000:ff:00.0", "c1:00.0", "../0000:c1:00.0", "0001:c1:00.0", "MIG-1234"})
    CHECK(numa_node_of_pci(other, sysfs) == -1);
  CHECK(numa_node_of_pci("0000:c1:00.0", "/no such sysfs") == -1);

  const std::string root = std::string(PEERLESS_TEST_BOXES) + "/edges";
  std::filesystem::remove_all(root);
  const auto lay = [&](const std::string& address, const std::string& text) {
    std::filesystem::create_directories(root + "/bus/pci/devices/" + address);
    std::ofstream(root + "/bus/pci/devices/" + address + "/numa_node") << text;
    return numa_node_of_pci(address, root);
  };
  CHECK(lay("0000:01:00.0", "1\n") == 1);
  CHECK(lay("10000:01:00.0", "3\n") == 3);  // a domain of five digits
  CHECK(lay("0000:02:00.0", "") == -1);
  CHECK(lay("0000:03:00.0", "\n") == -1);
  CHECK(lay("0000:04:00.0", "-1\n") == -1);
  CHECK(lay("0000:05:00.0", "none\n") == -1);
  CHECK(lay("0000:06:00.0", "99999999999999\n") == -1);
  std::filesystem::create_directories(root + "/bus/pci/devices/0000:07:00.0/numa_node");  // not to be read
  CHECK(numa_node_of_pci("0000:07:00.0", root) == -1);
}

TEST_CASE("places are whole regions of the layout") {
  const auto layout = peerless::make_layout({.world_size = 3});
  const auto places = peerless::region_places(layout, nodes{-1, 4, -1});
  REQUIRE(places.size() == 2);  // rank 1's readers are unknown
  CHECK((places[0].offset == layout.regions && places[0].bytes == layout.region_bytes && places[0].node == 4));
  CHECK((places[1].offset == layout.regions + 2 * layout.region_bytes && places[1].node == 4));
  CHECK(places[1].offset + places[1].bytes == layout.total_bytes);
  CHECK(peerless::region_places(layout, nodes{-1, -1, -1}).empty());
}
