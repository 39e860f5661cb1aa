// Core compiles and works without run-time type information: an error crosses a function as itself.
#include "core_headers.hpp"

#include <cstdio>
#include <exception>

#ifdef __GXX_RTTI
#error "this unit is meant to be compiled with -fno-rtti"
#endif

int main() {
  try {
    throw peerless::error(peerless::errc::timeout, "no type information", 1, 110);
  } catch (const std::exception& caught) {
    std::printf("%s\n", caught.what());
    return 0;
  }
}
