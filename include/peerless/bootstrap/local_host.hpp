// The bootstrap of ranks that are processes of one machine and one user.
#pragma once

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

#include <unistd.h>

#include <peerless/bootstrap/concepts.hpp>
#include <peerless/bootstrap/detail/host_group.hpp>
#include <peerless/bootstrap/detail/hub.hpp>
#include <peerless/bootstrap/detail/spoke.hpp>
#include <peerless/bootstrap/job_identity.hpp>
#include <peerless/core/env.hpp>
#include <peerless/core/error.hpp>
#include <peerless/core/hash.hpp>

PEERLESS_BEGIN_NAMESPACE

// Settings of a rendezvous on one host; equal on all ranks but for the deadline.
struct local_host_options {
  // For connect() as a whole.
  std::chrono::milliseconds deadline{60'000};
  // Ranks with another value are refused. By default the library's version.
  std::uint64_t layout_hash = detail::stable_hash(
      "peerless", (PEERLESS_VERSION_MAJOR << 20) + (PEERLESS_VERSION_MINOR << 10) + PEERLESS_VERSION_PATCH);
  // After a refusal rank 0 stays this long, within its deadline, to tell ranks that are only just starting.
  std::chrono::milliseconds refusal_grace{3'000};
  // False: as on kernels that have no pidfds; the end of a process shows by its life line only.
  bool use_pidfd = true;

  // The defaults, the deadline changed by PEERLESS_SETUP_DEADLINE_MS. Throws errc::bad_environment.
  static local_host_options from_environment() {
    local_host_options options;
    if (const auto ms = env::get_between<std::int32_t>("PEERLESS_SETUP_DEADLINE_MS", 1, 0x7fffffff, "milliseconds")) {
      options.deadline = std::chrono::milliseconds(*ms);
    }
    return options;
  }
};

// One rank of a group of processes: models `bootstrap`. Ranks meet at an abstract Unix socket whose name is made of the
// user and the job's identity, and talk through rank 0. Nothing is ever in a file system, and nothing outlives the
// processes. Ranks may live in different pid namespaces, but need one network namespace and one user. Used by one
// thread at a time. Move-only. Destroying it while others wait for this rank gives them errc::peer_closed.
class local_host_bootstrap {
 public:
  // Collective: every rank calls it with the same identity, size and layout hash, and its own rank. Blocks until all
  // ranks 0 .. size - 1 are here, at most to the earliest of their deadlines. A world of 1 returns at once and meets
  // nobody. Throws, on every rank that has come and for `refusal_grace` on those that still come:
  //   errc::rendezvous_timeout   ranks are missing or stopped; rank() is the first of those that the message names
  //   errc::rendezvous_mismatch  sizes, layout hashes or versions differ, a rank is out of range or there twice,
  //                              another job of this identity meets or still has its bootstrap, or somebody else
  //                              holds the name; the message has both values
  //   errc::peer_died            the process of rank() ended meanwhile
  //   errc::peer_closed          rank() gave up meanwhile
  // and on this rank alone errc::invalid_argument (size < 1), unsupported (size > 64), system_error, bad_environment.
  static local_host_bootstrap connect(job_identity identity, int rank, int size,
                                      local_host_options options = local_host_options::from_environment()) {
    if (size < 1) throw error(errc::invalid_argument, "a world of " + std::to_string(size) + " ranks", rank);
    if (size > detail::max_host_ranks) {
      throw error(errc::unsupported,
                  "a world of " + std::to_string(size) + " ranks on one host; at most " +
                      std::to_string(detail::max_host_ranks),
                  rank);
    }
    if (size == 1 && rank != 0)
      throw error(errc::rendezvous_mismatch, "rank " + std::to_string(rank) + " of a world of 1", rank);
    const deadline limit = deadline::after(options.deadline);
    local_host_bootstrap made;
    detail::host_group& group = *made.group_;
    group.identity = std::move(identity);
    group.rank = rank;
    group.size = size;
    group.layout_hash = options.layout_hash;
    group.use_pidfd = options.use_pidfd;
    group.refusal_grace = options.refusal_grace;
    group.prepare();
    if (size > 1 && rank == 0) made.hub_ = std::make_unique<detail::host_hub>(group, limit);
    if (size > 1 && rank != 0) made.spoke_ = std::make_unique<detail::host_spoke>(group, limit);
    group.settle();
    return made;
  }

  local_host_bootstrap(local_host_bootstrap&&) noexcept = default;
  local_host_bootstrap& operator=(local_host_bootstrap&&) noexcept = default;

  int rank() const noexcept { return group_->rank; }
  int size() const noexcept { return group_->size; }
  bool same_process() const noexcept { return false; }

  // Collective; see concept `bootstrap`. Also throws, on this rank alone and without effect, errc::invalid_argument
  // when `all` has not size() * mine.size() bytes or those are more than 64 MiB, and errc::forked in a forked child.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, deadline limit) {
    if (all.size() != mine.size() * static_cast<std::size_t>(size()) || all.size() > detail::max_payload_bytes) {
      throw error(errc::invalid_argument, "all_gather: the result holds " + std::to_string(all.size()) + " bytes for " +
                                              std::to_string(size()) + " contributions of " +
                                              std::to_string(mine.size()));
    }
    meet({.kind = detail::frame_kind::all_gather, .mine = mine, .all = all}, limit);
  }

  // Collective; see concept `bootstrap`. Also throws errc::forked in a forked child.
  void barrier(deadline limit) { meet({.kind = detail::frame_kind::barrier}, limit); }

  // Collective; see concept `bootstrap`. A bad descriptor of the root fails on every rank with errc::system_error. Also
  // throws errc::forked in a forked child.
  unique_fd broadcast_fd(int fd, int root, deadline limit) {
    if (root < 0 || root >= size()) throw error(errc::invalid_argument, "broadcast_fd: root " + std::to_string(root));
    return meet({.kind = detail::frame_kind::broadcast_fd, .root = root, .fd = fd}, limit);
  }

  // Handles with a pidfd where the kernel has them and a life line always, passed on by the peers themselves, so that
  // they also work across pid namespaces. Local. Throws errc::system_error (EMFILE).
  std::vector<peer_handle> peers() const {
    std::vector<peer_handle> all;
    for (const detail::host_member& member : group_->members) {
      const bool self = static_cast<int>(all.size()) == rank();
      all.push_back({self ? unique_fd() : member.process.duplicate(),
                     self ? group_->own_life.own.duplicate() : member.life.duplicate(), member.pid});
    }
    return all;
  }

 private:
  local_host_bootstrap() : group_(std::make_unique<detail::host_group>()) {}

  unique_fd meet(detail::host_call call, deadline limit) {
    if (::getpid() != owner_) {
      throw error(errc::forked, "a forked child used the bootstrap of process " + std::to_string(owner_), rank());
    }
    if (failure_) throw *failure_;
    call.sequence = ++sequence_;
    try {
      if (hub_) return hub_->meet(*group_, call, limit);
      if (spoke_) return spoke_->meet(*group_, call, limit);
    } catch (const error& caught) {
      failure_ = caught;
      throw;
    }
    if (!call.mine.empty()) std::memcpy(call.all.data(), call.mine.data(), call.mine.size());
    return call.kind == detail::frame_kind::broadcast_fd ? unique_fd::duplicate(call.fd) : unique_fd();
  }

  std::unique_ptr<detail::host_group> group_;  // on the heap: the hub and the spoke do not move with this object
  std::unique_ptr<detail::host_hub> hub_;
  std::unique_ptr<detail::host_spoke> spoke_;
  std::optional<error> failure_;
  std::uint64_t sequence_ = 0;
  ::pid_t owner_ = ::getpid();
};

static_assert(bootstrap<local_host_bootstrap>);

PEERLESS_END_NAMESPACE
