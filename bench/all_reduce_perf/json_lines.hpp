// Results for programs: one JSON object a measurement, or one document with everything.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "machine.hpp"
#include "problem.hpp"
#include "statistics.hpp"
#include "table.hpp"

namespace peerless::bench {

// What all measurements of a run have in common.
struct run_facts {
  std::string version, commit, compiler;
  machine_facts machine;
  std::vector<std::string> gpus;  // by rank; empty where host memory is used
  std::string cuda, nccl;         // versions in use; empty where they are not
  int world = 0;
  bool ranks_are_threads = false;
  std::map<std::string, std::string> environment;
  std::string setting;  // what the program itself has set in the environment, as A=1,B=2
};

// How samples are taken.
enum class timing_mode { captured, eager, host };

inline const char* name_of(timing_mode mode) {
  switch (mode) {
    case timing_mode::captured: return "captured";
    case timing_mode::eager: return "eager";
    case timing_mode::host: return "host";
  }
  return "?";
}

// One measurement: half a row of the table.
struct measurement {
  problem what;
  std::string transport;
  timing_mode mode = timing_mode::host;
  int calls_per_sample = 0;
  int n_samples = 0;
  time_summary time;
  column_group columns;
};

inline nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

// The keys are the program's interface: they are added to, never renamed. Times in us a call, bandwidths in GB/s
// (10^9), `wrong` null where data was not verified.
inline nlohmann::ordered_json to_json(const run_facts& run, const measurement& m) {
  using json = nlohmann::ordered_json;
  return json{
      {"date", utc_date()},
      {"version", run.version},
      {"commit", run.commit},
      {"compiler", run.compiler},
      {"machine",
       {{"cpu", run.machine.cpu},
        {"cpus", run.machine.n_cpus},
        {"memory_gb", run.machine.memory_gb},
        {"system", run.machine.system}}},
      {"gpu", run.gpus},
      {"driver", text_or_null(run.machine.gpu_driver)},
      {"cuda", text_or_null(run.cuda)},
      {"nccl", text_or_null(run.nccl)},
      {"env", run.environment},
      {"transport", m.transport},
      {"setting", text_or_null(run.setting)},
      {"world", run.world},
      {"ranks_as", run.ranks_are_threads ? "threads" : "processes"},
      {"dtype", name_of(m.what.type)},
      {"op", name_of(m.what.operation)},
      {"size_bytes", m.what.bytes()},
      {"in_place", m.what.in_place},
      {"time_us", {{"median", m.time.median_us}, {"min", m.time.min_us}, {"p99", m.time.p99_us}}},
      {"algbw", m.columns.algbw},
      {"busbw", m.columns.busbw},
      {"wrong", m.columns.n_wrong ? json(*m.columns.n_wrong) : json(nullptr)},
      {"mode", name_of(m.mode)},
      {"iters", m.calls_per_sample},
      {"samples", m.n_samples},
  };
}

// One object a line: no line breaks inside, UTF-8 that is broken (an environment variable may hold anything) replaced.
inline std::string json_text(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

inline std::string json_line(const run_facts& run, const measurement& m) { return json_text(to_json(run, m)); }

// The document of --json: rows with the keys of nccl-tests, `transport` beside them, totals by transport.
class json_document {
 public:
  explicit json_document(const run_facts& run) {
    document_["version"] = run.version;
    document_["commit"] = run.commit;
    document_["date"] = utc_date();
    document_["config"] = {
        {"world", run.world}, {"ranks_as", run.ranks_are_threads ? "threads" : "processes"}, {"env", run.environment}};
    document_["machine"] = {{"cpu", run.machine.cpu},
                            {"driver", text_or_null(run.machine.gpu_driver)},
                            {"cuda", text_or_null(run.cuda)},
                            {"nccl", text_or_null(run.nccl)}};
    document_["devices"] = run.gpus;
    document_["results"] = nlohmann::ordered_json::array();
  }

  void add(const table_row& row) {
    document_["results"].push_back({{"transport", label_of(row)},
                                    {"size", row.size_bytes},
                                    {"count", row.n_elements},
                                    {"type", name_of(row.type)},
                                    {"redop", name_of(row.operation)},
                                    {"root", -1},
                                    {"out_of_place", group(row.out_of_place)},
                                    {"in_place", group(row.in_place)}});
  }

  void add(const std::string& transport, const totals& sum) {
    document_["out_of_bounds"][transport] = {{"count", sum.n_wrong}, {"okay", sum.n_wrong == 0}};
    document_["average_bus_bandwidth"][transport] = sum.average_busbw();
  }

  std::string text() const {
    return document_.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

 private:
  static nlohmann::ordered_json group(const column_group& columns) {
    using json = nlohmann::ordered_json;
    json group{{"time", columns.time_us},
               {"alg_bw", columns.algbw},
               {"bus_bw", columns.busbw},
               {"nwrong", columns.n_wrong ? json(*columns.n_wrong) : json(nullptr)}};
    if (columns.spread) group["runs"] = {{"min", columns.spread->least_us}, {"max", columns.spread->largest_us}};
    if (!columns.setting.empty()) group["setting"] = columns.setting;
    return group;
  }

  nlohmann::ordered_json document_;
};

}  // namespace peerless::bench
