#include "suite.hpp"

#include <chrono>
#include <cstdio>
#include <string>

#include "cases.hpp"

namespace peerless::test {

namespace {

bool applies(const conformance_case& c, const setting& s) {
  return (c.kinds & s.kind) != 0 && (!c.needs_capture || s.captures);
}

const char* name_of(session_kind kind) {
  switch (kind) {
    case full_session: return "full";
    case epoch_session: return "epochs";
    case wide_session: return "wide";
    case large_session: return "large";
    case brief_session: return "brief";
  }
  return "?";
}

// Every rank has the same bits, compared with nothing but each other.
void compare_hashes(case_run& run, bootstrap_ref group, const char* name) {
  std::uint64_t const mine = run.checker().take_hash();
  auto const hashes = all_gather_value(group, mine, deadline::after(std::chrono::seconds(60)));
  for (int rank = 0; rank < run.world(); ++rank) {
    if (hashes[static_cast<std::size_t>(rank)] != mine) {
      run.checker().context().fail(
          name, "the results of rank " + std::to_string(rank) + " hash differently from those of this rank");
    }
  }
}

void run_rank(const setting& s, rank_context& context, bootstrap_ref group) {
  auto const communicator = backend_under_test().make(group, s.options, s.arena_bytes);
  std::uint64_t const seed =
      mix(static_cast<std::uint64_t>(s.world) * 4 + static_cast<std::uint64_t>(s.how) * 2 + s.options.first_epoch);
  call_checker checker(context, *communicator, s.arena_bytes, seed);
  context.record().note.assign(communicator->describe());
  for (conformance_case const& c : conformance_cases) {
    if (!applies(c, s)) continue;
    checker.set_where(c.name);
    case_run run(s, checker, seed ^ seed_of(c.name));
    try {
      c.run(run);
    } catch (const error& e) {
      throw error(e.code(), std::string("case \"") + c.name + "\": " + e.message(), e.rank(), e.native_code(),
                  e.where());
    }
    compare_hashes(run, group, c.name);
  }
  communicator->check();
  context.require(communicator->status().code == errc::ok, "end of session", "status() tells of a failure");
}

}  // namespace

session_result run_session(const setting& asked) {
  setting s = asked;
  s.captures = backend_under_test().captures;
  auto const start = std::chrono::steady_clock::now();
  auto const run =
      run_ranks(s.world, s.how, [&](rank_context& context, bootstrap_ref group) { run_rank(s, context, group); });
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  session_result result;
  result.problems = run.problems();
  result.calls = run.calls_verified();
  unsigned cases = 0;
  std::string left_out;
  for (conformance_case const& c : conformance_cases) {
    if (applies(c, s)) {
      ++cases;
    } else if ((c.kinds & s.kind) != 0) {
      left_out +=
          std::string(left_out.empty() ? "; not applicable to this backend, which captures nothing: " : ", ") + c.name;
    }
  }
  char text[160];
  std::snprintf(text, sizeof text, "%s, %s, %d %s, first call %llu: %u cases, %llu calls verified in %.1f s",
                std::string(backend_under_test().name).c_str(), name_of(s.kind), s.world, name_of(s.how),
                static_cast<unsigned long long>(s.options.first_epoch), cases,
                static_cast<unsigned long long>(result.calls), seconds);
  result.summary = text + left_out;
  if (cases == 0) result.problems += "the session has no case\n";
  if (result.calls == 0) result.problems += "the session verified no call\n";
  return result;
}

std::string run_sessions(std::span<const setting> sessions, std::uint64_t& calls) {
  std::string problems;
  for (setting const& s : sessions) {
    session_result const result = run_session(s);
    std::printf("%s\n", result.summary.c_str());
    std::fflush(stdout);
    if (!result.problems.empty()) problems += result.summary + "\n" + result.problems;
    calls += result.calls;
  }
  return problems;
}

}  // namespace peerless::test
