// The program peerless_all_reduce_perf itself, on CPUs: what it prints, writes and returns, and that it leaves nothing.
#include "support/catch.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <peerless/core/unique_fd.hpp>

#include "support/leak_check.hpp"

namespace {

using variables = std::map<std::string, std::string>;

struct outcome {
  int exit_code = -1;  // 128 + signal where one ended it
  std::string out, complaints;
};

// A started run; its output goes to two files in memory.
class started {
 public:
  started(std::vector<std::string> arguments, const variables& environment) {
    arguments.insert(arguments.begin(), PEERLESS_TEST_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "PEERLESS_TRANSPORT", "PEERLESS_RANK"})
      ::unsetenv(name);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::dup2(out_.get(), STDOUT_FILENO);
    ::dup2(complaints_.get(), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }

  int pid() const { return pid_; }

  outcome end() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text(out_), text(complaints_)};
  }

  std::string output_so_far() const { return text(out_); }

 private:
  static std::string text(const peerless::unique_fd& file) {
    std::string all;
    std::array<char, 4096> part;
    for (::off_t at = 0;;) {
      const ssize_t n = ::pread(file.get(), part.data(), part.size(), at);
      if (n <= 0) return all;
      all.append(part.data(), static_cast<std::size_t>(n));
      at += n;
    }
  }

  int pid_ = -1;
  peerless::unique_fd out_{::memfd_create("output", MFD_CLOEXEC)},
      complaints_{::memfd_create("complaints", MFD_CLOEXEC)};
};

outcome run(std::vector<std::string> arguments, const variables& environment = {}) {
  return started(std::move(arguments), environment).end();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The columns of every data line.
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(text)) {
    if (line.empty() || line.front() == '#' || line.front() == '{') continue;
    std::istringstream stream(line);
    std::vector<std::string> columns;
    for (std::string column; stream >> column;) columns.push_back(column);
    rows.push_back(columns);
  }
  return rows;
}

std::string temporary_file() {
  char name[] = "/tmp/peerless-perf-XXXXXX";
  const int fd = ::mkstemp(name);
  REQUIRE(fd >= 0);
  ::close(fd);
  return name;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::vector<std::string> quick{"--samples", "3", "-n", "3", "-w", "1"};

std::vector<std::string> with_quick(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), quick.begin(), quick.end());
  return arguments;
}

void expect_clean_rows(const outcome& o, std::size_t n_rows) {
  INFO(o.out << o.complaints);
  CHECK(o.exit_code == 0);
  CHECK(o.complaints.empty());
  const auto rows = rows_of(o.out);
  REQUIRE(rows.size() == n_rows);
  for (const auto& row : rows) {
    REQUIRE(row.size() == 14);
    CHECK(row[4] == "-1");
    CHECK(std::stod(row[5]) > 0);
    CHECK(std::stod(row[9]) > 0);
    CHECK(row[8] == "0");
    CHECK(row[12] == "0");
    CHECK(row[13] == "host");
  }
  CHECK_THAT(o.out, peerless::test::contains("# Out of bounds values : 0 OK\n"));
  CHECK_THAT(o.out, peerless::test::contains("# Avg bus bandwidth    : "));
}

}  // namespace

TEST_CASE("without a GPU two processes exchange host memory, and it is said") {
  const outcome o = run(with_quick({"-b", "1K", "-e", "64K"}));
  expect_clean_rows(o, 4);
  CHECK_THAT(o.out, peerless::test::contains("# no GPU ("));
  CHECK_THAT(o.out, peerless::test::contains("host memory"));
  CHECK_THAT(o.out, peerless::test::contains("# world 2 as processes"));
  CHECK(rows_of(o.out)[0][0] == "1024");
  CHECK(rows_of(o.out)[3][1] == "32768");
  CHECK(rows_of(o.out)[3][2] == "bfloat16");
}

TEST_CASE("worlds, threads, types, operations and steps") {
  expect_clean_rows(run(with_quick({"-b", "1K", "-e", "1K", "-g", "4"})), 1);
  expect_clean_rows(run(with_quick({"-b", "1K", "-e", "1K", "-g", "1"})), 1);
  const outcome threads =
      run(with_quick({"-b", "64", "-e", "4K", "-f", "8", "-g", "3", "--threads", "-d", "all", "-o", "all"}));
  expect_clean_rows(threads, 3 * 12 * 5);
  CHECK_THAT(threads.out, peerless::test::contains("# world 3 as threads"));
  const outcome steps = run(with_quick({"-b", "1000", "-e", "3000", "-i", "1000", "-t", "2", "-d", "double"}));
  expect_clean_rows(steps, 3);
  CHECK_THAT(steps.out, peerless::test::contains("# world 2 as threads"));
  CHECK(rows_of(steps.out)[1][0] == "2000");
}

