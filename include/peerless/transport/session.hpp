// What the transports of one communicator share on one rank: control blocks, the failure, the watch over the peers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include <peerless/bootstrap/liveness.hpp>
#include <peerless/core/fork_guard.hpp>
#include <peerless/transport/joint_memory.hpp>
#include <peerless/transport/options.hpp>

PEERLESS_BEGIN_NAMESPACE

// The state of a communicator on this rank. A value; `code` ok means that calls may be made.
struct failure {
  errc code = errc::ok;
  int rank = -1;              // the rank that it is about; -1: none in particular
  std::uint64_t call = 0;     // 0: not within a call
  std::uint64_t awaited = 0;  // epoch, count or fingerprint
  std::uint64_t seen = 0;
  protocol_id protocol = protocol_id::sentinel;

  explicit operator bool() const { return code != errc::ok; }
};

namespace detail {

inline std::string signature_text(std::uint64_t fingerprint) {
  const call_signature call = signature_of(fingerprint);
  return std::to_string(call.n_elements) + " x " + std::string(name_of(call.type)) + " " +
         std::string(name_of(call.operation)) + " (" + std::string(name_of(call.protocol)) + ")";
}

}  // namespace detail

// One line that names the rank, the call, what was awaited and what was seen.
inline std::string describe(const failure& f) {
  const std::string peer = f.rank >= 0 ? "rank " + std::to_string(f.rank) : std::string("a rank");
  const std::string call = f.call != 0 ? " in call " + std::to_string(f.call) : std::string();
  switch (f.code) {
    case errc::ok: return "no failure";
    case errc::call_mismatch:
      if (f.awaited == f.seen) return peer + " reported that calls differ" + call;
      return peer + " called " + detail::signature_text(f.seen) + " where this rank called " +
             detail::signature_text(f.awaited) + call;
    case errc::timeout:
      if (f.awaited == f.seen) return peer + " did not arrive in time, as another rank reported" + call;
      return peer + " did not arrive" + call + " (" + std::string(name_of(f.protocol)) + ": awaited " +
             std::to_string(f.awaited) + ", " +
             (f.seen == sentinel_word ? std::string("nothing seen") : "seen " + std::to_string(f.seen)) + ")";
    case errc::peer_died: return "the process of " + peer + " has ended" + call;
    case errc::peer_closed: return peer + " destroyed its communicator before this rank's last call" + call;
    case errc::overlapped: return "two calls of one communicator ran at the same time on " + peer + call;
    case errc::aborted: return "abort() was called on " + peer + call;
    default: return peer + ": " + std::string(describe(f.code)) + call;
  }
}

// Owned by a communicator; transports borrow it. Space models memory_space (see memory_space.hpp).
template <class Space>
class session {
 public:
  // Collective; blocks at most until `limit`. Every rank throws the same error if any rank fails.
  session(bootstrap_ref boot, const communicator_options& options, deadline limit)
      : rank_(boot.rank()), world_size_(boot.size()), late_warning_(options.late_warning) {
    agree_on(boot, limit, [&] {
      detail::require_valid(options);
      if (boot.size() > max_world_size) {
        throw error(errc::unsupported,
                    "a world of " + std::to_string(boot.size()) + " ranks; at most " + std::to_string(max_world_size));
      }
    });
    const std::size_t bytes = controls_offset + static_cast<std::size_t>(world_size_) * sizeof(control_block);
    const std::uint64_t hash = hash_values({sizeof(control_block), bytes, options.first_epoch, options.shrink,
                                            options.copies.depth, options.copies.chunk_bytes});
    memory_request want{detail::round_up(bytes, 4096), hash, memory_origin::segment, options.segments};
    try {
      memory_ = joint_memory<Space>::make(boot, want, limit, [](std::byte*) {});
    } catch (const error& e) {
      if (!boot.same_process() || !is_short_of_memory(e)) throw;
      want.origin = memory_origin::allocation;
      memory_ = joint_memory<Space>::make(boot, want, limit, [](std::byte*) {});
    }
    agree_on(boot, limit, [&] {
      calls_.emplace(make_call_state(options.first_epoch));
      peers_late_.resize(static_cast<std::size_t>(world_size_));
      watch_ = std::make_unique<liveness_watch>(
          boot.peers(), rank_, [this](int peer) { on_death(peer); }, [this] { on_tick(); });
    });
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return world_size_; }
  // Handles for kernels, as the executor sees them.
  control_block* controls() const {
    return reinterpret_cast<control_block*>(memory_->executor_data() + controls_offset);
  }
  call_state* calls() const { return calls_->get(); }

  // The first failure of this rank. Never blocks, makes no CUDA call.
  failure status() const noexcept {
    if (guard_.is_child()) return {errc::forked, rank_};
    const control_block& own = *host_control(rank_);
    if (load_acquire(own.failure.ready) != 0) {
      const failure_record& f = own.failure;
      return {static_cast<errc>(f.code),           static_cast<int>(f.about), f.call, f.awaited, f.seen,
              static_cast<protocol_id>(f.protocol)};
    }
    const std::uint64_t verdict = load_acquire(own.host_verdict);
    if (verdict != 0) return {verdict_code(verdict), static_cast<int>(verdict_about(verdict))};
    return {};
  }

