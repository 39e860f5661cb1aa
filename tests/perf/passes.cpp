// Several runs become one table: which passes there are, what reaches each of them, and what their rows come to.
#include "support/catch.hpp"

#include <cstdlib>
#include <fstream>

#include "passes.hpp"
#include "ranks.hpp"
#include "run.hpp"

using namespace peerless;
using namespace peerless::bench;
using json = nlohmann::ordered_json;

namespace {

json line(const std::string& transport, const std::string& setting, double median, std::size_t bytes = 1024,
          bool in_place = false, std::uint64_t wrong = 0) {
  run_facts facts;
  facts.world = 2;
  facts.setting = setting;
  const problem p{dtype::bf16, reduce_op::sum, bytes / 2, in_place, 1};
  return to_json(facts, {p,
                         transport,
                         timing_mode::captured,
                         100,
                         23,
                         {median, median - 1, median + 1},
                         {median, 0, 0, wrong, std::nullopt, {}}});
}

choice both_on_gpus() { return {2, {"shm", "nccl"}, true, {}}; }

options with_knobs(int n_runs) {
  options o;
  o.n_runs = n_runs;
  o.nccl_knobs = true;
  return o;
}

// Ranks that measure nothing: the time of NCCL depends on the environment that a pass is given.
int told_ranks(const pass& p, const options& o) {
  return run_as_processes(1, [&](int) {
    set_in_environment(p.setting);
    const char* protocol = std::getenv("NCCL_PROTO");
    const char* channels = std::getenv("NCCL_MIN_NCHANNELS");
    std::ofstream out(o.json_lines_file, std::ios::app);
    for (const std::string& name : p.transports) {
      for (const std::size_t bytes : {std::size_t{1024}, std::size_t{1} << 20}) {
        for (const bool in_place : {false, true}) {
          double us = name == "shm" ? 4 : 10 + p.run;
          if (protocol != nullptr && std::string(protocol) == "LL") us = bytes == 1024 ? 9 : 100;
          if (protocol == nullptr && channels != nullptr && bytes > 1024) us = 8;
          out << json_text(line(name, text_of(p.setting), us, bytes, in_place));
        }
      }
    }
    const char* algorithm = std::getenv("NCCL_ALGO");
    return algorithm != nullptr && std::string(algorithm) == "Tree" ? exit_failed : exit_ok;
  });
}

std::size_t n_from_here(const std::string& name) { return ::getenv(name.c_str()) == nullptr ? 0 : 1; }

}  // namespace

TEST_CASE("every run has the environment as it is first, then each setting of NCCL") {
  const std::size_t n_settings = nccl_settings().size();
  const std::vector<pass> plan = plan_passes(with_knobs(3), both_on_gpus());
  REQUIRE(plan.size() == 3 * (1 + n_settings));
  for (std::size_t i = 0; i < plan.size(); ++i) {
    CHECK(plan[i].run == static_cast<int>(i / (1 + n_settings)) + 1);
    CHECK(plan[i].setting.empty() == (i % (1 + n_settings) == 0));
    CHECK(plan[i].transports ==
          (plan[i].setting.empty() ? both_on_gpus().transports : std::vector<std::string>{"nccl"}));
  }
  options repeated;
  repeated.n_runs = 2;
  CHECK(plan_passes(repeated, both_on_gpus()).size() == 2);
  CHECK(text_of({{"A", "1"}, {"B", "2"}}) == "A=1,B=2");
  CHECK(text_of({}).empty());
}

TEST_CASE("a row of several runs is their median, with the least and the largest") {
  merged_rows rows;
  for (const double us : {7.0, 5.0, 30.0}) {
    rows.add(line("shm", "", us));
    rows.add(line("shm", "", us / 2, 1024, true, us == 5.0 ? 3 : 0));
  }
  REQUIRE(rows.rows().size() == 1);
  const merged_rows::halves row = rows.rows().front();
  CHECK(row[0]["time_us"]["median"] == 7.0);
  CHECK(row[0]["time_us"]["min"] == 4.0);
  CHECK(row[0]["time_us"]["p99"] == 31.0);
  CHECK(row[0]["runs"]["n"] == 3);
  CHECK(row[0]["runs"]["min"] == 5.0);
  CHECK(row[0]["runs"]["max"] == 30.0);
  CHECK(row[0]["runs"]["medians"] == json({7.0, 5.0, 30.0}));
  CHECK(row[0]["algbw"] == algorithm_bandwidth(1024, 7.0));
  CHECK(row[0]["wrong"] == 0);
  CHECK(row[1]["wrong"] == 3);
  const table_row of_table = to_table_row(row);
  CHECK_THAT(format_row(of_table, true), test::contains("  shm  5.00..30.00  2.50..15.00\n"));
  CHECK_THAT(format_row(of_table), test::contains("       3  shm\n"));
  CHECK_THAT(table_header(3), test::contains("  transport, least..largest of 3 runs\n"));
}

