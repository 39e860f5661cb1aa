// Rows of several runs become one: the median with the least and the largest run, and NCCL's best setting.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "names.hpp"
#include "statistics.hpp"
#include "table.hpp"

namespace peerless::bench {

inline constexpr const char* best_of_nccl = "nccl-best";

// The same measurement of each run; `lines` is not empty. Times become: median of the runs' medians, least minimum,
// largest p99; `runs` holds how many there were and the spread of their medians. What is no time is the first run's.
inline nlohmann::ordered_json merge_runs(const std::vector<nlohmann::ordered_json>& lines, int world) {
  nlohmann::ordered_json merged = lines.front();
  std::vector<double> medians, least, largest;
  std::optional<std::uint64_t> n_wrong;
  for (const auto& line : lines) {
    medians.push_back(line["time_us"]["median"]);
    least.push_back(line["time_us"]["min"]);
    largest.push_back(line["time_us"]["p99"]);
    if (!line["wrong"].is_null()) n_wrong = std::max(n_wrong.value_or(0), line["wrong"].get<std::uint64_t>());
  }
  const double median = summarize(medians).median_us;
  merged["time_us"] = {{"median", median},
                       {"min", *std::min_element(least.begin(), least.end())},
                       {"p99", *std::max_element(largest.begin(), largest.end())}};
  merged["algbw"] = algorithm_bandwidth(merged["size_bytes"], median);
  merged["busbw"] = bus_bandwidth(merged["algbw"], world);
  if (n_wrong) merged["wrong"] = *n_wrong;
  merged["runs"] = {{"n", medians.size()},
                    {"min", *std::min_element(medians.begin(), medians.end())},
                    {"max", *std::max_element(medians.begin(), medians.end())},
                    {"medians", medians}};
  return merged;
}

// Collects the measurements of runs, line by line, in any order of runs and settings.
class merged_rows {
 public:
  // Out of place and in place of one row of the table.
  using halves = std::array<nlohmann::ordered_json, 2>;

  void add(const nlohmann::ordered_json& line) {
    problem_rows& problem =
        find_or_add(problems_, std::tuple(text(line, "dtype"), text(line, "op"), line["size_bytes"]));
    entry& rows = find_or_add(problem.entries, std::tuple(text(line, "transport"), text(line, "setting")));
    rows.lines[line["in_place"] == true ? 1 : 0].push_back(line);
    world_ = line["world"];
  }

  // Problem by problem in the order in which they came; in it the transports, then settings, in theirs, then, where
  // NCCL ran under a setting, its best: the least median of its rows, whose `setting` it names (null: as it comes).
  std::vector<halves> rows() const {
    std::vector<halves> all;
    for (const problem_rows& problem : problems_) {
      std::array<const nlohmann::ordered_json*, 2> best{};
      const std::size_t first = all.size();
      bool has_setting = false;
      for (const entry& e : problem.entries) {
        if (e.lines[0].empty() || e.lines[1].empty()) continue;
        all.push_back({merge_runs(e.lines[0], world_), merge_runs(e.lines[1], world_)});
        has_setting = has_setting || !std::get<1>(e.key).empty();
      }
      if (!has_setting) continue;
      for (std::size_t i = first; i < all.size(); ++i) {
        if (all[i][0]["transport"] != "nccl") continue;
        for (const std::size_t half : {0u, 1u}) {
          if (best[half] == nullptr || median(all[i][half]) < median(*best[half])) best[half] = &all[i][half];
        }
      }
      halves row{*best[0], *best[1]};
      for (auto& half : row) half["transport"] = best_of_nccl;
      all.push_back(std::move(row));
    }
    return all;
  }

 private:
  struct entry {
    std::tuple<std::string, std::string> key;
    std::array<std::vector<nlohmann::ordered_json>, 2> lines{};
  };
  struct problem_rows {
    std::tuple<std::string, std::string, std::size_t> key;
    std::vector<entry> entries{};
  };

  static std::string text(const nlohmann::ordered_json& line, const char* key) {
    return line[key].is_null() ? std::string() : line[key].get<std::string>();
  }
  static double median(const nlohmann::ordered_json& line) { return line["time_us"]["median"]; }

  template <class Item, class Key>
  static Item& find_or_add(std::vector<Item>& items, const Key& key) {
    const auto found = std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.key == key; });
    if (found != items.end()) return *found;
    items.push_back({key});
    return items.back();
  }

  std::vector<problem_rows> problems_;
  int world_ = 0;
};

// A row of the table from a merged row.
inline table_row to_table_row(const merged_rows::halves& halves) {
  const auto group = [](const nlohmann::ordered_json& line) {
    column_group columns{line["time_us"]["median"], line["algbw"], line["busbw"], std::nullopt, std::nullopt, {}};
    if (!line["wrong"].is_null()) columns.n_wrong = line["wrong"].get<std::uint64_t>();
    columns.spread = time_spread{line["runs"]["min"], line["runs"]["max"]};
    if (!line["setting"].is_null()) columns.setting = line["setting"];
    return columns;
  };
  const nlohmann::ordered_json& line = halves[0];
  const dtype type = parse_types(line["dtype"].get<std::string>()).front();
  const std::size_t bytes = line["size_bytes"];
  return {bytes,
          bytes / size_bytes(type),
          type,
          parse_operations(line["op"].get<std::string>()).front(),
          group(halves[0]),
          group(halves[1]),
          line["transport"]};
}

}  // namespace peerless::bench
