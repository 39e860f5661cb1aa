// Any rank but 0 of a group on one host.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <peerless/bootstrap/detail/greeting.hpp>
#include <peerless/bootstrap/detail/missing.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// Talks to rank 0 only. After any failure the line is closed, so that rank 0 and through it all others learn of it.
class host_spoke {
 public:
  // Blocks for the rendezvous; see local_host_bootstrap::connect.
  host_spoke(host_group& group, deadline limit) {
    const abstract_address where = abstract_address::of(job_key::of(group.identity.text));
    auto pause = std::chrono::milliseconds(1);
    for (;;) {
      greeting met = greet(group, where, limit);
      if (met.result == greeting::outcome::answered) {
        if (met.answer->status() != errc::ok) throw decode_error(*met.answer);
        learn(group, *met.answer);
        line_ = std::move(met.line);
        return;
      }
      if (met.result == greeting::outcome::died) {
        throw error(errc::peer_died,
                    "rank 0 (" + met.about + ") ended before it answered; " + identity_advice(group.identity), 0);
      }
      if (met.result == greeting::outcome::stranger) {
        throw error(errc::rendezvous_mismatch,
                    "the rendezvous socket is held by " + met.about + "; " + identity_advice(group.identity), 0);
      }
      if (met.result == greeting::outcome::silent) {
        throw error(errc::rendezvous_timeout,
                    "rank 0 (" + met.about + ") does not answer (stopped?); " + identity_advice(group.identity), 0);
      }
      if (limit.expired()) throw nobody(group);
      std::this_thread::sleep_for(std::min(limit.remaining(), pause));
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
  }

  // One collective. Blocks to `limit`; throws as concept `bootstrap` says.
  unique_fd meet(host_group& group, const host_call& call, deadline limit) {
    try {
      contribute(group, call, limit);
      return receive(group, call, limit);
    } catch (...) {
      line_.reset();
      throw;
    }
  }

 private:
  static error nobody(const host_group& group) {
    return error(
        errc::rendezvous_timeout,
        describe_missing({0}, group.size) +
            ": no rank 0 of this user answered in this network namespace (one container a rank needs a shared one); " +
            identity_advice(group.identity),
        0);
  }

  void learn(host_group& group, frame& welcome) {
    const std::size_t size = static_cast<std::size_t>(group.size);
    if (welcome.payload.size() != size * sizeof(welcome_entry)) {
      throw error(errc::rendezvous_mismatch,
                  "rank 0 sent a welcome of " + std::to_string(welcome.payload.size()) + " bytes", 0);
    }
    if (welcome.fds.size() < welcome.header.fds) raise_lost_descriptor(group.rank);
    std::vector<welcome_entry> entries(size);
    std::memcpy(entries.data(), welcome.payload.data(), welcome.payload.size());
    std::size_t next = 0;
    const auto take = [&] { return next < welcome.fds.size() ? std::move(welcome.fds[next++]) : unique_fd(); };
    for (std::size_t rank = 0; rank < size; ++rank) {
      host_member& member = group.members[rank];
      member.pid = static_cast<::pid_t>(entries[rank].pid);
      if (entries[rank].has_pidfd != 0) member.process = take();
      member.life = take();
    }
  }

  void contribute(const host_group& group, const host_call& call, deadline limit) {
    if (!line_) throw error(errc::invalid_usage, "this rank has left the group after a failure", group.rank);
    frame_header header;
    header.kind = call.kind;
    header.rank = group.rank;
    header.root = call.root;
    header.sequence = call.sequence;
    header.remaining_ms = static_cast<std::uint64_t>(limit.remaining().count());
    std::vector<unique_fd> fds;
    if (call.kind == frame_kind::broadcast_fd && call.root == group.rank) {
      try {
        fds.push_back(unique_fd::duplicate(call.fd));
      } catch (const error& caught) {
        // Tell rank 0, which tells everybody, this rank included.
        line_->send(encode(error(caught.code(),
                                 "broadcast_fd from rank " + std::to_string(group.rank) + ": " + caught.message(),
                                 group.rank, caught.native_code())));
        return;
      }
    }
    header.fds = static_cast<std::uint16_t>(fds.size());
    line_->send(encode(header, call.mine), std::move(fds));
  }

  unique_fd receive(host_group& group, const host_call& call, deadline limit) {
    for (;;) {
      line_->pump_out();
      line_->pump_in();
      if (std::optional<frame> words = line_->next()) return take(group, call, *words);
      if (line_->closed() || has_ended(group.member(0).process, deadline::after(std::chrono::milliseconds(0)))) {
        line_->pump_in();  // its last words
        if (line_->frame_complete()) continue;
        if (!line_->complaint().empty()) throw error(errc::rendezvous_mismatch, "rank 0: " + line_->complaint(), 0);
        throw lost_rank(group.member(0), 0);
      }
      waiting_.clear();
      waiting_.add(*line_);
      waiting_.add_process(group.member(0).process);
      if (limit.expired() || !waiting_.wait(limit)) {
        // Rank 0 speaks its verdict before any rank's limit: if it has not, it is the one that is late.
        throw error(errc::rendezvous_timeout,
                    std::string(describe(call.kind)) + ": rank 0 does not answer (stopped, or never called)", 0);
      }
    }
  }

  unique_fd take(const host_group& group, const host_call& call, frame& words) {
    if (words.status() != errc::ok) throw decode_error(words);
    if (words.header.kind != call.kind || words.header.sequence != call.sequence ||
        words.payload.size() != call.all.size()) {
      throw error(errc::rendezvous_mismatch,
                  "rank 0 answered " + std::string(describe(words.header.kind)) + " of " +
                      std::to_string(words.payload.size()) + " bytes to " + std::string(describe(call.kind)) + " of " +
                      std::to_string(call.all.size()),
                  0);
    }
    if (words.fds.size() < words.header.fds) raise_lost_descriptor(group.rank);
    if (!words.payload.empty()) std::memcpy(call.all.data(), words.payload.data(), words.payload.size());
    return words.fds.empty() ? unique_fd() : std::move(words.fds.front());
  }

  [[noreturn]] static void raise_lost_descriptor(int rank) {
    throw error(
        errc::system_error,
        "rank " + std::to_string(rank) + " has no room for a descriptor; raise the limit of open files (ulimit -n)",
        rank, EMFILE);
  }

  std::unique_ptr<connection> line_;
  poll_set waiting_;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
