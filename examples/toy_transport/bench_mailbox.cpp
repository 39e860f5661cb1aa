// Rows of transport `mailbox`, in a peerless_all_reduce_perf that has this source.
#include "host_arm.hpp"
#include "mailbox.hpp"

const auto rows = peerless::bench::rows_of<toy::mailbox>();