TEST_CASE("unchecked rows say so") {
  const outcome o = run(with_quick({"-b", "1K", "-e", "1K", "-c", "0"}));
  CHECK(o.exit_code == 0);
  const auto rows = rows_of(o.out);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0][8] == "N/A");
  CHECK(rows[0][12] == "N/A");
}

TEST_CASE("JSON goes to files, a line a measurement and a document a run") {
  const std::string lines_file = temporary_file(), document_file = temporary_file();
  const auto arguments = with_quick({"-b", "1K", "-e", "4K", "--json-lines", lines_file, "-J", document_file});
  expect_clean_rows(run(arguments, {{"NCCL_P2P_DISABLE", "1"}}), 2);
  expect_clean_rows(run(arguments), 2);  // lines are appended, the document is replaced
  const std::vector<std::string> lines = lines_of(content_of(lines_file));
  REQUIRE(lines.size() == 8);
  std::size_t n_in_place = 0;
  for (const std::string& line : lines) {
    const auto parsed = nlohmann::json::parse(line);
    CHECK(parsed["transport"] == "host");
    CHECK(parsed["mode"] == "host");
    CHECK(parsed["world"] == 2);
    CHECK(parsed["wrong"] == 0);
    CHECK(parsed["iters"] == 3);
    CHECK(parsed["samples"] == 3);
    CHECK(parsed["time_us"]["min"] <= parsed["time_us"]["median"]);
    CHECK(parsed["time_us"]["median"] <= parsed["time_us"]["p99"]);
    CHECK(parsed["gpu"].empty());
    n_in_place += parsed["in_place"] == true ? 1 : 0;
  }
  CHECK(n_in_place == 4);
  CHECK(nlohmann::json::parse(lines[0])["env"]["NCCL_P2P_DISABLE"] == "1");
  const auto document = nlohmann::json::parse(content_of(document_file));
  CHECK(document["results"].size() == 2);
  CHECK(document["out_of_bounds"]["host"]["okay"] == true);
  std::remove(lines_file.c_str());
  std::remove(document_file.c_str());
}

TEST_CASE("repeated runs are one table with a spread, by new ranks each, processes or threads") {
  for (const bool threads : {false, true}) {
    const std::string lines_file = temporary_file(), document_file = temporary_file();
    auto arguments =
        with_quick({"-b", "1K", "-e", "4K", "--repeat", "3", "--json-lines", lines_file, "-J", document_file});
    if (threads) arguments.push_back("--threads");
    const outcome o = run(arguments, {{"PEERLESS_LOG", "0"}});
    INFO(o.out << o.complaints);
    CHECK(o.exit_code == 0);
    const auto rows = rows_of(o.out);
    REQUIRE(rows.size() == 2);
    for (const auto& row : rows) {
      REQUIRE(row.size() == 16);
      CHECK(row[13] == "host");
      CHECK_THAT(row[14], peerless::test::contains(".."));
    }
    CHECK_THAT(o.out, peerless::test::contains("# run 2\n# run 3\n"));
    const std::vector<std::string> lines = lines_of(content_of(lines_file));
    REQUIRE(lines.size() == 4);
    for (const std::string& line : lines) {
      const auto parsed = nlohmann::json::parse(line);
      CHECK(parsed["ranks_as"] == (threads ? "threads" : "processes"));
      CHECK(parsed["runs"]["n"] == 3);
      CHECK(parsed["runs"]["medians"].size() == 3);
      CHECK(parsed["runs"]["min"] <= parsed["time_us"]["median"]);
      CHECK(parsed["time_us"]["median"] <= parsed["runs"]["max"]);
      CHECK(parsed["setting"].is_null());
      CHECK(parsed["env"]["PEERLESS_LOG"] == "0");
    }
    const auto document = nlohmann::json::parse(content_of(document_file));
    REQUIRE(document["results"].size() == 2);
    CHECK(document["results"][0]["in_place"]["runs"]["min"] <= document["results"][0]["in_place"]["time"]);
    std::remove(lines_file.c_str());
    std::remove(document_file.c_str());
  }
}

