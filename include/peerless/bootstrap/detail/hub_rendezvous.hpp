// How rank 0 gathers its group: listens, admits or refuses, and tells every rank the same.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include <peerless/bootstrap/detail/admission.hpp>
#include <peerless/bootstrap/detail/greeting.hpp>
#include <peerless/bootstrap/detail/host_group.hpp>
#include <peerless/bootstrap/detail/job_marker.hpp>
#include <peerless/bootstrap/detail/missing.hpp>
#include <peerless/bootstrap/detail/socket.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// One rendezvous of rank 0. Lives for one run(); the name is given up when the group is complete, so that the same
// ranks can meet again under it at once.
class hub_rendezvous {
 public:
  hub_rendezvous(host_group& group, deadline limit)
      : group_(group),
        limit_(limit),
        verdict_limit_(verdict_limit(limit.remaining())),
        lines_(static_cast<std::size_t>(group.size)) {}

  // Blocks until every rank has come, or fails as local_host_bootstrap::connect says. Gives the lines by rank ([0]
  // null); the members of the group are filled.
  std::vector<std::unique_ptr<connection>> run() {
    listen();
    admit_self();
    refuse_second_job();
    while (admitted_ < group_.size) {
      if (verdict_limit_.expired() || !wait_for_news(verdict_limit_)) fail_missing();
      accept_guests(false);
      hear_guests();
      watch_admitted();
    }
    group_.marker = set_job_marker(job_key::of(group_.identity.text));  // before the name is free
    listener_.reset();
    welcome_all();
    return std::move(lines_);
  }

 private:
  // A connection that has not said hello yet.
  struct guest {
    std::unique_ptr<connection> line;
    ::pid_t pid;
    bool heard = false;  // has sent a whole message
    bool told = false;
  };
  // Silent strangers may hold this many places before the oldest loses its own; a rank speaks as soon as it connects.
  static constexpr std::size_t max_guests = 64;

  void listen() {
    const abstract_address where = abstract_address::of(job_key::of(group_.identity.text));
    while (!(listener_ = listen_at(where))) {
      // Somebody holds the name. Ask: a rank 0 answers with the verdict that both hear.
      greeting met = greet(group_, where, earlier(limit_, deadline::after(std::chrono::seconds(2))));
      if (met.result == greeting::outcome::answered && met.answer->status() != errc::ok)
        throw decode_error(*met.answer);
      const bool gone = met.result == greeting::outcome::nobody || met.result == greeting::outcome::died;
      if (!gone || limit_.expired()) {
        throw error(errc::rendezvous_mismatch,
                    "the rendezvous socket is held by " +
                        (met.about.empty() ? std::string("a process that does not answer") : met.about) + "; " +
                        identity_advice(group_.identity),
                    0);
      }
      std::this_thread::sleep_for(std::min(limit_.remaining(), std::chrono::milliseconds(5)));
    }
  }

  void admit_self() {
    host_member& self = group_.member(0);
    self.pid = ::getpid();
    if (group_.own_process) self.process = group_.own_process.duplicate();
    self.life = group_.own_life.peers.duplicate();
    admitted_ = 1;
    largest_size_ = group_.size;
  }

