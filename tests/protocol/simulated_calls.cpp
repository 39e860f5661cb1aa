// Random programs of calls under simulated weak memory. Usage: simulated_calls [runs [first seed [ending]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "simulated_job.hpp"

namespace peerless::test {

void simulator::fail(const std::string& what) {
  std::printf("FAILED: %s\n  %s\n", what.c_str(), what_runs.c_str());
  std::fflush(stdout);
  _exit(1);
}

namespace {

planned_call draw_call(random_choices& choices, unsigned favourite, std::uint32_t world) {
  constexpr protocol_id protocols[] = {protocol_id::sentinel, protocol_id::flagged, protocol_id::bulk, protocol_id::two_shot};
  constexpr std::uint32_t most[] = {64, 96, 240, 240};
  planned_call call{};
  const unsigned n_protocols = world < least_two_shot_world ? 3 : 4;
  const std::uint64_t draw = choices.below(16);
  const auto chosen = favourite < n_protocols && draw != 0 ? favourite : static_cast<unsigned>(choices.below(n_protocols));
  call.protocol = protocols[chosen];
  if (!choices.once_in(5)) {
    const std::uint64_t limit = choices.once_in(3) ? 8 : most[chosen];
    call.n_elements = static_cast<std::uint32_t>(choices.below(limit + 1));
  }
  call.blocks = static_cast<std::uint32_t>(1 + choices.below(3));
  call.chunk_bytes = choices.once_in(3) ? 16 : choices.once_in(3) ? 32 : 64;
  call.in_place = choices.once_in(3);
  return call;
}

plan draw_plan(std::uint64_t seed, int forced_ending) {
  random_choices choices(mix(seed));
  plan p{};
  p.seed = seed;
  constexpr ending endings[] = {ending::mismatch, ending::absent, ending::died, ending::aborted, ending::closed};
  p.how = choices.once_in(3) ? endings[choices.below(5)] : ending::orderly;
  if (forced_ending >= 0) p.how = static_cast<ending>(forced_ending);
  p.world = p.how == ending::aborted ? 2 : static_cast<std::uint32_t>(2 + choices.below(2));
  p.depth = choices.once_in(2) ? 2 : choices.once_in(2) ? 4 : 8;
  constexpr std::uint64_t starts[] = {1, (std::uint64_t{1} << 32) - 6, (std::uint64_t{1} << 31) - 5,
                                      (std::uint64_t{1} << 63) - 6, (std::uint64_t{1} << 62) - 4};
  p.first_epoch = starts[choices.below(5)];
  const std::size_t n_calls = 8 + choices.below(23);
  const auto favourite = static_cast<unsigned>(choices.below(6));
  for (std::size_t k = 0; k < n_calls; ++k) p.calls.push_back(draw_call(choices, favourite, p.world));
  p.victim = p.how == ending::orderly ? p.world : static_cast<std::uint32_t>(choices.below(p.world));
  p.at = choices.below(n_calls - 1);
  p.ns_per_step = choices.once_in(3) ? 1000 : 10;
  constexpr unsigned passes[] = {1, 1, 4, 16};
  p.passes_one_in = passes[choices.below(4)];
  constexpr unsigned stale[] = {2, 5, 20, 1000};
  p.weak.stale_one_in = stale[choices.below(4)];
  p.weak.window_one_in = choices.once_in(2) ? 200 : 5000;
  p.weak.window_longest = choices.once_in(2) ? 100 : 2000;
  return p;
}

int run(int argc, char** argv) {
  const std::uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 500;
  const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
  int forced = -1;
  for (int i = 0; argc > 3 && i <= static_cast<int>(ending::closed); ++i) {
    if (std::string(name_of(static_cast<ending>(i))) == argv[3]) forced = i;
  }
  simulator s;
  simulated_job job(s);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t calls = 0, steps = 0;
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    const plan p = draw_plan(seed, forced);
    s.what_runs = "seed " + std::to_string(seed) + ": world " + std::to_string(p.world) + ", " + std::to_string(p.calls.size()) +
                  " calls from " + std::to_string(p.first_epoch) + ", " + name_of(p.how) + ". Again: simulated_calls 1 " +
                  std::to_string(seed) + (argc > 3 ? std::string(" ") + argv[3] : "");
    job.run(p);
    calls += p.calls.size() * p.world;
    steps += s.steps;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%llu runs, %llu calls of a rank, %llu steps in %.1f s: right\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(calls), static_cast<unsigned long long>(steps), seconds);
  return 0;
}

}  // namespace
}  // namespace peerless::test

int main(int argc, char** argv) { return peerless::test::run(argc, argv); }
