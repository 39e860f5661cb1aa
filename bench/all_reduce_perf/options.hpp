// The command line: the flags of nccl-tests, and a few of our own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <peerless/core/types.hpp>

#include "exit_code.hpp"
#include "names.hpp"
#include "size_text.hpp"

namespace peerless::bench {

struct options {
  std::optional<std::size_t> min_bytes, max_bytes;  // unset: run_sizes() knows
  std::size_t step_bytes = 0;                       // 0: step_factor counts
  std::size_t step_factor = 4;
  std::optional<int> world;                        // unset: a rank for every GPU, or two where host memory is used
  bool threads = false;                            // ranks are threads of one process
  bool share_gpus = false;                         // several ranks on one GPU are wanted
  std::optional<int> iterations, samples, warmup;  // calls a sample, samples, calls before; unset: the arm knows
  bool captured = true;                            // calls captured in a CUDA graph; false: launched one by one
  bool check = true;
  bool numa = true, huge_pages = false;  // communicator_options of these names
  std::vector<dtype> types{dtype::bf16};
  std::vector<reduce_op> operations{reduce_op::sum};
  std::vector<std::string> transports;      // empty: all that work here
  std::optional<protocol_id> protocol;      // unset: as the table of each transport has it
  std::size_t copy_chunk_bytes = 2u << 20;  // of shm-copied
  int n_runs = 1;                           // whole runs, each by new ranks
  bool nccl_knobs = false;                  // NCCL also under each of nccl_settings()
  std::optional<std::chrono::milliseconds> deadline_given;
  std::string json_file, json_lines_file;

