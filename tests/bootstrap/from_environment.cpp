// What each launcher's variables mean, and which values are refused.
#include "support/catch.hpp"
#include "support/environment.hpp"

#include <string>
#include <utility>
#include <vector>

#include <peerless/bootstrap/from_environment.hpp>

using peerless::errc;
using peerless::from_environment;
using peerless::launch_environment;
using peerless::test::scoped_environment;

namespace {

using variables = std::vector<std::pair<std::string, std::string>>;

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = {"PEERLESS_RANK",
                                                 "PEERLESS_WORLD_SIZE",
                                                 "PEERLESS_LOCAL_RANK",
                                                 "PEERLESS_JOB_ID",
                                                 "RANK",
                                                 "WORLD_SIZE",
                                                 "LOCAL_RANK",
                                                 "LOCAL_WORLD_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "TORCHELASTIC_RUN_ID",
                                                 "TORCHELASTIC_RESTART_COUNT",
                                                 "OMPI_COMM_WORLD_RANK",
                                                 "OMPI_COMM_WORLD_SIZE",
                                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                 "OMPI_MCA_orte_ess_jobid",
                                                 "OMPI_MCA_ess_base_jobid",
                                                 "PMIX_NAMESPACE",
                                                 "PMI_RANK",
                                                 "PMI_SIZE",
                                                 "PMI_JOBID",
                                                 "I_MPI_HYDRA_UUID",
                                                 "MPI_LOCALRANKID",
                                                 "MPI_LOCALNRANKS",
                                                 "SLURM_PROCID",
                                                 "SLURM_NTASKS",
                                                 "SLURM_LOCALID",
                                                 "SLURM_JOB_ID",
                                                 "SLURM_STEP_ID",
                                                 "SLURM_STEP_NUM_NODES",
                                                 "SLURM_NNODES"};
  return names;
}

launch_environment with(const variables& set) {
  const scoped_environment scope(set, all_names());
  return from_environment();
}

std::string identity(const variables& set) { return with(set).identity.text; }

// The code and text of the refusal.
std::pair<errc, std::string> refusal(const variables& set) {
  try {
    (void)with(set);
  } catch (const peerless::error& caught) {
    return {caught.code(), caught.what()};
  }
  return {errc::ok, ""};
}

