#include "all_headers.cuh"
#include "view.inc"

#include <cstdio>

unit_view view_of_main() { return make_view(); }

int main() {
  const unit_view here = view_of_main();
  const unit_view there = view_of_other();
  const bool same = here.inline_constant == there.inline_constant && here.inline_function == there.inline_function &&
                    here.caught == there.caught;
  std::printf("%s\n", same ? "both units see one library" : "the units differ");
  return same ? 0 : 1;
}
