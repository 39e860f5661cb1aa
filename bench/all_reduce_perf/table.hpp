// The text that people read: nccl-tests' table with one more column, its footer, and ratios to NCCL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <peerless/core/types.hpp>

namespace peerless::bench {

// The medians of several runs.
struct time_spread {
  double least_us = 0;
  double largest_us = 0;
};

// Half a row: the out-of-place or the in-place measurement.
struct column_group {
  double time_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  std::optional<std::uint64_t> n_wrong;  // elements, over all ranks; nothing where data was not verified
  std::optional<time_spread> spread{};   // where rows are medians of several runs
  std::string setting{};                 // environment set for NCCL, as A=1,B=2; empty: as it comes
};

struct table_row {
  std::size_t size_bytes = 0;
  std::size_t n_elements = 0;
  dtype type = dtype::bf16;
  reduce_op operation = reduce_op::sum;
  column_group out_of_place, in_place;
  std::string transport;
};

// The number with two decimals, or with fewer where the width does not hold them. Longer than the width only if its
// integer part is.
inline std::string fixed_width(double value, int width) {
  char text[64];
  for (int decimals = 2; decimals >= 0; --decimals) {
    if (std::snprintf(text, sizeof text, "%*.*f", width, decimals, value) <= width) break;
  }
  return text;
}

namespace detail {

inline std::string right(std::string_view text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + std::string(text) : std::string(text);
}

inline std::string centred(std::string_view text, std::size_t width) {
  const std::size_t before = text.size() < width ? (width - text.size()) / 2 : 0;
  std::string line = std::string(before, ' ') + std::string(text);
  line.resize(std::max(line.size(), width), ' ');
  return line;
}

inline std::string group_text(const column_group& group) {
  const std::string wrong = group.n_wrong ? std::to_string(*group.n_wrong) : "N/A";
  return "  " + fixed_width(group.time_us, 7) + "  " + fixed_width(group.algbw, 6) + "  " +
         fixed_width(group.busbw, 6) + "  " + right(wrong, 6);
}

}  // namespace detail

// What the table calls a row's transport: of NCCL with the setting, where there is one. No blanks inside.
inline std::string label_of(const table_row& row) {
  return row.transport == "nccl" && !row.out_of_place.setting.empty() ? "nccl:" + row.out_of_place.setting
                                                                      : row.transport;
}

// Three lines, each ended by a newline. Data lines have the same columns, transport last, so that what reads the table
// of nccl-tests by column number reads this one.
// `n_runs` above 1: rows end with their spreads, out of place and in place.
inline std::string table_header(int n_runs = 1) {
  using detail::right;
  constexpr std::size_t group_width = 2 + 7 + 3 * (2 + 6);
  const std::string before(12 + 2 + 12 + 2 + 8 + 2 + 6 + 2 + 6 - 1, ' ');
  const auto columns = [](const char* size, const char* count, const char* type, const char* redop, const char* root) {
    return "#" + right(size, 11) + "  " + right(count, 12) + "  " + right(type, 8) + "  " + right(redop, 6) + "  " +
           right(root, 6);
  };
  const std::string names = "     time   algbw   busbw  #wrong";
  const std::string units = "     (us)  (GB/s)  (GB/s)        ";
  return "#" + before + detail::centred("out-of-place", group_width) + detail::centred("in-place", group_width) + "\n" +
         columns("size", "count", "type", "redop", "root") + names + names + "  transport" +
         (n_runs > 1 ? ", least..largest of " + std::to_string(n_runs) + " runs" : std::string()) + "\n" +
         columns("(B)", "(elements)", "", "", "") + units + units + "\n";
}

// One line, ended by a newline.
inline std::string format_row(const table_row& row, bool with_spread = false) {
  using detail::right;
  std::string spreads;
  for (const column_group* group : {&row.out_of_place, &row.in_place}) {
    if (!with_spread || !group->spread) continue;
    char text[64];
    std::snprintf(text, sizeof text, "  %.2f..%.2f", group->spread->least_us, group->spread->largest_us);
    spreads += text;
  }
  return right(std::to_string(row.size_bytes), 12) + "  " + right(std::to_string(row.n_elements), 12) + "  " +
         right(name_of(row.type), 8) + "  " + right(name_of(row.operation), 6) + "  " + right("-1", 6) +
         detail::group_text(row.out_of_place) + detail::group_text(row.in_place) + "  " + label_of(row) + spreads +
         "\n";
}

// One line, ended by a newline, in place of a row that was not measured. It begins with '#': it is no data line.
inline std::string format_left_out(std::string_view transport, std::size_t size_bytes, std::size_t n_elements,
                                   dtype type, reduce_op operation, std::string_view reason) {
  using detail::right;
  return "#" + right(std::to_string(size_bytes), 11) + "  " + right(std::to_string(n_elements), 12) + "  " +
         right(name_of(type), 8) + "  " + right(name_of(operation), 6) + "  " + right("-1", 6) + "  " +
         std::string(transport) + " is left out: " + std::string(reason) + "\n";
}

// The totals of one transport.
struct totals {
  std::uint64_t n_wrong = 0;  // elements, over all rows
  double busbw_sum = 0;       // over both groups of all rows
  std::size_t n_groups = 0;

  void add(const table_row& row) {
    for (const column_group* group : {&row.out_of_place, &row.in_place}) {
      n_wrong += group->n_wrong.value_or(0);
      busbw_sum += group->busbw;
      ++n_groups;
    }
  }
  double average_busbw() const { return n_groups > 0 ? busbw_sum / static_cast<double>(n_groups) : 0; }
};

// Which transport, then the two lines that nccl-tests ends with.
inline std::string format_footer(std::string_view transport, const totals& sum) {
  char average[64];
  std::snprintf(average, sizeof average, "%.6g", sum.average_busbw());
  return "# Transport            : " + std::string(transport) +
         "\n# Out of bounds values : " + std::to_string(sum.n_wrong) + (sum.n_wrong == 0 ? " OK" : " FAILED") +
         "\n# Avg bus bandwidth    : " + average + "\n#\n";
}

// The title of the table of ratios: time of `baseline` over time of `transport`, so above 1 `transport` is the faster.
inline std::string ratio_header(std::string_view baseline, std::string_view transport) {
  using detail::right;
  return "# Time of " + std::string(baseline) + " / time of " + std::string(transport) + " (medians; above 1 " +
         std::string(transport) + " is faster)\n#" + right("size", 11) + "  " + right("type", 8) + "  " +
         right("redop", 6) + "  " + right("out-of-place", 12) + "  " + right("in-place", 8) + "\n";
}

// Every line begins with '#': it is no data line of the table. `with_settings`: NCCL's, of the baseline's two halves.
inline std::string format_ratio(const table_row& baseline, const table_row& row, bool with_settings = false) {
  using detail::right;
  std::string settings;
  for (const column_group* group : {&baseline.out_of_place, &baseline.in_place}) {
    if (with_settings) settings += "  " + (group->setting.empty() ? std::string("as-it-comes") : group->setting);
  }
  const auto ratio = [](const column_group& a, const column_group& b) {
    char text[64] = "N/A";
    if (b.time_us > 0) std::snprintf(text, sizeof text, "%.2fx", a.time_us / b.time_us);
    return std::string(text);
  };
  return "#" + right(std::to_string(row.size_bytes), 11) + "  " + right(name_of(row.type), 8) + "  " +
         right(name_of(row.operation), 6) + "  " + right(ratio(baseline.out_of_place, row.out_of_place), 12) + "  " +
         right(ratio(baseline.in_place, row.in_place), 8) + settings + "\n";
}

}  // namespace peerless::bench