  // Throws the failure, if there is one.
  void check(source_location where = source_location::current()) const {
    const failure f = status();
    if (f.code == errc::forked) throw error(errc::forked, "make a new communicator in the child", rank_, 0, where);
    if (!f) return;
    const bool noted = f.code == errc::timeout && !wait_note_.empty();
    throw error(f.code, noted ? describe(f) + "; " + wait_note_ : describe(f), f.rank, 0, where);
  }

  // Ends the communicator for this rank and, through its control block, for its peers: waits in kernels and calls end
  // within a look (see patience.hpp). The first verdict stays. Never blocks.
  void end(errc code, int about) noexcept {
    if (guard_.is_child()) return;
    std::uint64_t none = 0;
    std::atomic_ref<std::uint64_t>(host_control(rank_)->host_verdict)
        .compare_exchange_strong(none, encode_verdict(code, static_cast<std::uint32_t>(about)),
                                 std::memory_order_acq_rel);
  }

  // What bounds waits here beyond the deadline that was asked for; goes into the text of timeouts.
  void set_wait_note(std::string note) { wait_note_ = std::move(note); }
  const std::string& wait_note() const noexcept { return wait_note_; }

  // line_bytes of host memory that the executor can copy to and from; one user at a time.
  std::byte* scratch() const noexcept { return host_control(rank_)->scratch; }

  // Leaves the memory to the end of the process: something may still be using it.
  void abandon() noexcept {
    if (memory_) static_cast<void>(new (std::nothrow) std::shared_ptr<joint_memory<Space>>(memory_));
  }

  // True in a process forked from the one that made this object: nothing of it may be touched or torn down.
  bool is_forked_child() const noexcept { return guard_.is_child(); }

 private:
  static constexpr std::size_t controls_offset = 4096;
  static_assert(sizeof(segment_header) <= controls_offset);

  static std::uint64_t load_acquire(const std::uint64_t& word) noexcept {
    return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
  }
  control_block* host_control(int r) const noexcept {
    return reinterpret_cast<control_block*>(memory_->host_data() + controls_offset) + r;
  }

  // In the watcher's thread.
  void on_death(int peer) noexcept {
    const control_block& last = *host_control(peer);
    const std::uint64_t by_kernel = load_acquire(last.kernel_verdict), by_host = load_acquire(last.host_verdict);
    const std::uint64_t said = by_kernel != 0 ? by_kernel : by_host;
    if (said == 0) return end(errc::peer_died, peer);
    if (verdict_code(said) == errc::peer_closed) return;  // it had closed in order
    const auto about = static_cast<int>(verdict_about(said));
    end(verdict_code(said), about == rank_ ? peer : about);  // why it ended, not that it did
  }

  // In the watcher's thread, once a second: names peers that have not entered the call that this rank is in.
  void on_tick() {
    if (late_warning_.count() == 0 || status()) return;
    const auto own = static_cast<std::uint32_t>(load_acquire(host_control(rank_)->call_line[0]) >> 32);
    const auto now = deadline::clock::now();
    for (int p = 0; p < world_size_; ++p) {
      auto& late = peers_late_[static_cast<std::size_t>(p)];
      const auto theirs = static_cast<std::uint32_t>(load_acquire(host_control(p)->call_line[0]) >> 32);
      const bool behind =
          p != rank_ && static_cast<std::int32_t>(own - theirs) > 0 && load_acquire(host_control(p)->host_verdict) == 0;
      if (!behind || late.call != own) {
        late = {own, now, false};
      } else if (!late.warned && now - late.since >= late_warning_) {
        late.warned = true;
        char line[160];
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - late.since).count();
        const int length = std::snprintf(
            line, sizeof(line), "peerless: rank %d has waited %lld s for rank %d, which has not entered the call\n",
            rank_, static_cast<long long>(seconds), p);
        // Never blocks: a full pipe must not keep deaths from being noticed.
        ::pollfd out = {STDERR_FILENO, POLLOUT, 0};
        if (::poll(&out, 1, 0) > 0) static_cast<void>(!::write(STDERR_FILENO, line, static_cast<std::size_t>(length)));
      }
    }
  }

  struct lateness {
    std::uint32_t call = 0;
    deadline::clock::time_point since{};
    bool warned = false;
  };

  int rank_;
  int world_size_;
  std::chrono::milliseconds late_warning_;
  fork_guard guard_;
  // Not one registration with a transport's slots, which would save some time of construction and none of a call: it
  // must be there before any transport is, and stay when one does not come up.
  std::shared_ptr<joint_memory<Space>> memory_;
  std::optional<typename Space::template state<call_state>> calls_;
  std::string wait_note_;
  std::vector<lateness> peers_late_;       // the watcher's alone
  std::unique_ptr<liveness_watch> watch_;  // last: its callbacks use the members above
};

PEERLESS_END_NAMESPACE
