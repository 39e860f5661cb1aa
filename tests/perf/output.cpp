// Table and JSON of peerless_all_reduce_perf.
#include "support/catch.hpp"

#include <sstream>

#include "json_lines.hpp"
#include "machine.hpp"
#include "table.hpp"

using namespace peerless;
using namespace peerless::bench;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

table_row sample_row() {
  return {16384, 8192, dtype::bf16, reduce_op::sum, {11.71, 1.40, 1.40, 0}, {11.67, 1.404, 1.404, 0}, "shm"};
}

}  // namespace

TEST_CASE("a row has the columns of nccl-tests, then the transport") {
  CHECK(format_row(sample_row()) ==
        "       16384          8192  bfloat16     sum      -1    11.71    1.40    1.40       0    11.67    1.40    "
        "1.40       0  shm\n");
}

TEST_CASE("the header stands over its columns") {
  const std::vector<std::string> header = lines_of(table_header());
  REQUIRE(header.size() == 3);
  CHECK(header[1] ==
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
        "busbw  #wrong  transport");
  CHECK(
      header[2].substr(0, header[2].find_last_not_of(' ') + 1) ==
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)");
  CHECK(header[0].size() == header[2].size());
  CHECK(header[0].find("out-of-place") < header[0].find("in-place", header[0].find("out-of-place") + 12));
  const std::string row = format_row(sample_row());
  CHECK(header[1].find("  transport") == row.find("  shm"));
}

TEST_CASE("large and unverified values keep their columns") {
  table_row row = sample_row();
  row.size_bytes = 17179869184u;
  row.n_elements = 8589934592u;
  row.out_of_place = {1234567.891, 1234.567, 12345.67, std::nullopt};
  row.in_place.n_wrong = 123456;
  const std::string text = format_row(row);
  CHECK(text ==
        " 17179869184    8589934592  bfloat16     sum      -1  1234568  1234.6   12346     N/A    11.67    1.40    "
        "1.40  123456  shm\n");
  CHECK(fixed_width(999.99, 6) == "999.99");
  CHECK(fixed_width(99999.99, 7) == " 100000");
}

TEST_CASE("the footer says whether all was right") {
  totals sum;
  sum.add(sample_row());
  CHECK(format_footer("shm", sum) ==
        "# Transport            : shm\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.402\n#\n");
  table_row wrong = sample_row();
  wrong.in_place.n_wrong = 3;
  sum.add(wrong);
  CHECK_THAT(format_footer("shm", sum), test::contains("# Out of bounds values : 3 FAILED\n"));
  CHECK_THAT(format_footer("nccl", totals{}), test::contains("# Avg bus bandwidth    : 0\n"));
}

TEST_CASE("ratios are comments of the table") {
  table_row nccl = sample_row();
  nccl.out_of_place.time_us = 23.42;
  nccl.in_place.time_us = 0;
  CHECK_THAT(ratio_header("nccl", "shm"), test::contains("nccl / time of shm"));
  CHECK(format_ratio(nccl, sample_row()) == "#      16384  bfloat16     sum         2.00x     0.00x\n");
  for (const std::string& line : lines_of(ratio_header("nccl", "shm") + format_ratio(nccl, sample_row()))) {
    CHECK(line.front() == '#');
  }
}

TEST_CASE("a line of JSON has everything that a measurement needs") {
  run_facts run;
  run.version = "1.2.3";
  run.commit = "abc";
  run.machine = {"some CPU", 8, 64.0, "Linux", "580.1"};
  run.gpus = {"GPU A", "GPU B"};
  run.cuda = "13.0";
  run.world = 2;
  run.environment = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_BAD", "\xff\n"}};
  measurement m{{dtype::bf16, reduce_op::sum, 8192, true, 1},
                "shm",
                timing_mode::captured,
                100,
                23,
                {4.5, 4.0, 6.0},
                {4.5, 3.6, 3.6, 0}};
  const std::string line = json_line(run, m);
  REQUIRE(line.back() == '\n');
  REQUIRE(line.find('\n') == line.size() - 1);
  const auto parsed = nlohmann::json::parse(line);
  CHECK(parsed["commit"] == "abc");
  CHECK(parsed["machine"]["cpu"] == "some CPU");
  CHECK(parsed["gpu"].size() == 2);
  CHECK(parsed["driver"] == "580.1");
  CHECK(parsed["nccl"].is_null());
  CHECK(parsed["transport"] == "shm");
  CHECK(parsed["setting"].is_null());
  CHECK(parsed["world"] == 2);
  CHECK(parsed["ranks_as"] == "processes");
  CHECK(parsed["dtype"] == "bfloat16");
  CHECK(parsed["op"] == "sum");
  CHECK(parsed["size_bytes"] == 16384);
  CHECK(parsed["in_place"] == true);
  CHECK(parsed["time_us"]["median"] == 4.5);
  CHECK(parsed["time_us"]["min"] == 4.0);
  CHECK(parsed["time_us"]["p99"] == 6.0);
  CHECK(parsed["algbw"] == 3.6);
  CHECK(parsed["busbw"] == 3.6);
  CHECK(parsed["wrong"] == 0);
  CHECK(parsed["mode"] == "captured");
  CHECK(parsed["iters"] == 100);
  CHECK(parsed["env"]["NCCL_P2P_DISABLE"] == "1");
  CHECK(parsed["date"].get<std::string>().size() == 20);
  m.columns.n_wrong = std::nullopt;
  CHECK(nlohmann::json::parse(json_line(run, m))["wrong"].is_null());
}

TEST_CASE("the document has rows and totals by transport") {
  json_document document{run_facts{}};
  document.add(sample_row());
  totals sum;
  sum.add(sample_row());
  document.add("shm", sum);
  const auto parsed = nlohmann::json::parse(document.text());
  REQUIRE(parsed["results"].size() == 1);
  CHECK(parsed["results"][0]["size"] == 16384);
  CHECK(parsed["results"][0]["count"] == 8192);
  CHECK(parsed["results"][0]["out_of_place"]["time"] == 11.71);
  CHECK(parsed["results"][0]["in_place"]["nwrong"] == 0);
  CHECK(parsed["out_of_bounds"]["shm"]["okay"] == true);
  CHECK(parsed["average_bus_bandwidth"]["shm"].get<double>() - 1.402 < 1e-9);
}

TEST_CASE("facts of the machine are found without a GPU") {
  std::istringstream cpu_info("processor\t: 0\nmodel name with more\t: no\nmodel name\t: Some CPU @ 3 GHz\n");
  CHECK(field_of(cpu_info, "model name") == "Some CPU @ 3 GHz");
  std::istringstream none("flags : a\n");
  CHECK(field_of(none, "model name").empty());
  const machine_facts facts = read_machine_facts();
  CHECK(!facts.cpu.empty());
  CHECK(facts.n_cpus > 0);
  CHECK(facts.memory_gb > 0);
  char a[] = "NCCL_PROTO=LL", b[] = "HOME=/root", c[] = "PEERLESS_LOG=1=2", d[] = "NOEQUALS", e[] = "CUDA_HOME=/x";
  char* environment[] = {a, b, c, d, e, nullptr};
  const auto found = relevant_environment(environment);
  CHECK(found.size() == 2);
  CHECK(found.at("PEERLESS_LOG") == "1=2");
  CHECK(utc_date().size() == 20);
}
