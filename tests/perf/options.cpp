// Command line of peerless_all_reduce_perf, and what it decides to run.
#include "support/catch.hpp"

#include <sstream>

#include "choice.hpp"
#include "communicator_settings.hpp"
#include "options.hpp"

using namespace peerless;
using namespace peerless::bench;

namespace {

struct outcome {
  parsed result;
  std::string out, complaints;
};

outcome parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "peerless_all_reduce_perf");
  std::ostringstream out, complaints;
  parsed result =
      parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "version 1.2.3", out, complaints);
  return {result, out.str(), complaints.str()};
}

options options_of(std::vector<const char*> arguments) {
  const outcome o = parse(std::move(arguments));
  INFO(o.complaints);
  REQUIRE(o.result.run.has_value());
  return *o.result.run;
}

constexpr built_with everything{true, true};

std::string complaint_of(const options& o, const census& found, built_with build, std::optional<int> launched = {}) {
  try {
    choose(o, found, build, launched);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("no flags give the defaults") {
  const options o = options_of({});
  CHECK(!o.world);
  CHECK(!o.threads);
  CHECK(o.types == std::vector<dtype>{dtype::bf16});
  CHECK(o.operations == std::vector<reduce_op>{reduce_op::sum});
  CHECK(o.check);
  CHECK(!o.samples);
  CHECK(o.captured);
  CHECK(o.numa);
  CHECK(!o.huge_pages);
  CHECK(o.deadline() == std::chrono::seconds(120));
  CHECK(run_sizes(o, true).front() == 1024);
  CHECK(run_sizes(o, true).back() == 64u << 20);
  CHECK(run_sizes(o, false).back() == 4u << 20);
}

TEST_CASE("the flags of nccl-tests are understood, short and long") {
  const options o = options_of({"-b", "2K", "-e",    "1M", "-f",  "2",  "-g", "3",  "-n", "7",  "-w",
                                "1",  "-d", "float", "-o", "max", "-c", "0",  "-G", "5",  "-J", "x.json"});
  CHECK(run_sizes(o, true).size() == 10);
  CHECK(o.world == 3);
  CHECK(o.iterations == 7);
  CHECK(o.warmup == 1);
  CHECK(o.types == std::vector<dtype>{dtype::f32});
  CHECK(o.operations == std::vector<reduce_op>{reduce_op::max});
  CHECK(!o.check);
  CHECK(o.captured);
  CHECK(o.samples == 5);
  CHECK(o.json_file == "x.json");
  const options l =
      options_of({"--minbytes",   "1K",  "--maxbytes",   "4K",       "--stepbytes",    "1K",  "--ngpus",    "2",
                  "--nthreads",   "3",   "--iters",      "9",        "--warmup_iters", "0",   "--datatype", "all",
                  "--op",         "all", "--check",      "1",        "--cudagraph",    "0",   "--json",     "y",
                  "--json-lines", "-",   "--transports", "host,shm", "--deadline",     "1.5", "--samples",  "4"});
  CHECK(run_sizes(l, true) == std::vector<std::size_t>{1024, 2048, 3072, 4096});
  CHECK(l.world == 6);
  CHECK(l.threads);
  CHECK(l.types.size() == 12);
  CHECK(l.operations.size() == 5);
  CHECK(!l.captured);
  CHECK(l.samples == 4);
  const communicator_options placed = communicator_settings(options_of({"--huge-pages", "--no-numa"}));
  CHECK(placed.huge_pages);
  CHECK(!placed.numa);
  CHECK(l.transports == std::vector<std::string>{"host", "shm"});
  CHECK(l.deadline() == std::chrono::milliseconds(1500));
  CHECK(options_of({"-t", "4"}).world == 4);
  CHECK(options_of({"--threads", "-g", "2"}).threads);
  CHECK(!options_of({"-t", "1", "-g", "2"}).threads);
}

TEST_CASE("every name of a type is known") {
  for (const char* name : {"f16", "half"}) CHECK(parse_types(name) == std::vector<dtype>{dtype::f16});
  for (const char* name : {"bf16", "bfloat16"}) CHECK(parse_types(name) == std::vector<dtype>{dtype::bf16});
  CHECK(parse_types("float,double,int32,uint32") == std::vector<dtype>{dtype::f32, dtype::f64, dtype::i32, dtype::u32});
}

TEST_CASE("one end of the range alone moves the other") {
  CHECK(run_sizes(options_of({"-b", "1G"}), true) == std::vector<std::size_t>{std::size_t{1} << 30});
  CHECK(run_sizes(options_of({"-e", "512"}), true) == std::vector<std::size_t>{512});
}

TEST_CASE("help and version succeed, and name what there is") {
  const outcome help = parse({"--help"});
  CHECK(!help.result.run);
  CHECK(help.result.exit_code == exit_ok);
  for (const char* flag :
       {"-b,--minbytes", "-e,--maxbytes", "-i,--stepbytes", "-f,--stepfactor", "-g,--ngpus", "-t,--nthreads",
        "-n,--iters", "-w,--warmup_iters", "-d,--datatype", "-o,--op", "-c,--check", "-G,--cudagraph", "-J,--json",
        "--json-lines", "--transports", "--deadline", "--threads", "--repeat", "--nccl-knobs"}) {
    CHECK_THAT(help.out, test::contains(flag));
  }
  const outcome version = parse({"--version"});
  CHECK(version.result.exit_code == exit_ok);
  CHECK(version.out == "version 1.2.3\n");
}

TEST_CASE("bad flags are refused with the reason") {
  const struct {
    std::vector<const char*> arguments;
    const char* reason;
  } cases[] = {
      {{"-d", "int4"}, "'int4' is not known"},
      {{"-d", "fp4"}, "use half (f16)"},
      {{"--protocol", "three-shot"}, "use sentinel, flagged, bulk, two-shot"},
      {{"-d", "float,"}, "'' is not known"},
      {{"-o", "xor"}, "'xor' is not known; use sum, prod, min"},
      {{"-b", "12Q"}, "'12Q' is not a size"},
      {{"-b", "0"}, "at least 1 byte"},
      {{"-b", "2M", "-e", "1M"}, "larger than the largest"},
      {{"-b", "4", "-d", "double"}, "less than one element of type double"},
      {{"-i", "0"}, "leads nowhere"},
      {{"-i", "1K", "-f", "2"}, "excludes"},
      {{"-g", "0"}, "--ngpus"},
      {{"-g", "two"}, "--ngpus"},
      {{"-n", "0"}, "--iters"},
      {{"--repeat", "0"}, "--repeat"},
      {{"-G", "-1"}, "--cudagraph"},
      {{"--deadline", "0"}, "--deadline"},
      {{"--no-such-flag"}, "--no-such-flag"},
      {{"stray"}, "stray"},
  };
  for (const auto& c : cases) {
    const outcome o = parse(c.arguments);
    INFO(c.arguments.front() << ' ' << o.complaints);
    CHECK(!o.result.run);
    CHECK(o.result.exit_code == exit_usage);
    CHECK_THAT(o.complaints, test::contains(c.reason));
    CHECK(o.out.empty());
  }
}

TEST_CASE("all that works here is run") {
  const choice two = choose(options_of({}), {2, ""}, everything, {});
  CHECK(two.world == 2);
  CHECK(two.transports == std::vector<std::string>{"shm", "nccl"});
  CHECK(two.on_gpus);
  CHECK(choose(options_of({}), {8, ""}, everything, {}).world == 8);
  CHECK(choose(options_of({"-g", "1"}), {8, ""}, everything, {}).world == 1);
  const choice alone = choose(options_of({}), {2, ""}, {true, false}, {});
  CHECK(alone.transports == std::vector<std::string>{"shm"});
  CHECK_THAT(alone.notes.at(0), test::contains("no NCCL"));
}

TEST_CASE("without GPUs host memory is used, and it is said") {
  const choice none = choose(options_of({}), {0, "no driver"}, everything, {});
  CHECK(none.world == 2);
  CHECK(!none.on_gpus);
  CHECK(none.transports == std::vector<std::string>{"host"});
  CHECK_THAT(none.notes.at(0), test::contains("no GPU (no driver)") && test::contains("host memory"));
  CHECK(choose(options_of({"-g", "5"}), {0, "x"}, everything, {}).world == 5);
  CHECK(choose(options_of({}), {1, ""}, everything, {}).transports == std::vector<std::string>{"host"});
  CHECK(choose(options_of({"-g", "1"}), {1, ""}, everything, {}).on_gpus);
  CHECK(choose(options_of({"--transports", "host"}), {8, ""}, everything, {}).world == 2);
}

TEST_CASE("GPUs are shared only when that is wanted") {
  CHECK_THAT(complaint_of(options_of({"-g", "4"}), {2, ""}, everything), test::contains("4 ranks on 2 GPUs"));
  CHECK_THAT(complaint_of(options_of({"-g", "2", "--transports", "shm"}), {1, ""}, everything),
             test::contains("on 1 GPU:"));
  const choice shared = choose(options_of({"-g", "2", "--share-gpus"}), {1, ""}, everything, {});
  CHECK(shared.transports == std::vector<std::string>{"shm"});
  CHECK(shared.world == 2);
  CHECK_THAT(complaint_of(options_of({"--share-gpus", "--transports", "nccl"}), {1, ""}, everything),
             test::contains("NCCL refuses"));
}

TEST_CASE("a transport that cannot be had is an error") {
  CHECK_THAT(complaint_of(options_of({"--transports", "ib"}), {2, ""}, everything),
             test::contains("'ib' does not exist"));
  CHECK_THAT(complaint_of(options_of({"--transports", "shm,shm"}), {2, ""}, everything), test::contains("twice"));
  CHECK_THAT(complaint_of(options_of({"--transports", "shm"}), {0, "no driver"}, everything),
             test::contains("needs a GPU: no driver"));
  CHECK_THAT(complaint_of(options_of({"--transports", "shm"}), {2, ""}, {false, false}),
             test::contains("build with CUDA"));
  CHECK_THAT(complaint_of(options_of({"--transports", "nccl"}), {2, ""}, {true, false}),
             test::contains("build with NCCL"));
}

TEST_CASE("copy engines are asked for as a transport, and their chunk is checked") {
  const choice copied = choose(options_of({"--transports", "shm,shm-copied"}), {2, ""}, everything, {});
  CHECK(copied.transports == std::vector<std::string>{"shm", "shm-copied"});
  CHECK(copied.on_gpus);
  CHECK(options_of({}).copy_chunk_bytes == 2u << 20);
  CHECK(options_of({"--copy-chunk", "64K"}).copy_chunk_bytes == 64u << 10);
  for (const char* bad : {"0", "24", "512M"}) CHECK(parse({"--copy-chunk", bad}).result.exit_code == exit_usage);
}

TEST_CASE("runs are repeated, and NCCL's knobs turned, only where ranks can be started anew") {
  CHECK(options_of({}).n_runs == 1);
  const options repeated = options_of({"--repeat", "5"}), knobs = options_of({"--nccl-knobs"});
  CHECK(repeated.n_runs == 5);
  CHECK(knobs.nccl_knobs);
  CHECK(choose(repeated, {0, "x"}, {}, {}).transports == std::vector<std::string>{"host"});
  CHECK(choose(knobs, {2, ""}, everything, {}).transports == std::vector<std::string>{"shm", "nccl"});
  for (const options& o : {repeated, knobs}) CHECK_THAT(complaint_of(o, {4, ""}, everything, 4), test::contains("-g"));
  CHECK_THAT(complaint_of(knobs, {2, ""}, {true, false}), test::contains("this build has none"));
  CHECK_THAT(complaint_of(knobs, {0, "no driver"}, everything), test::contains("no driver"));
  CHECK_THAT(complaint_of(options_of({"--nccl-knobs", "--transports", "shm"}), {2, ""}, everything),
             test::contains("not among those that run"));
}

TEST_CASE("a launcher's world is the world") {
  CHECK(choose(options_of({}), {0, "x"}, everything, 3).world == 3);
  const choice one_each = choose(options_of({}), {1, ""}, everything, 4);
  CHECK(one_each.world == 4);
  CHECK(one_each.transports == std::vector<std::string>{"shm", "nccl"});
  CHECK(choose(options_of({"-g", "4"}), {1, ""}, everything, 4).world == 4);
  CHECK_THAT(complaint_of(options_of({"-g", "2"}), {4, ""}, everything, 4),
             test::contains("differs from the launcher's world of 4"));
  CHECK_THAT(complaint_of(options_of({"--threads"}), {4, ""}, everything, 4), test::contains("processes"));
}
