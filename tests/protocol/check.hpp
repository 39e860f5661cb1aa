// Checks for programs without a test framework: they build fast, which the mutation script needs.
#pragma once

#include <cstdio>

namespace peerless::test {

inline int& failed_checks() {
  static int count = 0;
  return count;
}

// Prints the first failures of a program.
inline void check(bool good, const char* what, const char* file, int line, unsigned long long value = 0) {
  if (good) return;
  if (++failed_checks() <= 20) std::printf("FAILED: %s:%d: %s (%llu)\n", file, line, what, value);
}

inline int report(const char* program) {
  std::printf("%s: %d failed checks\n", program, failed_checks());
  return failed_checks() == 0 ? 0 : 1;
}

}  // namespace peerless::test

// `...`: a number that tells which case failed.
#define PEERLESS_CHECK(condition, ...) \
  ::peerless::test::check((condition), #condition, __FILE__, __LINE__ __VA_OPT__(, static_cast<unsigned long long>(__VA_ARGS__)))