variables plus(variables base, const variables& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

const variables torchrun = {{"RANK", "2"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "2"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "localhost"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"}};
const variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", "1247412225"}};
const variables mpich = {
    {"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "5"}, {"MPI_LOCALNRANKS", "6"}, {"PMI_JOBID", "kvs_1_0"}};
const variables slurm = {{"SLURM_PROCID", "7"},    {"SLURM_NTASKS", "8"},  {"SLURM_LOCALID", "7"},
                         {"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "1"},
                         {"SLURM_NNODES", "1"}};

}  // namespace

TEST_CASE("without a launcher there is one rank") {
  const auto found = with({});
  CHECK(found.rank == 0);
  CHECK(found.size == 1);
  CHECK(found.local_rank == 0);
  CHECK(found.source == "none");
}

TEST_CASE("each launcher is understood") {
  const auto check = [](const variables& set, int rank, int size, const std::string& source) {
    const auto found = with(set);
    CHECK(found.rank == rank);
    CHECK(found.size == size);
    CHECK(found.local_rank == rank);
    CHECK_THAT(std::string(found.source), peerless::test::contains(source));
    CHECK_FALSE(found.identity.text.empty());
  };
  check({{"PEERLESS_RANK", "3"}, {"PEERLESS_WORLD_SIZE", "5"}}, 3, 5, "own");
  check({{"PEERLESS_RANK", "3"}, {"PEERLESS_WORLD_SIZE", "5"}, {"PEERLESS_LOCAL_RANK", "3"}}, 3, 5, "own");
  check(torchrun, 2, 4, "torchrun");
  check(open_mpi, 1, 3, "Open MPI");
  check(mpich, 5, 6, "MPICH");
  check(slurm, 7, 8, "Slurm");
}

TEST_CASE("the nearest launcher counts") {
  CHECK(with(plus(plus(plus(slurm, mpich), open_mpi), torchrun)).source == "torchrun");
  CHECK(with(plus(plus(slurm, mpich), open_mpi)).source == "Open MPI");
  CHECK_THAT(std::string(with(plus(slurm, mpich)).source), peerless::test::contains("MPICH"));
  CHECK(with(plus(torchrun, {{"PEERLESS_RANK", "0"}, {"PEERLESS_WORLD_SIZE", "2"}})).size == 2);
}

TEST_CASE("jobs that differ have names that differ, ranks of one job do not") {
  const auto differs = [](const variables& base, const char* name) {
    return identity(base) != identity(plus(base, {{name, "another"}}));
  };
  CHECK(differs(torchrun, "MASTER_PORT"));
  CHECK(differs(torchrun, "MASTER_ADDR"));
  CHECK(differs(torchrun, "TORCHELASTIC_RUN_ID"));
  CHECK(differs(torchrun, "TORCHELASTIC_RESTART_COUNT"));
  CHECK(differs(open_mpi, "PMIX_NAMESPACE"));
  CHECK(differs(mpich, "PMI_JOBID"));
  CHECK(differs(slurm, "SLURM_JOB_ID"));
  CHECK(identity(slurm) != identity(plus(slurm, {{"SLURM_STEP_ID", "1"}})));
  for (const char* name : {"RANK", "LOCAL_RANK"}) CHECK(identity(torchrun) == identity(plus(torchrun, {{name, "1"}})));
  CHECK(identity(open_mpi) == identity(plus(open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}})));
  CHECK(identity(slurm) == identity(plus(slurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})));
  // Older and newer releases name the job in different variables.
  CHECK(identity({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_orte_ess_jobid", "77"}}) !=
        identity({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
}

TEST_CASE("PEERLESS_JOB_ID overrides every name") {
  for (const variables& base : {variables{}, torchrun, open_mpi, mpich, slurm}) {
    const auto found = with(plus(base, {{"PEERLESS_JOB_ID", "nightly"}}));
    CHECK(found.identity.text == "nightly");
    CHECK(found.identity.origin == "PEERLESS_JOB_ID");
  }
}

TEST_CASE("one of rank and size without the other is refused, naming both") {
  const std::vector<std::pair<std::string, std::string>> pairs = {{"PEERLESS_RANK", "PEERLESS_WORLD_SIZE"},
                                                                  {"RANK", "WORLD_SIZE"},
                                                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                  {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : pairs) {
    for (const bool rank_only : {true, false}) {
      const auto [code, text] = refusal({{rank_only ? rank : size, "1"}, {rank_only ? size : rank, ""}});
      CHECK(code == errc::bad_environment);
      CHECK_THAT(text, peerless::test::contains((rank_only ? size : rank) + " is not set, but " +
                                                (rank_only ? rank : size) + " is"));
    }
  }
  CHECK(refusal({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}).first == errc::bad_environment);
}

TEST_CASE("values that are no rank or size are refused, naming variable and value") {
  for (const char* wrong : {"x", "1x", " 1", "-1", "4", "1.0", "+1", "99999999999"}) {
    const auto [code, text] = refusal(plus(torchrun, {{"RANK", wrong}}));
    CHECK(code == errc::bad_environment);
    CHECK_THAT(text, peerless::test::contains("RANK=\"" + std::string(wrong) + "\""));
  }
  for (const char* wrong : {"x", "0", "-2", "2147483648"}) {
    const auto [code, text] = refusal(plus(torchrun, {{"WORLD_SIZE", wrong}}));
    CHECK(code == errc::bad_environment);
    CHECK_THAT(text, peerless::test::contains("WORLD_SIZE=\"" + std::string(wrong) + "\""));
  }
  CHECK(refusal(plus(torchrun, {{"LOCAL_RANK", "4"}})).first == errc::bad_environment);
  CHECK(refusal(plus(slurm, {{"SLURM_NTASKS", "eight"}})).first == errc::bad_environment);
  CHECK(refusal(plus(slurm, {{"SLURM_STEP_ID", "first"}})).first == errc::bad_environment);
}

TEST_CASE("a job over several hosts is refused") {
  for (const auto& set :
       {plus(torchrun, {{"LOCAL_WORLD_SIZE", "2"}}), plus(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
        plus(mpich, {{"MPI_LOCALNRANKS", "3"}}), plus(slurm, {{"SLURM_STEP_NUM_NODES", "2"}})}) {
    const auto [code, text] = refusal(set);
    CHECK(code == errc::unsupported);
    CHECK_THAT(text, peerless::test::contains("one host"));
  }
  // One node of a larger allocation is fine.
  CHECK(refusal(plus(slurm, {{"SLURM_NNODES", "4"}})).first == errc::ok);
}

TEST_CASE("the batch script and the interactive shell of a Slurm job are one process") {
  const variables shell = {{"SLURM_JOB_ID", "1234"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}};
  CHECK(with(shell).size == 1);
  CHECK(with(plus(shell, {{"SLURM_PROCID", "0"}})).size == 1);                                           // batch script
  CHECK(with(plus(shell, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967291"}})).size == 1);  // the same, as a step
  CHECK(with(plus(shell, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}})).size == 1);          // interactive
}
