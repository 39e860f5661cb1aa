// How a call ended, told to the supervisor through the rank's record.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <peerless/core/error.hpp>

#include "support/run_ranks.hpp"

namespace peerless::test {

// Runs `action`; its error, if any, becomes the rank's outcome.
template <class F>
void record_outcome(rank_record& record, F&& action) {
  std::int64_t const start = now_ns();
  record.ended = {};
  try {
    std::forward<F>(action)();
  } catch (const peerless::error& caught) {
    record.ended.code = static_cast<std::uint32_t>(caught.code());
    record.ended.rank = caught.rank();
    record.ended.text.assign(caught.what());
  }
  record.ended.at_ns = now_ns();
  record.ended.elapsed_ns = record.ended.at_ns - start;
  record.outcomes.store(1, std::memory_order_release);
}

inline errc code_of(const rank_record& record) {
  return record.outcomes.load(std::memory_order_acquire) == 0 ? errc::aborted : record.ended.errc();
}
inline std::string text_of(const rank_record& record) { return std::string(record.ended.text.view()); }
inline std::chrono::milliseconds elapsed_of(const rank_record& record) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(record.ended.elapsed_ns));
}

}  // namespace peerless::test
