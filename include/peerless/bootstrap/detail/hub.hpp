// Rank 0 of a group on one host: the middle of the star.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <peerless/bootstrap/detail/hub_rendezvous.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Collects what every rank brings to a collective, then gives every rank the result. On any failure it tells all ranks
// the same error before it throws that error itself.
class host_hub {
 public:
  // Blocks for the rendezvous; see local_host_bootstrap::connect.
  host_hub(host_group& group, deadline limit) : lines_(hub_rendezvous(group, limit).run()) {}

  // One collective. Blocks to `limit` or the earliest limit of the other ranks; throws as concept `bootstrap` says.
  unique_fd meet(host_group& group, const host_call& call, deadline limit) {
    begin(group, call, limit);
    while (arrived_ < group.size) {
      for (int rank = 1; rank < group.size; ++rank) hear(group, call, rank, limit);
      if (arrived_ == group.size) break;
      if (verdict_limit_.expired() || !wait_for_news(group, verdict_limit_)) {
        const std::vector<int> absent = missing_ranks(present_);
        const std::string what(describe(call.kind));
        fail(error(errc::rendezvous_timeout,
                   what + ": " + describe_missing(absent, group.size) + " (stopped, or never called)", absent.front()),
             limit);
      }
    }
    answer(group, call, limit);
    return std::move(passed_);
  }

 private:
  void begin(host_group& group, const host_call& call, deadline limit) {
    verdict_limit_ = verdict_limit(limit.remaining());
    present_.assign(static_cast<std::size_t>(group.size), false);
    present_[0] = true;
    arrived_ = 1;
    gathered_.resize(call.mine.size() * static_cast<std::size_t>(group.size));
    if (!call.mine.empty()) std::memcpy(gathered_.data(), call.mine.data(), call.mine.size());
    passed_.reset();
    if (call.kind != frame_kind::broadcast_fd || call.root != 0) return;
    try {
      passed_ = unique_fd::duplicate(call.fd);
    } catch (const error& caught) {
      fail(error(caught.code(), "broadcast_fd from rank 0: " + caught.message(), 0, caught.native_code()), limit);
    }
  }

  // Takes what `rank` has sent, if anything; fails if it cannot send any more.
  void hear(host_group& group, const host_call& call, int rank, deadline limit) {
    connection& line = *lines_[index(rank)];
    line.pump_in();
    if (!present_[index(rank)]) {
      if (std::optional<frame> words = line.next()) {
        take(call, rank, *words, limit);
        line.pump_in();  // it may have given up since it sent this
      }
    }
    // Also of a rank that has contributed: it will miss the result, and nobody may take it for done.
    host_member& member = group.member(rank);
    if (line.closed() || has_ended(member.process, deadline::after(std::chrono::milliseconds(0)))) {
      fail(line.complaint().empty()
               ? lost_rank(member, rank)
               : error(errc::rendezvous_mismatch, "rank " + std::to_string(rank) + ": " + line.complaint(), rank),
           limit);
    }
  }

  void take(const host_call& call, int rank, frame& words, deadline limit) {
    if (words.status() != errc::ok) fail(decode_error(words), limit);
    const frame_header& said = words.header;
    if (said.kind != call.kind || said.root != call.root || said.sequence != call.sequence ||
        words.payload.size() != call.mine.size()) {
      const auto numbered = [](std::uint64_t sequence) { return " (collective " + std::to_string(sequence) + ")"; };
      fail(error(errc::rendezvous_mismatch,
                 describe_call(0, std::string(describe(call.kind)), call.root, call.mine.size()) +
                     numbered(call.sequence) + ", " +
                     describe_call(rank, std::string(describe(said.kind)), said.root, words.payload.size()) +
                     numbered(said.sequence),
                 rank),
           limit);
    }
    if (!words.payload.empty()) {
      std::memcpy(gathered_.data() + call.mine.size() * index(rank), words.payload.data(), words.payload.size());
    }
    if (rank == call.root) {
      if (words.fds.empty()) {
        fail(error(errc::system_error,
                   "rank 0 lost the descriptor of rank " + std::to_string(rank) +
                       "; raise the limit of open files (ulimit -n)",
                   0, EMFILE),
             limit);
      }
      passed_ = std::move(words.fds.front());
    }
    const auto theirs = std::min<std::uint64_t>(said.remaining_ms, 1u << 30);
    verdict_limit_ = earlier(verdict_limit_, verdict_limit(std::chrono::milliseconds(theirs)));
    present_[index(rank)] = true;
    ++arrived_;
  }

  void answer(host_group& group, const host_call& call, deadline limit) {
    frame_header header;
    header.kind = call.kind;
    header.rank = 0;
    header.root = call.root;
    header.sequence = call.sequence;
    header.fds = passed_ ? 1 : 0;
    const auto words = std::make_shared<const std::vector<std::byte>>(encode(header, gathered_));
    for (int rank = 1; rank < group.size; ++rank) {
      std::vector<unique_fd> fds;
      if (passed_) fds.push_back(passed_.duplicate());
      lines_[index(rank)]->send(words, std::move(fds));
      lines_[index(rank)]->pump_out();
    }
    if (!flush(lines_, limit)) {
      for (int rank = 1; rank < group.size; ++rank) {
        if (!lines_[index(rank)]->has_output()) continue;
        fail(error(errc::rendezvous_timeout,
                   "rank " + std::to_string(rank) + " does not take the result: it is stopped", rank),
             limit);
      }
    }
    if (!gathered_.empty()) std::memcpy(call.all.data(), gathered_.data(), gathered_.size());
  }

  bool wait_for_news(host_group& group, deadline limit) {
    waiting_.clear();
    for (int rank = 1; rank < group.size; ++rank) {
      waiting_.add(*lines_[index(rank)]);
      waiting_.add_process(group.member(rank).process);
    }
    return waiting_.wait(limit);
  }

  // Tells every rank and throws. A rank that does not listen is given half a second at most.
  [[noreturn]] void fail(const error& failure, deadline limit) {
    const auto words = std::make_shared<const std::vector<std::byte>>(encode(failure));
    for (const auto& line : lines_) {
      if (line) line->send(words);
    }
    flush(lines_, earlier(limit, deadline::after(std::chrono::milliseconds(500))));
    throw failure;
  }

  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

  std::vector<std::unique_ptr<connection>> lines_;  // by rank; [0] null
  deadline verdict_limit_ = deadline::after(std::chrono::milliseconds(0));
  std::vector<bool> present_;
  int arrived_ = 0;
  std::vector<std::byte> gathered_;
  unique_fd passed_;
  poll_set waiting_;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
