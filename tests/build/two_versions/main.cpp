// Two versions of the library in one process: both reduce, one after the other and at the same time; and ranks of
// different versions refuse each other with the same typed error on both sides.
#include "library.hpp"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include <peerless/core/error.hpp>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  failures += holds ? 0 : 1;
}

}  // namespace

int main() {
  const library_functions first = this_version();
  const library_functions second = other_version();
  expect(first.version() != second.version() && second.version() == 90807, "the versions differ");
  expect(first.sum_over_threads() == 3.0, "this version reduces");
  expect(second.sum_over_threads() == 3.0, "the other version reduces");

  double from_second = 0.0;
  std::thread beside([&] { from_second = second.sum_over_threads(); });
  const double from_first = first.sum_over_threads();
  beside.join();
  expect(from_first == 3.0 && from_second == 3.0, "both reduce at the same time");

  const std::string pid = std::to_string(getpid());
  const auto mismatch = static_cast<unsigned>(peerless::errc::rendezvous_mismatch);
  for (const bool swapped : {false, true}) {
    const library_functions& listener = swapped ? second : first;
    const library_functions& joiner = swapped ? first : second;
    const std::string job = "two-versions-" + pid + (swapped ? "-b" : "-a");
    unsigned of_joiner = 0;
    std::thread joining([&] { of_joiner = joiner.join(1, job.c_str()); });
    const unsigned of_listener = listener.join(0, job.c_str());
    joining.join();
    std::printf("codes: rank 0 %u, rank 1 %u\n", of_listener, of_joiner);
    expect(of_listener == mismatch && of_joiner == mismatch, "ranks of two versions refuse each other, and both say so");
  }
  return failures == 0 ? 0 : 1;
}
