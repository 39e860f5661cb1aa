// What a run does with what its ranks measure: the slowest rank counts, wrong elements add up, and one fails the run.
#include "support/catch.hpp"

#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include <peerless/bootstrap/thread_group.hpp>

#include "run.hpp"

using namespace peerless;
using namespace peerless::bench;

namespace {

// Says what it is told to say, and remembers what it was asked.
class told_arm final : public arm {
 public:
  std::string called = "told";
  // Sizes outside of these it refuses.
  std::size_t least_bytes = 0, most_bytes = std::numeric_limits<std::size_t>::max();
  double us = 1, us_per_kib = 0;         // every sample
  std::uint64_t wrong_before = 0;        // what verify() finds
  std::uint64_t wrong_in_place = 0;      // ... in place
  std::uint64_t wrong_after = 0;         // what verify_output() finds
  std::vector<problem> verified, timed;  // in order

  std::string_view name() const override { return called; }
  std::string describe() const override { return "told"; }
  timing_mode mode() const override { return timing_mode::host; }
  std::string refuses(const problem& p) override {
    return p.bytes() < least_bytes ? "too small" : p.bytes() > most_bytes ? "too large" : "";
  }
  std::uint64_t verify(const problem& p) override {
    verified.push_back(p);
    return p.in_place ? wrong_in_place : wrong_before;
  }
  sampling plan_samples(const problem&) override { return {7, 3}; }
  std::vector<double> time(const problem& p, sampling s) override {
    timed.push_back(p);
    return std::vector<double>(static_cast<std::size_t>(s.n_samples),
                               us + us_per_kib * static_cast<double>(p.bytes()) / 1024);
  }
  std::uint64_t verify_output(const problem&) override { return wrong_after; }
};

struct result {
  bool all_right[2] = {};
  std::vector<nlohmann::json> lines;
  std::string printed;
};

// A file without a name in place of standard output.
class captured_stdout {
 public:
  captured_stdout() : file_(std::tmpfile()), before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    ::dup2(::fileno(file_), STDOUT_FILENO);
  }
  captured_stdout(const captured_stdout&) = delete;
  captured_stdout& operator=(const captured_stdout&) = delete;
  ~captured_stdout() {
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
    std::fclose(file_);
  }

  std::string text() const {
    std::fflush(stdout);
    std::rewind(file_);
    std::string all;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  std::FILE* file_;
  int before_;
};

// Two ranks, as threads; `sets` holds the arms of each.
result run_two(const options& given, const std::vector<told_arm*> (&sets)[2], bool with_notes = true) {
  options o = given;
  char path[] = "/tmp/peerless-perf-XXXXXX";
  ::close(::mkstemp(path));
  o.json_lines_file = path;
  const captured_stdout screen;
  const thread_group group(2);
  result all;
  run_facts facts;
  facts.world = 2;
  const auto rank = [&](int r) {
    auto boot = group.rank(r);
    watchdog guard(r, std::chrono::seconds(30));
    std::optional<reporter> out;
    if (r == 0) out.emplace(o, facts, true, with_notes);
    std::vector<std::unique_ptr<arm>> mine;
    for (told_arm* each : sets[r]) mine.emplace_back(each);
    all.all_right[r] = session(boot, o, guard, out ? &*out : nullptr).run(mine, run_sizes(o, false));
    if (out) out->finish();
    for (auto& each : mine) (void)each.release();
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) all.lines.push_back(nlohmann::json::parse(line));
  std::remove(path);
  all.printed = screen.text();
  return all;
}

result run_two(const options& given, told_arm* (&arms)[2]) {
  const std::vector<told_arm*> sets[2]{{arms[0]}, {arms[1]}};
  return run_two(given, sets);
}

options two_sizes() {
  options o;
  o.min_bytes = 1024;
  o.max_bytes = 4096;
  return o;
}

}  // namespace

TEST_CASE("the slowest rank is the time, and every problem is verified on fresh data before it is timed") {
  told_arm first, second;
  first.us = 2;
  second.us = 8;
  told_arm* arms[2] = {&first, &second};
  const result all = run_two(two_sizes(), arms);
  CHECK(all.all_right[0]);
  CHECK(all.all_right[1]);
  REQUIRE(all.lines.size() == 4);
  CHECK(all.lines[0]["time_us"]["median"] == 8.0);
  CHECK(all.lines[0]["iters"] == 7);
  CHECK(all.lines[0]["samples"] == 3);
  CHECK(all.lines[0]["in_place"] == false);
  CHECK(all.lines[1]["in_place"] == true);
  CHECK(all.lines[2]["size_bytes"] == 4096);
  REQUIRE(first.verified.size() == 4);
  REQUIRE(first.timed.size() == 4);
  std::set<std::uint64_t> seeds;
  for (std::size_t i = 0; i < 4; ++i) {
    seeds.insert(first.verified[i].seed);
    CHECK(first.verified[i].seed == second.verified[i].seed);
    CHECK(first.verified[i].seed == first.timed[i].seed);
    CHECK(first.verified[i].in_place == (i % 2 == 1));
  }
  CHECK(seeds.size() == 4);
}

