// What the two units tell each other. If the library's functions and constants are one in the whole program, as inline
// demands, both units see the same addresses.
#pragma once

#include <string>

struct unit_view {
  const void* inline_constant;                // address of a constant of the library
  std::string (*inline_function)(int number);  // address of an inline function that uses the library
  std::string caught;                         // what an error thrown and caught in the unit says
};

unit_view view_of_main();
unit_view view_of_other();
