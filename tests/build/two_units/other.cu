#include "all_headers.cuh"
#include "view.inc"

unit_view view_of_other() { return make_view(); }