TEST_CASE("wrong elements of all ranks add up, and fail the run on all of them") {
  told_arm first, second;
  second.wrong_before = 3;
  first.wrong_before = 2;
  told_arm* arms[2] = {&first, &second};
  const result all = run_two(two_sizes(), arms);
  CHECK(!all.all_right[0]);
  CHECK(!all.all_right[1]);
  CHECK(all.lines.at(0)["wrong"] == 5);
  CHECK(all.lines.at(1)["wrong"] == 0);
}

TEST_CASE("one wrong element of one rank in place is enough, and so is one that only the last timed call got wrong") {
  for (const bool in_place : {false, true}) {
    told_arm first, second;
    (in_place ? second.wrong_in_place : second.wrong_after) = 1;
    told_arm* arms[2] = {&first, &second};
    const result all = run_two(two_sizes(), arms);
    CHECK(!all.all_right[0]);
    CHECK(all.lines.at(in_place ? 1 : 0)["wrong"] == 1);
  }
}

TEST_CASE("what is not checked is neither right nor wrong") {
  told_arm first, second;
  first.wrong_after = 1;
  told_arm* arms[2] = {&first, &second};
  options o = two_sizes();
  o.check = false;
  const result all = run_two(o, arms);
  CHECK(all.all_right[0]);
  CHECK(all.lines.at(0)["wrong"].is_null());
}

TEST_CASE("a size that an arm refuses costs that row, is said in one line, and fails nothing") {
  told_arm nccl[2], small[2], large[2];
  for (int r : {0, 1}) {
    nccl[r].called = "nccl";
    nccl[r].us = 4;
    nccl[r].us_per_kib = 4;
    small[r].called = "small";
    small[r].most_bytes = 1024;
    small[r].us = 4;
    large[r].called = "large";
    large[r].least_bytes = 4096;
    large[r].us = 2;
  }
  const std::vector<told_arm*> sets[2]{{&nccl[0], &small[0], &large[0]}, {&nccl[1], &small[1], &large[1]}};
  const result all = run_two(two_sizes(), sets);
  CHECK(all.all_right[0]);
  CHECK(all.all_right[1]);
  std::vector<std::pair<std::string, std::size_t>> measured;
  for (const auto& line : all.lines) {
    if (line["in_place"] == false) measured.emplace_back(line["transport"], line["size_bytes"]);
  }
  CHECK(all.lines.size() == 8);
  CHECK(measured == std::vector<std::pair<std::string, std::size_t>>{
                        {"nccl", 1024}, {"small", 1024}, {"nccl", 4096}, {"large", 4096}});
  for (int r : {0, 1}) {
    CHECK(small[r].verified.size() == 2);
    CHECK(large[r].timed.size() == 2);
  }
  const auto n_of = [&](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = all.printed.find(text); at != std::string::npos; at = all.printed.find(text, at + 1)) ++n;
    return n;
  };
  CHECK(n_of("is left out") == 2);
  CHECK(n_of("#       1024           512  bfloat16     sum      -1  large is left out: too small\n") == 1);
  CHECK(n_of("#       4096          2048  bfloat16     sum      -1  small is left out: too large\n") == 1);
  // Ratios are of rows of one size, wherever they stand.
  CHECK(n_of("#       1024  bfloat16     sum         2.00x     2.00x\n") == 1);
  CHECK(n_of("#       4096  bfloat16     sum        10.00x    10.00x\n") == 1);
  CHECK(n_of("x\n") == 2);
}

TEST_CASE("a row that all sizes are refused for leaves no trace but lines, and those where they are wanted") {
  told_arm arms[2], never[2];
  for (int r : {0, 1}) {
    never[r].called = "never";
    never[r].most_bytes = 0;
  }
  const std::vector<told_arm*> sets[2]{{&arms[0], &never[0]}, {&arms[1], &never[1]}};
  const result said = run_two(two_sizes(), sets);
  CHECK(said.all_right[0]);
  CHECK(said.lines.size() == 4);
  CHECK_THAT(said.printed, test::contains("never is left out: too large\n"));
  CHECK_THAT(said.printed, !test::contains("# Transport            : never"));
  const result unsaid = run_two(two_sizes(), sets, false);
  CHECK(unsaid.lines.size() == 4);
  CHECK_THAT(unsaid.printed, !test::contains("never"));
}
