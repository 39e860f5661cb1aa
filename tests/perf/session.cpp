// What a run does with what its ranks measure: the slowest rank counts, wrong elements add up, and one fails the run.
#include "support/catch.hpp"

#include <fstream>
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
  double us = 1;                         // every sample
  std::uint64_t wrong_before = 0;        // what verify() finds
  std::uint64_t wrong_in_place = 0;      // ... in place
  std::uint64_t wrong_after = 0;         // what verify_output() finds
  std::vector<problem> verified, timed;  // in order

  std::string_view name() const override { return "told"; }
  std::string describe() const override { return "told"; }
  timing_mode mode() const override { return timing_mode::host; }
  std::uint64_t verify(const problem& p) override {
    verified.push_back(p);
    return p.in_place ? wrong_in_place : wrong_before;
  }
  sampling plan_samples(const problem&) override { return {7, 3}; }
  std::vector<double> time(const problem& p, sampling s) override {
    timed.push_back(p);
    return std::vector<double>(static_cast<std::size_t>(s.n_samples), us);
  }
  std::uint64_t verify_output(const problem&) override { return wrong_after; }
};

struct result {
  bool all_right[2] = {};
  std::vector<nlohmann::json> lines;
};

// Two ranks, as threads; `arms` holds the arm of each.
result run_two(const options& given, told_arm* (&arms)[2]) {
  options o = given;
  char path[] = "/tmp/peerless-perf-XXXXXX";
  ::close(::mkstemp(path));
  o.json_lines_file = path;
  const thread_group group(2);
  result all;
  run_facts facts;
  facts.world = 2;
  const auto rank = [&](int r) {
    auto boot = group.rank(r);
    watchdog guard(r, std::chrono::seconds(30));
    std::optional<reporter> out;
    if (r == 0) out.emplace(o, facts);
    std::vector<std::unique_ptr<arm>> mine;
    mine.emplace_back(arms[r]);
    all.all_right[r] = session(boot, o, guard, out ? &*out : nullptr).run(mine, run_sizes(o, false));
    (void)mine.front().release();
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) all.lines.push_back(nlohmann::json::parse(line));
  std::remove(path);
  return all;
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
