// Steps that all ranks take or none: a failure of one becomes the same error on every rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include <peerless/bootstrap/bootstrap_ref.hpp>
#include <peerless/core/error.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// What one rank tells the others about a step. Fixed size, so that one all_gather carries it.
struct step_report {
  errc code = errc::ok;
  std::int32_t native_code = 0;
  std::int32_t about = -1;
  char text[500] = {};
};

inline step_report report_of(const error& e) {
  step_report report{e.code(), e.native_code(), e.rank(), {}};
  const std::size_t length = std::min(e.message().size(), sizeof(report.text) - 1);
  std::memcpy(report.text, e.message().data(), length);
  return report;
}

}  // namespace detail

// Collective. Runs `step()` on this rank, then learns how it went on all. If it failed anywhere, every rank throws the
// error of the lowest rank that failed, naming it; what `step` built must be undone by its own owners. Blocks until all
// ranks are done or `limit`; bootstrap errors (a rank dead or late) are thrown as they are.
template <class Step>
void agree_on(bootstrap_ref boot, deadline limit, Step&& step) {
  detail::step_report mine;
  try {
    step();
  } catch (const error& e) {
    mine = detail::report_of(e);
  } catch (const std::exception& e) {
    mine = detail::report_of(error(errc::system_error, e.what()));
  }
  const auto all = all_gather_value(boot, mine, limit);
  for (int r = 0; r < boot.size(); ++r) {
    const auto& report = all[static_cast<std::size_t>(r)];
    if (report.code == errc::ok) continue;
    const std::string where = r == boot.rank() ? "" : "on rank " + std::to_string(r) + ": ";
    throw error(report.code, where + report.text, report.about >= 0 ? report.about : r, report.native_code);
  }
}

PEERLESS_END_NAMESPACE
