// The conformance suite: one list of cases for every backend.
#pragma once

#include "cases_sequences.hpp"
#include "cases_shapes.hpp"
#include "cases_values.hpp"

namespace peerless::test {

inline constexpr conformance_case conformance_cases[] = {
    {"counts", full_session, false, case_counts},
    {"counts by plan", full_session | wide_session, false, case_counts_by_plan},
    {"offsets by one element", full_session | brief_session, false, case_offsets},
    {"in place", full_session | wide_session | brief_session, false, case_in_place},
    {"places that differ between ranks", full_session | wide_session, false, case_places_differ},
    {"slot edges", full_session, false, case_slot_edges},
    {"larger than the slots", full_session | brief_session, false, case_larger_than_slots},
    {"calls without elements", full_session | epoch_session | wide_session | brief_session, false, case_empty_calls},
    {"large primes", large_session, false, case_large_primes},

    {"closed sums", full_session | wide_session | brief_session, false, case_closed_sums},
    {"uniform random values", full_session, false, case_values<payload::uniform>},
    {"values of any exponent", full_session, false, case_values<payload::wide>},
    {"any bit pattern", full_session | wide_session, false, case_values<payload::bits>},
    {"NaNs of any payload", full_session, false, case_values<payload::nans>},
    {"infinities", full_session, false, case_values<payload::infinities>},
    {"signed zeros", full_session, false, case_values<payload::signed_zeros>},
    {"words equal to the sentinel", full_session | epoch_session | brief_session, false,
     case_values<payload::sentinel_words>},
    {"low words of all ones", full_session, false, case_values<payload::low_word_ones>},
    {"extremes and wrap-around", full_session, false, case_values<payload::extremes>},
    {"subnormals", full_session, false, case_values<payload::subnormals>},

    {"launch shapes", full_session | brief_session, false, case_launch_shapes},
    {"large and small in turn", full_session | epoch_session | brief_session, false, case_large_and_small},
    {"shapes changing back to back", full_session | epoch_session | wide_session | brief_session, false,
     case_back_to_back},
    {"protocols mixed", full_session | epoch_session | brief_session, false, case_mixed_protocols},
    {"ranks now and then late", full_session | epoch_session, false, case_late_ranks<delays::few>},
    {"ranks often late", full_session, false, case_late_ranks<delays::many>},

    {"graph replayed 1000 times", full_session, true, case_graph_replays},
    {"graphs interleaved", full_session | epoch_session | brief_session, true, case_graphs_interleaved},
};

}  // namespace peerless::test