TEST_CASE("what cannot be served is one clear error, and nothing is measured") {
  const struct {
    std::vector<std::string> arguments;
    variables environment;
    const char* reason;
  } cases[] = {
      {{"-d", "int4"}, {}, "'int4' is not known"},
      {{"-o", "xor"}, {}, "'xor' is not known"},
      {{"-b", "many"}, {}, "'many' is not a size"},
      {{"--transports", "shm"}, {}, "transport shm needs a "},
      {{"--transports", "carrier-pigeon"}, {}, "does not exist"},
      {{"--transports", "host", "--nccl-knobs"}, {}, "--nccl-knobs needs rows of NCCL"},
      {{"--repeat", "0"}, {}, "--repeat"},
      {{"--no-such-flag"}, {}, "--no-such-flag"},
      {{"-b", "1K", "-e", "1K", "-J", "/no/such/folder/x"}, {}, "cannot write /no/such/folder/x"},
      {{}, {{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {{}, {{"WORLD_SIZE", "2"}, {"RANK", "one"}}, "one"},
      {{"-g", "3"}, {{"WORLD_SIZE", "2"}, {"RANK", "5"}}, "RANK"},
  };
  for (const auto& c : cases) {
    const outcome o = run(c.arguments, c.environment);
    INFO(o.out << o.complaints);
    CHECK(o.exit_code == 2);
    CHECK_THAT(o.complaints, peerless::test::contains(c.reason));
    CHECK(rows_of(o.out).empty());
  }
}

TEST_CASE("a bad setting of the library ends every rank") {
  const peerless::test::leak_check before;
  const outcome o = run(with_quick({"-b", "1K", "-e", "1K"}), {{"PEERLESS_DEADLINE_MS", "soon"}});
  INFO(o.out << o.complaints);
  CHECK(o.exit_code >= 2);
  CHECK_THAT(o.complaints, peerless::test::contains("PEERLESS_DEADLINE_MS"));
  CHECK(rows_of(o.out).empty());
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("help and version need nothing") {
  const outcome help = run({"--help"});
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, peerless::test::contains("--minbytes"));
  const outcome version = run({"--version"});
  CHECK(version.exit_code == 0);
  CHECK_THAT(version.out, peerless::test::contains("peerless_all_reduce_perf "));
}

TEST_CASE("ranks of a launcher meet by its variables") {
  const auto arguments = with_quick({"-b", "1K", "-e", "1K"});
  const std::string job = "perf-test-" + std::to_string(::getpid());
  const auto rank = [&](const char* number) {
    return variables{{"RANK", number}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", number}, {"PEERLESS_JOB_ID", job}};
  };
  started first(arguments, rank("0"));
  started second(arguments, rank("1"));
  expect_clean_rows(first.end(), 1);
  const outcome other = second.end();
  CHECK(other.exit_code == 0);
  CHECK(other.out.empty());
}

TEST_CASE("a rank of a launcher that stays alone ends at its deadline") {
  const outcome o =
      run({"-b", "1K", "-e", "1K", "--deadline", "0.5"},
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PEERLESS_JOB_ID", "alone-" + std::to_string(::getpid())}});
  CHECK(o.exit_code == 3);
  CHECK_THAT(o.complaints, peerless::test::contains("1"));
}

namespace {

// A run that goes on until something happens to it; waits until it measures.
started endless() {
  started run({"-b", "1000", "-e", "1000000", "-i", "2", "-g", "3", "--samples", "3", "-n", "3", "--deadline", "3"},
              {});
  for (int i = 0; i < 1000 && run.output_so_far().find("transport\n") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return run;
}

int a_child_of(int pid) {
  for (const std::string& name : peerless::test::detail::names_in("/proc")) {
    if (peerless::test::detail::is_number(name) && peerless::test::detail::parent_of(std::stoi(name)) == pid)
      return std::stoi(name);
  }
  return 0;
}

}  // namespace

TEST_CASE("a killed rank ends the run, by name and with nothing left") {
  peerless::test::adopt_orphans();
  const peerless::test::leak_check before;
  {
    started run = endless();
    const int rank = a_child_of(run.pid());
    REQUIRE(rank > 0);
    const auto killed = std::chrono::steady_clock::now();
    ::kill(rank, SIGKILL);
    const outcome o = run.end();
    INFO(o.complaints);
    CHECK(o.exit_code == 3);
    CHECK_THAT(o.complaints, peerless::test::contains("was killed by signal"));
    CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(10));
  }
  CHECK(before.left_behind() == std::vector<std::string>{});
}

TEST_CASE("a stopped rank ends the run at the deadline") {
  const auto begin = std::chrono::steady_clock::now();
  started run = endless();
  const int rank = a_child_of(run.pid());
  REQUIRE(rank > 0);
  ::kill(rank, SIGSTOP);
  const outcome o = run.end();
  INFO(o.complaints);
  CHECK(o.exit_code == 3);
  CHECK(!o.complaints.empty());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

TEST_CASE("ranks end with the program that made them") {
  peerless::test::adopt_orphans();
  const peerless::test::leak_check before;
  {
    started run = endless();
    ::kill(run.pid(), SIGKILL);
    CHECK(run.end().exit_code == 128 + SIGKILL);
  }
  for (const std::string& problem : before.left_behind()) {
    INFO(problem);
    CHECK(problem.find("descriptors") == 0);
  }
}
