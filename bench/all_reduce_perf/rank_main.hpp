// What one rank does, however it was started.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <peerless/bootstrap/bootstrap_ref.hpp>

#include "choice.hpp"
#include "gpu_rows.hpp"
#include "host_rows.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "passes.hpp"
#include "run.hpp"
#include "watchdog.hpp"

namespace peerless::bench {

// The lines over the table, each beginning with '#'.
inline std::string preamble(const options& o, const choice& c, const run_facts& facts, const std::vector<int>& pids) {
  std::string text = "# peerless_all_reduce_perf " + facts.version + ", commit " + facts.commit + "\n";
  const auto line = [&](const std::string& what) { text += "# " + what + "\n"; };
  const std::vector<std::size_t> sizes = run_sizes(o, c.on_gpus);
  line("world " + std::to_string(c.world) + " as " + (o.threads ? "threads" : "processes") + ", minbytes " +
       std::to_string(sizes.front()) + " maxbytes " + std::to_string(sizes.back()) + " step: " +
       (o.step_bytes > 0 ? std::to_string(o.step_bytes) + "(bytes)" : std::to_string(o.step_factor) + "(factor)") +
       " warmup iters: " + std::to_string(o.warmup.value_or(c.on_gpus ? 5 : 1)) + " iters: " +
       (o.iterations ? std::to_string(*o.iterations) : std::string(c.on_gpus ? "100, from 4 MB 20" : "by speed")) +
       " validation: " + (o.check ? "1" : "0"));
  const std::string samples = o.samples || c.on_gpus ? std::to_string(o.samples.value_or(23)) : std::string("5 to 23");
  line("time: median of " + samples + " samples (" +
       (!c.on_gpus   ? "wall clock"
        : o.captured ? "replays of a graph, events on the stream"
                     : "calls launched one by one, events on the stream") +
       "), slowest rank, starts aligned");
  if (o.n_runs > 1) {
    line("runs: " + std::to_string(o.n_runs) + ", each by new ranks; rows are medians of runs, least..largest behind");
  }
  for (const auto& [name, value] : facts.environment) line(name + "=" + value);
  for (const std::string& note : c.notes) line(note);
  text += "#\n# Using devices\n";
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    char row[256];
    std::snprintf(row, sizeof row, "#  Rank %2zu Pid %6d %s\n", rank, pids[rank],
                  rank < facts.gpus.size() ? facts.gpus[rank].c_str() : facts.machine.cpu.c_str());
    text += row;
  }
  text += "#\n";
  return text;
}

// Runs rank boot.rank() of what was chosen; its exit code. Collective. Throws what goes wrong.
inline int run_rank(bootstrap_ref boot, int local_rank, const options& o, const choice& c, run_facts facts,
                    shown show = shown::everything) {
  // What has a deadline of its own shall speak first.
  watchdog guard(boot.rank(), o.deadline() + std::chrono::seconds(2));
  guard.step("taking a GPU");
  if (c.on_gpus) {
    gpu_facts found = take_gpu(boot, local_rank, o);
    facts.gpus = std::move(found.gpus);
    facts.cuda = std::move(found.cuda);
    facts.nccl = std::move(found.nccl);
  }
  const std::vector<int> pids = all_gather_value(boot, static_cast<int>(::getpid()), deadline::after(o.deadline()));
  std::optional<reporter> out;
  if (boot.rank() == 0) {
    out.emplace(o, facts, show == shown::everything, show != shown::nothing);
    if (show != shown::nothing) out->print(preamble(o, c, facts, pids));
  }

  const std::vector<std::size_t> sizes = run_sizes(o, c.on_gpus);
  std::vector<std::unique_ptr<arm>> arms;
  for (const std::string& name : c.transports) {
    guard.step("setting up " + name);
    if (out) out->progress("setting up " + name);
    arms.push_back(contains(host_transports(), name) ? make_host_arm(name, boot, o, sizes.back())
                                                     : make_gpu_arm(name, boot, o, sizes.back()));
    if (out && show != shown::nothing) out->print("# " + name + ": " + arms.back()->describe() + "\n");
  }
  if (out && show == shown::everything) out->print("#\n" + table_header());
  const bool all_right = session(boot, o, guard, out ? &*out : nullptr).run(arms, sizes);
  if (out) out->finish();
  guard.step("ending");
  boot.barrier(deadline::after(o.deadline()));
  arms.clear();
  return all_right ? exit_ok : exit_wrong_data;
}

}  // namespace peerless::bench