  // After a restart the rank 0 of the life before may need a moment to end.
  void refuse_second_job() {
    const deadline patience = earlier(verdict_limit_, deadline::after(std::chrono::milliseconds(500)));
    const job_key key = job_key::of(group_.identity.text);
    ::pid_t other = 0;
    while ((other = find_other_job(key)) != 0 && !patience.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (other == 0) return;
    fail(error(errc::rendezvous_mismatch,
               "another job of this name is running, its rank 0 is process " + std::to_string(other) + "; " +
                   identity_advice(group_.identity),
               0));
  }

  bool wait_for_news(deadline limit) {
    waiting_.clear();
    waiting_.add_listener(listener_);
    for (const guest& each : guests_) waiting_.add(*each.line);
    for (const auto& line : lines_) {
      if (line) waiting_.add(*line);
    }
    for (std::size_t rank = 1; rank < lines_.size(); ++rank) {
      if (lines_[rank] && !failed_) waiting_.add_process(group_.members[rank].process);
    }
    return waiting_.wait(limit);
  }

  void accept_guests(bool quiet) {
    for (int burst = 0; burst < 64; ++burst) {
      unique_fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK || quiet) return;
        fail(error(errc::system_error, "rank 0 cannot accept a rank: " + std::generic_category().message(errno), 0,
                   errno));
      }
      const ::ucred other = credentials_of(socket.get());
      if (other.uid != ::geteuid()) continue;  // another user has no business here and gets no answer
      if (guests_.size() >= max_guests) guests_.erase(guests_.begin());
      guests_.push_back({std::make_unique<connection>(std::move(socket)), other.pid});
    }
  }

  void hear_guests() {
    for (guest& each : guests_) {
      each.line->pump_in();
      if (std::optional<frame> words = each.line->next()) {
        each.heard = true;
        hear(each, *words);
      }
    }
    std::erase_if(guests_, [](const guest& each) { return !each.line || each.line->closed(); });
  }

  // Admits the rank behind a hello or fails the rendezvous for all.
  void hear(guest& from, frame& words) {
    if (!is_hello(words)) return from.line.reset();
    if (std::optional<error> failure = version_objection(words, from.pid)) fail(*failure);
    const hello said = words.as<hello>();
    largest_size_ = std::clamp(said.size, largest_size_, max_host_ranks);
    if (std::optional<error> failure = hello_objection(group_, said, from.pid)) fail(*failure);
    host_member& member = group_.member(said.rank);
    std::unique_ptr<connection>& line = lines_[static_cast<std::size_t>(said.rank)];
    if (said.rank == 0 || line) {
      duplicates_ = true;
      fail(duplicate_objection(group_, said, from.pid));
    }
    if (std::optional<error> failure = descriptor_objection(words, said)) fail(*failure);
    member.pid = static_cast<::pid_t>(said.pid);
    if (said.has_pidfd != 0) member.process = std::move(words.fds.front());
    member.life = std::move(words.fds.back());
    const auto theirs = std::min<std::uint64_t>(words.header.remaining_ms, 1u << 30);
    verdict_limit_ = earlier(verdict_limit_, verdict_limit(std::chrono::milliseconds(theirs)));
    from.line->accept_payload(max_payload_bytes);
    line = std::move(from.line);
    ++admitted_;
  }

  // A rank that has come and then ends or leaves takes the group with it.
  void watch_admitted() {
    for (int rank = 1; rank < group_.size; ++rank) {
      const auto& line = lines_[static_cast<std::size_t>(rank)];
      if (!line) continue;
      line->pump_in();
      if (line->closed() || has_ended(group_.member(rank).process, deadline::after(std::chrono::milliseconds(0)))) {
        fail(lost_rank(group_.member(rank), rank));
      }
    }
  }

  [[noreturn]] void fail_missing() {
    std::vector<bool> present;
    for (const auto& line : lines_) present.push_back(static_cast<bool>(line));
    present[0] = true;
    const std::vector<int> absent = missing_ranks(present);
    fail(error(errc::rendezvous_timeout,
               describe_missing(absent, group_.size) + "; " + identity_advice(group_.identity), absent.front()));
  }

  // Tells all ranks that are here, then for a while those that still come (launchers start ranks one after the other),
  // and throws. Ends early once all that can be expected have been told; never later than the limit.
  [[noreturn]] void fail(const error& failure) {
    failed_ = true;
    const auto words = std::make_shared<const std::vector<std::byte>>(encode(failure));
    int told = 0;
    for (const auto& line : lines_) {
      if (!line) continue;
      line->send(words);
      line->pump_out();
      ++told;
    }
    const int expected = duplicates_ && group_.size > 1 ? 2 * largest_size_ - 1 : largest_size_ - 1;
    const deadline grace = earlier(limit_, deadline::after(group_.refusal_grace));
    const auto tell = [&](guest& each) {
      each.line->pump_in();
      each.heard = each.line->next().has_value() || each.heard;
      if (each.told || !each.heard) return;
      each.line->send(words);
      each.told = true;
      ++told;
    };
    for (;;) {
      bool unsent = false;
      for (guest& each : guests_) {
        if (!each.line) continue;
        tell(each);
        each.line->pump_out();
        unsent = unsent || each.line->has_output();
      }
      for (const auto& line : lines_) {
        if (!line) continue;
        line->pump_out();
        line->pump_in();
        unsent = unsent || line->has_output();
      }
      std::erase_if(guests_, [](const guest& each) { return !each.line || each.line->closed(); });
      if ((told >= expected && !unsent) || !wait_for_news(grace)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // whatever keeps poll() from sleeping
      accept_guests(true);
    }
    throw failure;
  }

  void welcome_all() {
    std::vector<welcome_entry> entries;
    for (const host_member& member : group_.members) entries.push_back({member.pid, member.process ? 1u : 0u, 0});
    frame_header header;
    header.kind = frame_kind::welcome;
    header.rank = 0;
    for (const welcome_entry& entry : entries)
      header.fds = static_cast<std::uint16_t>(header.fds + 1 + entry.has_pidfd);
    const auto words =
        std::make_shared<const std::vector<std::byte>>(encode(header, std::as_bytes(std::span(entries))));
    for (const auto& line : lines_) {
      if (!line) continue;
      std::vector<unique_fd> fds;
      for (const host_member& member : group_.members) {
        if (member.process) fds.push_back(member.process.duplicate());
        fds.push_back(member.life.duplicate());
      }
      line->send(words, std::move(fds));
      line->pump_out();
    }
    flush(lines_, limit_);
  }

  host_group& group_;
  const deadline limit_;
  deadline verdict_limit_;
  unique_fd listener_;
  std::vector<guest> guests_;
  std::vector<std::unique_ptr<connection>> lines_;  // by rank, of those admitted
  poll_set waiting_;
  int admitted_ = 0;
  int largest_size_ = 1;
  bool duplicates_ = false;
  bool failed_ = false;
};

}  // namespace detail

PEERLESS_END_NAMESPACE