  // Bound of every single step: setup of a transport, one sample, one check.
  std::chrono::milliseconds deadline() const { return deadline_given.value_or(std::chrono::seconds(120)); }
};

// The sizes of a run. `on_gpus`: the largest size by default is what the transport does in a moment. Throws
// std::invalid_argument for a range that is empty, or begins below one element of a type that was asked for.
inline std::vector<std::size_t> run_sizes(const options& o, bool on_gpus) {
  const std::size_t usual_max = (on_gpus ? std::size_t{64} : std::size_t{4}) << 20;
  const std::size_t first = o.min_bytes.value_or(std::min<std::size_t>(1024, o.max_bytes.value_or(1024)));
  const std::size_t last = o.max_bytes.value_or(std::max(first, usual_max));
  std::vector<std::size_t> sizes = size_range(first, last, o.step_bytes, o.step_factor);
  for (const dtype type : o.types) {
    if (first < size_bytes(type)) {
      throw std::invalid_argument("a size of " + size_text(first) + " is less than one element of type " +
                                  std::string(name_of(type)));
    }
  }
  return sizes;
}

// What parsing came to: options to run with; or an exit code, after help, version or a complaint has been written.
struct parsed {
  std::optional<options> run;
  int exit_code = exit_ok;
};

namespace detail {

// Command-line text that becomes more than one field of the options.
struct raw_options {
  std::string min, max, step, types = "bfloat16", operations = "sum", transports, protocol, copy_chunk;
  int n_gpus = 0, n_threads = 1, replays = -1, iterations = 0, check = 1, samples = 0, warmup = 0;
  bool threads = false;
  double deadline_s = 0;
};

inline void declare_options(CLI::App& app, raw_options& raw, options& o) {
  CLI::Range positive(1, 1'000'000), not_negative(0, 1'000'000), ranks(1, 1024), seconds(0.001, 1e6);
  for (CLI::Range* range : {&positive, &not_negative, &ranks, &seconds}) range->description("");  // not for the help
  app.add_option("-b,--minbytes", raw.min, "Smallest size; suffixes K, M and G are binary (default 1K)");
  app.add_option("-e,--maxbytes", raw.max, "Largest size (default 64M on GPUs, 4M in host memory)");
  auto* step = app.add_option("-i,--stepbytes", raw.step, "Step between sizes, instead of a factor");
  app.add_option("-f,--stepfactor", o.step_factor, "Factor between sizes (default 4)")->check(positive)->excludes(step);
  app.add_option("-g,--ngpus", raw.n_gpus, "Ranks, one a GPU (default: all GPUs; in host memory 2)")->check(ranks);
  app.add_option("-t,--nthreads", raw.n_threads,
                 "Above 1: ranks are threads of one process, this many times -g (then 1 by default)")
      ->check(ranks);
  app.add_flag("--threads", raw.threads, "The ranks are threads of one process");
  app.add_flag("--share-gpus", o.share_gpus, "Deal several ranks to one GPU: no NCCL, and processes need MPS");
  app.add_option("-n,--iters", raw.iterations, "Calls a sample (default 100, from 4 MB 20; in host memory by speed)")
      ->check(positive);
  app.add_option("-w,--warmup_iters", raw.warmup, "Calls before the first sample (default 5; in host memory 1)")
      ->check(not_negative);
  app.add_option(
      "-d,--datatype", raw.types,
      "half (f16), bfloat16 (bf16), float, double, f8e4m3, f8e5m2, int8, uint8, int32, uint32, int64, uint64 or "
      "all (default bfloat16)");
  app.add_option("-o,--op", raw.operations, "sum, prod, min, max, avg or all (default sum)");
  app.add_option("-c,--check", raw.check, "0: verify nothing (default 1)")->check(not_negative);
  app.add_option("-G,--cudagraph", raw.replays,
                 "Samples, each one replay of a CUDA graph (default 23); 0: calls are launched one by one")
      ->check(not_negative);
  app.add_option("--samples", raw.samples,
                 "Samples where no graph is replayed (default 23; in host memory 5 to 23 by speed)")
      ->check(positive);
  app.add_option("--transports", raw.transports,
                 "Comma-separated: shm, shm-copied (shm by copy engines at every size), nccl, host (default: shm and "
                 "nccl, or host)");
  app.add_option(
      "--protocol", raw.protocol,
      "sentinel, flagged, bulk or two-shot at every size that it can take (default: as each transport chooses)");
  app.add_option(
      "--copy-chunk", raw.copy_chunk,
      "Bytes that copy engines move at a time, of shm-copied (default 2M); sizes of more than 256 are left out");
  app.add_option("--repeat", o.n_runs,
                 "Whole runs, each by new ranks: rows are medians with least..largest (default 1)")
      ->check(positive);
  app.add_flag("--nccl-knobs", o.nccl_knobs,
               "Time NCCL also with more channels and with other protocols and algorithms, and its best of all");
  app.add_flag("--huge-pages", o.huge_pages, "Slots in huge pages, where the kernel has them (PEERLESS_LOG=1 tells)");
  app.add_flag("!--no-numa", o.numa, "Leave slots where they fall, not on the NUMA nodes of their readers");
  app.add_option("--deadline", raw.deadline_s, "Seconds that any one step may take (default 120)")->check(seconds);
  app.add_option("-J,--json", o.json_file, "Write all results to this file, as one JSON document");
  app.add_option("--json-lines", o.json_lines_file,
                 "Append a line of JSON to this file ('-': standard output) for every measurement, as it ends");
}

inline void interpret(const CLI::App& app, const raw_options& raw, options& o) {
  const auto given = [&](const char* name) { return app.count(name) > 0; };
  if (given("-b")) o.min_bytes = parse_size(raw.min);
  if (given("-e")) o.max_bytes = parse_size(raw.max);
  if (given("-i")) {
    o.step_bytes = parse_size(raw.step);
    if (o.step_bytes == 0) throw std::invalid_argument("a step of 0 bytes leads nowhere");
  }
  if (given("-g")) o.world = raw.n_gpus;
  if (raw.n_threads > 1) o.world = o.world.value_or(1) * raw.n_threads;
  o.threads = raw.threads || raw.n_threads > 1;
  if (given("-w")) o.warmup = raw.warmup;
  if (given("-n")) o.iterations = raw.iterations;
  o.types = parse_types(raw.types);
  o.operations = parse_operations(raw.operations);
  o.check = raw.check != 0;
  o.captured = raw.replays != 0;
  if (raw.samples > 0) o.samples = raw.samples;
  if (raw.replays > 0) o.samples = raw.replays;
  if (given("--transports")) o.transports = split_list(raw.transports);
  if (given("--protocol")) o.protocol = parse_protocol(raw.protocol);
  if (given("--copy-chunk")) {
    o.copy_chunk_bytes = parse_size(raw.copy_chunk);
    if (o.copy_chunk_bytes == 0 || o.copy_chunk_bytes % 16 != 0 || o.copy_chunk_bytes > (std::size_t{1} << 28))
      throw std::invalid_argument("--copy-chunk is a positive multiple of 16 bytes, at most 256M");
  }
  if (given("--deadline")) o.deadline_given = std::chrono::milliseconds(static_cast<long long>(raw.deadline_s * 1e3));
  run_sizes(o, false);  // complains here about what it would refuse later
}

}  // namespace detail

// Reads the command line. Help and `version` go to `out`, complaints to `complaints`. Touches no GPU.
inline parsed parse_command_line(int argc, const char* const* argv, const std::string& version, std::ostream& out,
                                 std::ostream& complaints) {
  CLI::App app{
      "Times the all-reduce of every peerless transport that works on this machine, and NCCL's beside it.\n"
      "Flags and table are those of nccl-tests. Each size is verified before it is timed; a time is the median over\n"
      "samples of the slowest rank. The ranks are processes of this machine, one a GPU; without GPUs they exchange\n"
      "host memory. Started by torchrun, mpirun or srun, each process is the rank that its launcher says.",
      "peerless_all_reduce_perf"};
  app.set_version_flag("--version", version);
  app.footer(
      "Exit code: 0 all is right, 1 wrong data, 2 a request that cannot be served, 3 a rank failed, died or passed\n"
      "the deadline.");
  options result;
  detail::raw_options raw;
  detail::declare_options(app, raw, result);
  try {
    app.parse(argc, argv);
    detail::interpret(app, raw, result);
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, app.exit(e, out, complaints) == 0 ? exit_ok : exit_usage};
  } catch (const std::invalid_argument& e) {
    complaints << app.get_name() << ": " << e.what() << "\nRun with --help for more information.\n";
    return {std::nullopt, exit_usage};
  }
  return {result, exit_ok};
}

}  // namespace peerless::bench
