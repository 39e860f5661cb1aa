// Several passes over the same problems, each by new ranks: whole runs repeated, and NCCL under each of several
// settings. NCCL reads its environment once a process, so a setting needs processes of its own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <peerless/core/system_error.hpp>
#include <peerless/core/unique_fd.hpp>

#include "choice.hpp"
#include "exit_code.hpp"
#include "merged_rows.hpp"
#include "options.hpp"

namespace peerless::bench {

// Environment variables and their values, set over what the user has set.
using variables = std::vector<std::pair<std::string, std::string>>;

// "A=1,B=2"; empty for none.
inline std::string text_of(const variables& setting) {
  std::string text;
  for (const auto& [name, value] : setting) text += (text.empty() ? "" : ",") + name + '=' + value;
  return text;
}

// Only where no other thread runs.
inline void set_in_environment(const variables& setting) {
  for (const auto& [name, value] : setting) ::setenv(name.c_str(), value.c_str(), 1);
}

// What moves NCCL's times over host memory in either direction. Buffer sizes and the kind of host memory do not.
inline std::vector<variables> nccl_settings() {
  return {{{"NCCL_MIN_NCHANNELS", "8"}}, {{"NCCL_MIN_NCHANNELS", "16"}},
          {{"NCCL_PROTO", "LL"}},        {{"NCCL_PROTO", "LL"}, {"NCCL_MIN_NCHANNELS", "16"}},
          {{"NCCL_PROTO", "Simple"}},    {{"NCCL_ALGO", "Tree"}}};
}

// All problems of a run once, by ranks that are started for it.
struct pass {
  int run = 1;        // counted from 1
  variables setting;  // empty: the environment as it is
  std::vector<std::string> transports;
};

// Run by run, so that what drifts meanwhile meets all settings alike.
inline std::vector<pass> plan_passes(const options& o, const choice& c) {
  std::vector<pass> plan;
  for (int run = 1; run <= o.n_runs; ++run) {
    plan.push_back({run, {}, c.transports});
    if (!o.nccl_knobs) continue;
    for (variables& setting : nccl_settings()) plan.push_back({run, std::move(setting), {"nccl"}});
  }
  return plan;
}

// What a pass prints: the lines over the table come from the first one, with those about rows that are left out.
enum class shown { everything, preamble, nothing };

// Runs one pass: starts the ranks with `p.setting` in their environment, writes the measurements as lines of JSON to
// the file that the options name, returns an exit code.
using pass_body = std::function<int(const pass& p, const options& o, shown show)>;

// What the passes that were right came to, and the largest exit code of all. A setting that fails is left out from then
// on, and said to be; when the environment as it is fails, the passes after it are not run.
struct passes_result {
  merged_rows rows;
  int exit_code = exit_ok;
};

inline passes_result run_passes(const std::vector<pass>& plan, const options& o, const pass_body& body) {
  passes_result result;
  std::set<std::string> failed;
  for (const pass& p : plan) {
    const std::string setting = text_of(p.setting);
    if (failed.count(setting) > 0) continue;
    const std::string name = "run " + std::to_string(p.run) + (setting.empty() ? "" : ", nccl with " + setting);
    const bool first = &p == &plan.front();
    if (!first) std::printf("# %s\n", name.c_str());
    std::fflush(stdout);
    const unique_fd file(::memfd_create("results", MFD_CLOEXEC));
    if (!file) peerless::detail::raise_errno(errno, "memory for the results of a run");
    options mine = o;
    mine.json_file.clear();
    mine.json_lines_file = "/proc/self/fd/" + std::to_string(file.get());
    const int code = body(p, mine, first ? shown::preamble : shown::nothing);
    result.exit_code = std::max(result.exit_code, code);
    if (code <= exit_wrong_data) {
      std::ifstream lines(mine.json_lines_file);
      for (std::string line; std::getline(lines, line);) result.rows.add(nlohmann::ordered_json::parse(line));
    } else if (p.setting.empty()) {
      break;
    } else {
      failed.insert(setting);
      std::printf("# %s failed and is left out\n", name.c_str());
    }
  }
  return result;
}

}  // namespace peerless::bench
