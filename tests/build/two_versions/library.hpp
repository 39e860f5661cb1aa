// What each of the two libraries exports.
#pragma once

struct library_functions {
  int (*version)();                   // 10000 * major + 100 * minor + patch
  double (*sum_over_threads)();       // all-reduce of 1 and 2 between two threads
  unsigned (*join)(int rank, const char* job);  // joins a job of two ranks on this host; the errc it fails with, 0 for none
};

extern "C" library_functions this_version();
extern "C" library_functions other_version();
