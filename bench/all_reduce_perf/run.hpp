// One rank's run: every size through every arm, verified, timed, gathered; rank 0 prints.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "arm.hpp"
#include "exit_code.hpp"
#include "json_lines.hpp"
#include "merged_rows.hpp"
#include "options.hpp"
#include "statistics.hpp"
#include "table.hpp"
#include "watchdog.hpp"

namespace peerless::bench {

// Throws std::invalid_argument for a result file that cannot be written: before anything is measured.
inline void require_writable(const options& o) {
  for (const std::string* path : {&o.json_file, &o.json_lines_file}) {
    if (!path->empty() && *path != "-" && !std::ofstream(*path, std::ios::app)) {
      throw std::invalid_argument("cannot write " + *path);
    }
  }
}

// Where rank 0 writes; the other ranks have none.
class reporter {
 public:
  // After require_writable(o). Without `with_table`, measurements go to the file of JSON lines alone; without
  // `with_notes`, nothing says which rows are left out.
  reporter(const options& o, run_facts facts, bool with_table = true, bool with_notes = true)
      : facts_(std::move(facts)),
        document_(facts_),
        with_table_(with_table),
        with_notes_(with_notes),
        n_runs_(o.n_runs),
        on_terminal_(::isatty(STDERR_FILENO) != 0) {
    open(o.json_file, json_, std::ios::trunc);
    if (o.json_lines_file == "-") {
      lines_to_stdout_ = true;
    } else {
      open(o.json_lines_file, lines_, std::ios::app);
    }
    json_file_ = o.json_file;
  }

  void print(const std::string& text) {
    clear_progress();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  // A line that the next output replaces; only where a person watches.
  void progress(const std::string& text) {
    if (!on_terminal_) return;
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    showing_progress_ = true;
  }

  void add(const measurement& m) {
    if (lines_to_stdout_) print(json_line(facts_, m));
    if (lines_.is_open()) lines_ << json_line(facts_, m) << std::flush;
  }

  // A row of several runs: both its measurements, as JSON, and itself.
  void add(const merged_rows::halves& halves) {
    for (const nlohmann::ordered_json& half : halves) {
      const std::string line = json_text(half);
      if (lines_to_stdout_) print(line);
      if (lines_.is_open()) lines_ << line << std::flush;
    }
    add(to_table_row(halves));
  }

  void add(const table_row& row) {
    if (!with_table_) return;
    print(format_row(row, n_runs_ > 1));
    document_.add(row);
    const std::string label = label_of(row);
    if (rows_.count(label) == 0) labels_.push_back(label);
    rows_[label].push_back(row);
    totals_[label].add(row);
  }

  // No row of this transport for the problem, and why.
  void leave_out(std::string_view transport, const problem& p, std::string_view reason) {
    if (with_notes_) print(format_left_out(transport, p.bytes(), p.n_elements, p.type, p.operation, reason));
  }

  // Footers, ratios to NCCL and the document.
  void finish() {
    if (!with_table_) return;
    print("#\n");
    for (const std::string& label : labels_) {
      print(format_footer(label, totals_[label]));
      document_.add(label, totals_[label]);
    }
    for (const char* baseline : {"nccl", best_of_nccl}) {
      if (rows_.count(baseline) == 0) continue;
      for (const std::string& label : labels_) {
        if (label.rfind("nccl", 0) != 0) print_ratios(baseline, label);
      }
    }
    if (json_.is_open()) {
      json_ << document_.text() << std::flush;
      if (!json_) throw error(errc::system_error, "cannot write " + json_file_);
    }
  }

 private:
  static void open(const std::string& path, std::ofstream& file, std::ios::openmode how) {
    if (path.empty()) return;
    file.open(path, std::ios::out | how);
    if (!file) throw std::invalid_argument("cannot write " + path);
  }

  void clear_progress() {
    if (showing_progress_) std::fputs("\r\033[K", stderr);
    showing_progress_ = false;
  }

  void print_ratios(const std::string& baseline, const std::string& label) {
    print(ratio_header(baseline, label));
    const std::vector<table_row>& of = rows_[baseline];
    for (const table_row& row : rows_[label]) {  // either may have been left out at some sizes
      const auto same = std::find_if(of.begin(), of.end(), [&](const table_row& other) {
        return other.size_bytes == row.size_bytes && other.type == row.type && other.operation == row.operation;
      });
      if (same != of.end()) print(format_ratio(*same, row, baseline == best_of_nccl));
    }
    print("#\n");
  }

  run_facts facts_;
  json_document document_;
  bool with_table_;
  bool with_notes_;
  int n_runs_;
  bool on_terminal_;
  bool showing_progress_ = false;
  bool lines_to_stdout_ = false;
  std::ofstream json_, lines_;
  std::string json_file_;
  std::map<std::string, std::vector<table_row>> rows_;
  std::map<std::string, totals> totals_;
  std::vector<std::string> labels_;  // in the order of their rows
};

// One rank of a run. Collective in every member.
class session {
 public:
  // `out` on rank 0 alone. All are borrowed.
  session(bootstrap_ref boot, const options& o, watchdog& guard, reporter* out)
      : boot_(boot), options_(o), guard_(guard), out_(out) {}