TEST_CASE("the best of NCCL is the least median of all its settings, size by size and half by half") {
  merged_rows rows;
  const auto add = [&](const char* transport, const char* setting, double small, double in_place, double large) {
    rows.add(line(transport, setting, small));
    rows.add(line(transport, setting, in_place, 1024, true));
    for (const bool half : {false, true}) rows.add(line(transport, setting, large, 4096, half));
  };
  add("shm", "", 1, 1, 1);
  add("nccl", "", 10, 12, 30);
  add("nccl", "NCCL_PROTO=LL", 11, 11, 20);
  add("nccl", "NCCL_ALGO=Tree", 12, 13, 25);
  const auto all = rows.rows();
  REQUIRE(all.size() == 10);
  std::vector<std::string> labels;
  for (const auto& row : all) labels.push_back(label_of(to_table_row(row)));
  CHECK(labels[0] == "shm");
  CHECK(labels[1] == "nccl");
  CHECK(labels[2] == "nccl:NCCL_PROTO=LL");
  CHECK(labels[4] == "nccl-best");
  CHECK(labels[9] == "nccl-best");
  CHECK(all[4][0]["time_us"]["median"] == 10.0);
  CHECK(all[4][0]["setting"].is_null());
  CHECK(all[4][1]["time_us"]["median"] == 11.0);
  CHECK(all[4][1]["setting"] == "NCCL_PROTO=LL");
  CHECK(all[9][0]["time_us"]["median"] == 20.0);
  CHECK(all[9][0]["setting"] == "NCCL_PROTO=LL");
  CHECK(format_ratio(to_table_row(all[4]), to_table_row(all[0]), true) ==
        "#       1024  bfloat16     sum        10.00x    11.00x  as-it-comes  NCCL_PROTO=LL\n");
}

TEST_CASE("without settings there is no best") {
  merged_rows rows;
  for (const bool half : {false, true}) rows.add(line("nccl", "", 10, 1024, half));
  REQUIRE(rows.rows().size() == 1);
  CHECK(rows.rows()[0][0]["transport"] == "nccl");
}

TEST_CASE("each pass has its setting in processes of its own, and a setting that fails costs only itself") {
  ::unsetenv("NCCL_PROTO");
  ::unsetenv("NCCL_MIN_NCHANNELS");
  ::unsetenv("NCCL_ALGO");
  const options o = with_knobs(3);
  int n_passes = 0, n_preambles = 0;
  const passes_result result =
      run_passes(plan_passes(o, both_on_gpus()), o, [&](const pass& p, const options& mine, shown show) {
        ++n_passes;
        n_preambles += show == shown::preamble ? 1 : 0;
        CHECK(show != shown::everything);
        return told_ranks(p, mine);
      });
  CHECK(result.exit_code == exit_failed);
  CHECK(n_passes == 3 * 7 - 2);
  CHECK(n_preambles == 1);
  CHECK(n_from_here("NCCL_PROTO") + n_from_here("NCCL_MIN_NCHANNELS") + n_from_here("NCCL_ALGO") == 0);
  const auto rows = result.rows.rows();
  REQUIRE(rows.size() == 2 * (2 + 5 + 1));
  CHECK(rows[0][0]["transport"] == "shm");
  CHECK(rows[0][0]["runs"]["n"] == 3);
  CHECK(rows[1][0]["time_us"]["median"] == 12.0);
  CHECK(rows[1][0]["runs"]["min"] == 11.0);
  CHECK(rows[1][0]["runs"]["max"] == 13.0);
  CHECK(rows[7][0]["transport"] == "nccl-best");
  CHECK(rows[7][0]["setting"] == "NCCL_PROTO=LL");
  CHECK(rows[7][0]["time_us"]["median"] == 9.0);
  CHECK(rows[15][1]["setting"] == "NCCL_MIN_NCHANNELS=8");
  CHECK(rows[15][1]["time_us"]["median"] == 8.0);
}

TEST_CASE("when the environment as it is fails, nothing more is run, and what was right is kept") {
  const options o = with_knobs(3);
  int n_passes = 0;
  const passes_result result =
      run_passes(plan_passes(o, both_on_gpus()), o, [&](const pass& p, const options& mine, shown) {
        ++n_passes;
        return p.run == 2 ? static_cast<int>(exit_failed) : told_ranks({p.run, {}, p.transports}, mine);
      });
  CHECK(result.exit_code == exit_failed);
  CHECK(n_passes == 7 + 1);
  CHECK(result.rows.rows().front()[0]["runs"]["n"] == 1);
}
