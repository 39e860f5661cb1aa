// peerless_all_reduce_perf: all-reduce through every transport that works here, beside NCCL. See --help.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <peerless/bootstrap/from_environment.hpp>
#include <peerless/bootstrap/local_host.hpp>
#include <peerless/bootstrap/thread_group.hpp>

#include "passes.hpp"
#include "peerless_build_info.hpp"
#include "rank_main.hpp"
#include "ranks.hpp"

namespace {

using namespace peerless;
using namespace peerless::bench;

constexpr std::chrono::seconds longest_census{60};

run_facts facts_of_run(const options& o, int world, const variables& setting = {}) {
  run_facts facts;
  facts.version = peerless_build_info::version;
  facts.commit = peerless_build_info::commit;
  facts.compiler = std::string(peerless_build_info::compiler) + ", " + peerless_build_info::cuda_compiler + ", " +
                   peerless_build_info::build_type;
  facts.machine = read_machine_facts();
  facts.world = world;
  facts.ranks_are_threads = o.threads;
  facts.environment = relevant_environment(environ);
  facts.setting = text_of(setting);
  if (o.protocol)
    facts.setting += (facts.setting.empty() ? "protocol=" : ",protocol=") + std::string(name_of(*o.protocol));
  return facts;
}

local_host_options meeting(const options& o) {
  local_host_options settings;
  settings.deadline = std::min(settings.deadline, o.deadline());
  return settings;
}

built_with this_build() {
  built_with build = gpu_build();
  build.on_host = host_transports();
  return build;
}

// Counts GPUs only where the answer matters.
bool wants_gpus(const options& o) {
  return gpu_build().cuda &&
         (o.transports.empty() || std::any_of(o.transports.begin(), o.transports.end(),
                                              [](const auto& name) { return !contains(host_transports(), name); }));
}

census no_census() { return {0, gpu_build().cuda ? "not looked for" : "built without CUDA"}; }

// This process is a rank already.
int run_launched(const options& o, const launch_environment& launch) {
  return run_guarded(launch.rank, [&](int rank) {
    if (rank == 0) require_writable(o);
    auto boot = local_host_bootstrap::connect(launch.identity, rank, launch.size, meeting(o));
    const census mine = wants_gpus(o) ? count_gpus() : no_census();
    census least = mine;
    for (const int n_gpus : all_gather_value(boot, mine.n_gpus, deadline::after(o.deadline()))) {
      if (n_gpus < least.n_gpus) least = {n_gpus, "another rank has none"};
    }
    const choice c = choose(o, least, this_build(), launch.size);
    return run_rank(boot, launch.local_rank, o, c, facts_of_run(o, launch.size));
  });
}

// Starts the ranks of one pass and waits for them. `alone`: this process stays as it is, its environment too.
int run_pass(const options& o, const choice& c, const pass& p, shown show, bool alone) {
  const auto prepare = [&] {
    set_in_environment(p.setting);
    return facts_of_run(o, c.world, p.setting);
  };
  if (o.threads) {
    const auto all_ranks = [&] {
      const run_facts facts = prepare();
      const thread_group group(c.world);
      return run_as_threads(c.world, [&](int rank) {
        auto boot = group.rank(rank);
        return run_rank(boot, rank, o, c, facts, show);
      });
    };
    return alone ? run_as_processes(1, [&](int) { return all_ranks(); }) : all_ranks();
  }
  const job_identity identity = job_identity::named(unique_job_name());
  return run_as_processes(c.world, [&](int rank) {
    const run_facts facts = prepare();
    auto boot = local_host_bootstrap::connect(identity, rank, c.world, meeting(o));
    return run_rank(boot, rank, o, c, facts, show);
  });
}

// Pass after pass, then the table of what they came to.
int run_several(const options& o, const choice& c) {
  const auto body = [&](const pass& p, const options& mine, shown show) {
    choice of_pass = c;
    of_pass.transports = p.transports;
    return run_pass(mine, of_pass, p, show, true);
  };
  const passes_result result = run_passes(plan_passes(o, c), o, body);
  const std::vector<merged_rows::halves> rows = result.rows.rows();
  if (rows.empty()) return result.exit_code;
  run_facts facts = facts_of_run(o, c.world);
  const nlohmann::ordered_json& line = rows.front()[0];
  facts.gpus = line["gpu"].get<std::vector<std::string>>();
  for (const auto& [key, version] : {std::pair("cuda", &facts.cuda), std::pair("nccl", &facts.nccl)}) {
    if (!line[key].is_null()) *version = line[key];
  }
  reporter out(o, facts);
  out.print("#\n" + table_header(o.n_runs));
  for (const merged_rows::halves& row : rows) out.add(row);
  out.finish();
  return result.exit_code;
}

// This process makes the ranks. It never touches CUDA: its children could not, after that.
int run_here(const options& o) {
  require_writable(o);
  // Streams of threads that share a GPU must not share a queue of the hardware: one would wait behind the other's wait.
  if (o.threads && o.share_gpus) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const census found =
      wants_gpus(o) ? count_in_child(count_gpus, std::min<std::chrono::milliseconds>(longest_census, o.deadline()))
                    : no_census();
  const choice c = choose(o, found, this_build(), std::nullopt);
  if (o.n_runs > 1 || o.nccl_knobs) return run_several(o, c);
  return run_pass(o, c, {1, {}, c.transports}, shown::everything, false);
}

// An interactive srun shell is one task of one: nobody meant to start one rank.
bool is_launched(const launch_environment& launch) {
  return launch.size > 1 || (launch.source != "none" && launch.source != "Slurm");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string version = std::string("peerless_all_reduce_perf ") + peerless_build_info::version + " (commit " +
                              peerless_build_info::commit + ")";
  const parsed command = parse_command_line(argc, argv, version, std::cout, std::cerr);
  if (!command.run) return command.exit_code;
  try {
    const launch_environment launch = from_environment();
    return is_launched(launch) ? run_launched(*command.run, launch) : run_here(*command.run);
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "peerless_all_reduce_perf: %s\n", e.what());
    return exit_usage;
  } catch (const error& e) {
    std::fprintf(stderr, "peerless_all_reduce_perf: %s\n", e.what());
    return exit_code_of(e);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "peerless_all_reduce_perf: %s\n", e.what());
    return exit_failed;
  }
}
