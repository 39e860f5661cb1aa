// Finds out from the environment which rank this process is, under the launchers that people use.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <peerless/bootstrap/job_identity.hpp>
#include <peerless/core/env.hpp>
#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

// What a launcher said of this process. Hand identity, rank and size to local_host_bootstrap::connect.
struct launch_environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // for choosing a GPU
  job_identity identity;
  std::string_view source = "none";  // the launcher, as in messages
};

namespace detail {

// The variables of one launcher. A null name: it has none. Sources: the manuals of torchrun ("Environment Variables"),
// Open MPI ("Environment variables set by mpirun"), MPICH's Hydra (PMI-1, with MPI_LOCAL*), srun ("OUTPUT ENVIRONMENT
// VARIABLES").
struct launcher {
  std::string_view name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // ranks of this job on this host
};

// Own variables first, then the launcher that is nearest to the program: torchrun may run under Slurm or mpirun, and
// mpirun inside a Slurm allocation.
inline constexpr launcher torchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
inline constexpr launcher open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
inline constexpr launcher pmi{"PMI (MPICH, Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
inline constexpr launcher slurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
inline constexpr launcher own_variables{"own variables", "PEERLESS_RANK", "PEERLESS_WORLD_SIZE", "PEERLESS_LOCAL_RANK",
                                        nullptr};
inline constexpr std::array launchers{own_variables, torchrun, open_mpi, pmi, slurm};

// An srun task, as opposed to the batch script or the interactive shell of an allocation, which see many of the same
// variables but are one process: those steps have reserved numbers (slurm.h, SLURM_MAX_NORMAL_STEP_ID 0xfffffff0).
inline bool is_slurm_task() {
  const auto step = env::get<std::uint32_t>("SLURM_STEP_ID");
  return step && *step < 0xfffffff0u && env::text("SLURM_PROCID");
}

inline bool is_present(const launcher& each) {
  if (each.name == slurm.name) return is_slurm_task();
  return env::text(each.rank) || env::text(each.size);
}

// A variable without which the launcher's others mean nothing.
inline int required(const launcher& from, const char* name, int least, int most) {
  const auto value = env::get_between<int>(name, least, most);
  if (value) return *value;
  throw error(errc::bad_environment, std::string(name) + " is not set, but " +
                                         (name == from.rank ? from.size : from.rank) + " is (" +
                                         std::string(from.name) + "); set both or neither");
}

// "NAME=value" of those that are set, separated by blanks: readable in messages, equal on all ranks.
template <class... Names>
std::string joined(Names... names) {
  std::string all;
  const auto add = [&](const char* name) {
    if (const auto value = env::text(name)) all += (all.empty() ? "" : " ") + (name + ("=" + *value));
  };
  (add(names), ...);
  return all;
}

inline std::string slurm_step() { return joined("SLURM_JOB_ID", "SLURM_STEP_ID"); }

// The first of `names` that is set, as "NAME=value".
template <class... Names>
std::string first_of(Names... names) {
  std::string found;
  ((found.empty() ? void(found = joined(names)) : void()), ...);
  return found;
}

// Never from a variable that one host or one rank sees differently.
inline job_identity identity_from(const launcher& from) {
  if (auto given = env::text("PEERLESS_JOB_ID")) return {std::move(*given), "PEERLESS_JOB_ID"};
  std::string text;
  if (from.name == torchrun.name) {
    // After a restart by torchrun no rank may meet one of the life before.
    text = joined("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT");
  } else if (from.name == open_mpi.name) {
    text = first_of("PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_ess_base_jobid");
  } else if (from.name == pmi.name) {
    text = first_of("PMI_JOBID", "I_MPI_HYDRA_UUID", "PMIX_NAMESPACE");
    if (text.empty()) text = slurm_step();
  } else if (from.name == slurm.name) {
    text = slurm_step();
  }
  if (text.empty()) return job_identity::of_session();
  return {std::move(text), std::string(from.name)};
}

inline void require_one_host(const launcher& from, const launch_environment& found) {
  constexpr int most = std::numeric_limits<int>::max();
  const auto refuse = [&](const std::string& what) {
    throw error(
        errc::unsupported,
        what + " (" + std::string(from.name) + "): the ranks of one communicator are on one host; start one job a host",
        found.rank);
  };
  if (from.local_size != nullptr) {
    const auto local = env::get_between<int>(from.local_size, 1, most);
    if (local && *local != found.size) {
      refuse(std::to_string(*local) + " of " + std::to_string(found.size) + " ranks are on this host");
    }
  }
  if (from.name != slurm.name) return;
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    const auto nodes = env::get_between<int>(name, 1, most);
    if (nodes && *nodes > 1) refuse("the job has " + std::to_string(*nodes) + " nodes");
    if (nodes) return;  // the step counts, not the allocation around it
  }
}

}  // namespace detail

// Rank, world size and identity of this process. Local; does not block; reads variables only. The first launcher counts
// of which a variable is set: PEERLESS_RANK with PEERLESS_WORLD_SIZE (PEERLESS_LOCAL_RANK), torchrun, Open MPI, PMI
// (MPICH, Intel MPI), Slurm (tasks of srun only). None: rank 0 of a world of 1. PEERLESS_JOB_ID overrides the identity;
// where the launcher gives none either, it is the session's (job_identity::of_session).
// Throws errc::bad_environment, naming the variable and its value: one of rank and size without the other, not a
// number, negative, a rank not below the size; errc::unsupported when the job spans hosts.
inline launch_environment from_environment() {
  constexpr int most = std::numeric_limits<int>::max();
  launch_environment found;
  for (const detail::launcher& each : detail::launchers) {
    if (!detail::is_present(each)) continue;
    found.source = each.name;
    found.size = detail::required(each, each.size, 1, most);
    found.rank = detail::required(each, each.rank, 0, found.size - 1);
    found.local_rank = env::get_between<int>(each.local_rank, 0, found.size - 1).value_or(found.rank);
    detail::require_one_host(each, found);
    found.identity = detail::identity_from(each);
    return found;
  }
  found.identity = detail::identity_from(detail::own_variables);
  return found;
}

PEERLESS_END_NAMESPACE