  // Measures and prints everything that the arms do not refuse. True if no element was wrong, on any rank: the same
  // answer on all of them.
  bool run(const std::vector<std::unique_ptr<arm>>& arms, const std::vector<std::size_t>& sizes) {
    bool all_right = true;
    for (const dtype type : options_.types) {
      for (const reduce_op operation : options_.operations) {
        for (const std::size_t size : sizes) {
          for (const auto& measured : arms) {
            const problem p{type, operation, size / size_bytes(type), false, 0};
            begin(*measured, p, "trying");
            if (const std::string reason = measured->refuses(p); !reason.empty()) {
              if (out_ != nullptr) out_->leave_out(measured->name(), p, reason);
              continue;
            }
            const table_row row = measure_row(*measured, p);
            all_right = all_right && row.out_of_place.n_wrong.value_or(0) == 0 && row.in_place.n_wrong.value_or(0) == 0;
            if (out_ != nullptr) out_->add(row);
          }
        }
      }
    }
    return all_right;
  }

 private:
  deadline limit() const { return deadline::after(options_.deadline()); }

  table_row measure_row(arm& measured, problem p) {
    table_row row{p.bytes(), p.n_elements, p.type, p.operation, {}, {}, std::string(measured.name())};
    p.in_place = false;
    row.out_of_place = measure(measured, p);
    p.in_place = true;
    row.in_place = measure(measured, p);
    return row;
  }

  column_group measure(arm& measured, problem p) {
    p.seed = ++n_problems_ * 0x9e3779b97f4a7c15ull;  // fresh data every time, the same on all ranks
    measurement m{p, std::string(measured.name()), measured.mode(), 0, 0, {}, {}};
    begin(measured, p, "verifying");
    // Runs once even where nothing is counted: it makes the data that is timed.
    std::uint64_t n_wrong = sum_over_ranks(measured.verify(p));
    const sampling plan = measured.plan_samples(p);
    m.calls_per_sample = plan.n_calls;
    m.n_samples = plan.n_samples;
    begin(measured, p, "timing");
    const std::vector<double> mine = measured.time(p, plan);
    std::vector<double> all(mine.size() * static_cast<std::size_t>(boot_.size()));
    boot_.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), limit());
    m.time = summarize(max_over_ranks(all, static_cast<std::size_t>(boot_.size())));
    if (!p.in_place && options_.check) {  // what came out while nobody looked
      n_wrong = std::max(n_wrong, sum_over_ranks(measured.verify_output(p)));
    }
    m.columns.time_us = m.time.median_us;
    m.columns.algbw = algorithm_bandwidth(p.bytes(), m.time.median_us);
    m.columns.busbw = bus_bandwidth(m.columns.algbw, boot_.size());
    if (options_.check) m.columns.n_wrong = n_wrong;
    if (out_ != nullptr) out_->add(m);
    guard_.step({});
    return m.columns;
  }

  void begin(const arm& measured, const problem& p, const char* what) {
    const std::string name = std::string(what) + ' ' + std::string(measured.name()) + ' ' +
                             std::string(name_of(p.type)) + ' ' + std::string(name_of(p.operation)) + ' ' +
                             size_text(p.bytes()) + (p.in_place ? " in place" : " out of place");
    if (out_ != nullptr) out_->progress(name);
    guard_.step(name);
  }

  std::uint64_t sum_over_ranks(std::uint64_t mine) {
    std::uint64_t sum = 0;
    for (const std::uint64_t value : all_gather_value(boot_, mine, limit())) sum += value;
    return sum;
  }

  bootstrap_ref boot_;
  const options& options_;
  watchdog& guard_;
  reporter* out_;
  std::uint64_t n_problems_ = 0;
};

}  // namespace peerless::bench
