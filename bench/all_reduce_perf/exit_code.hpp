// What the program's exit says.
#pragma once

namespace peerless::bench {

inline constexpr int exit_ok = 0;
inline constexpr int exit_wrong_data = 1;
inline constexpr int exit_usage = 2;   // flags, environment or a request that this machine or build cannot serve
inline constexpr int exit_failed = 3;  // a rank failed, died or passed the deadline

}  // namespace peerless::bench
