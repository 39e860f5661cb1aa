// The communicator: one all-reduce before several transports.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <peerless/core/hash.hpp>
#include <peerless/transport/concepts.hpp>

PEERLESS_BEGIN_NAMESPACE

// A group of ranks on one host that reduce together, seen from one of them. One object a rank, used by one thread at a
// time. Every rank makes the same calls in the same order; ranks may differ by one call.
template <transport First, transport... Rest>
class communicator {
  static_assert((std::same_as<typename First::space, typename Rest::space> && ...),
                "the transports of one communicator must share a memory space");

 public:
  using space = typename First::space;
  using stream_type = typename space::stream_type;

  // Collective; blocks at most options.setup_deadline. Brings up the first transport of the order that comes up on all
  // ranks; why others did not is in describe(). The bootstrap is not needed after. Throws the same error on every rank:
  // errc::rendezvous_timeout, peer_died, rendezvous_mismatch (options differ), invalid_argument (an option), or the
  // last transport's own; and bad_environment, on this rank, for a variable that is not legal.
  explicit communicator(bootstrap_ref boot,
                        const communicator_options& options = communicator_options::from_environment())
      : communicator(boot, options, deadline::after(options.setup_deadline)) {}

  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;

  // Waits for calls that are running, at most 5 s (or the deadline of calls), then ends what still waits, tells the
  // peers and frees everything; bounded in every state, never throws. Calls that have not started by then do nothing:
  // synchronize first. Graphs that captured calls may outlive the communicator: replays do nothing from then on, as
  // long as their buffers exist. In a forked child nothing is waited for, and what belongs to the parent is left alone.
  ~communicator() {
    if (session_.is_forked_child()) return;
    const auto limit = deadline::after(std::min(deadline_, std::chrono::milliseconds(5000)));
    if (!status()) std::apply([&](auto&... slot) { ((slot ? slot->finish(limit) : void()), ...); }, transports_);
    session_.end(errc::peer_closed, rank());
  }

  int rank() const noexcept { return session_.rank(); }
  int world_size() const noexcept { return session_.world_size(); }

  // True for a type and operation that one of the transports was written for.
  template <class T, class Op>
  static constexpr bool reduces = all_reduces<First, T, Op> || (all_reduces<Rest, T, Op> || ...);

  // out[i] = the reduction of in[i] over all ranks, with the same bits on every rank: see vector_fold for the rule.
  // Both arrays have n_elements elements in memory of the communicator's space; `out` is `in` or does not overlap it;
  // any alignment that T allows. Collective and ordered by `stream`, which belongs to the device (and context) that was
  // current at construction: enqueues and returns, no allocation, no synchronisation, capturable from the first call
  // on. (A host_stream executes at once: the call blocks until it has ended, and throws what a peer did to it.) Throws,
  // with no effect on later calls, errc::invalid_argument (null with n_elements > 0, misaligned, partial overlap, too
  // many elements), unsupported (no row of the table serves it here), invalid_usage (another thread is in a call),
  // forked; errc::cuda_error when it cannot be launched, which ends the communicator; and the failure of an earlier
  // call, which has ended it.
  template <class T, class Op>
    requires reduces<T, Op>
  void all_reduce(const T* in, T* out, std::uint64_t n_elements, Op, stream_type stream) {
    const entry_guard guard(busy_);
    require_callable(in, out, n_elements, dtype_of<T>);
    const message<T> msg{in, out, n_elements, Op::id};
    for (std::size_t i = next_row(0, n_elements, dtype_of<T>, stream);;
         i = next_row(i + 1, n_elements, dtype_of<T>, stream)) {
      if (dispatch<Op>(table_[i].transport, table_[i].protocol, table_[i].shape, msg, stream)) return;
    }
  }

  // For what no transport reduces: does not compile, and the compiler's first line says of which type and operation.
  template <class T, class Op>
    requires(!reduces<T, Op>)
  void all_reduce(const T* in, T* out, std::uint64_t n_elements, Op, stream_type stream) = delete;

  // As above for spans of equal length.
  template <class T, class Op>
    requires reduces<T, Op>
  void all_reduce(std::span<const T> in, std::span<T> out, Op operation, stream_type stream) {
    if (in.size() != out.size()) {
      throw error(errc::invalid_argument,
                  "in has " + std::to_string(in.size()) + " elements, out has " + std::to_string(out.size()));
    }
    all_reduce(in.data(), out.data(), in.size(), operation, stream);
  }

  // In place.
  template <class T, class Op>
    requires reduces<T, Op>
  void all_reduce(std::span<T> data, Op operation, stream_type stream) {
    all_reduce(static_cast<const T*>(data.data()), data.data(), data.size(), operation, stream);
  }

  // As all_reduce, with the transport, protocol and shape of `choice`, which is the same on all ranks: for tuners,
  // tests and benchmarks. Throws errc::unsupported, with no effect, when it cannot serve the call.
  template <class T, class Op>
    requires reduces<T, Op>
  void all_reduce_as(const peerless::plan& choice, const T* in, T* out, std::uint64_t n_elements, Op,
                     stream_type stream) {
    const entry_guard guard(busy_);
    require_callable(in, out, n_elements, dtype_of<T>);
    require_served(choice, n_elements, dtype_of<T>, stream);
    const message<T> msg{in, out, n_elements, Op::id};
    if (!dispatch<Op>(choice.transport, choice.protocol, choice.shape, msg, stream))
      refuse(choice, n_elements, dtype_of<T>, "not written for this type and operation");
  }

  // What a call of `bytes` bytes of `type` a rank would run, and why. Local; but for the reason the same on every rank.
  // Throws errc::unsupported when nothing can.
  peerless::plan plan(std::size_t bytes, dtype type) const {
    if (size_bytes(type) == 0)
      throw error(errc::unsupported, "code " + std::to_string(static_cast<int>(type)) + " is no element type");
    for (const table_row& row : table_) {
      if (!row_fits(row, bytes, type)) continue;
      if (refusal(row.transport, row.protocol, row.shape, bytes, type) != nullptr) continue;
      std::string reason = measured_ ? "measured on this box: " : "first transport that came up; ";
      reason += std::string(row.source);
      if (!notes_.empty()) reason += "; " + notes_;
      return {row.transport, row.protocol, row.shape, reason};
    }
    throw error(errc::unsupported,
                "no transport takes " + std::to_string(bytes) + " bytes of " + std::string(name_of(type)));
  }

  // The rows that plan() reads, best first.
  const selection_table& table() const noexcept { return table_; }

  // Replaces the table, by rows that were measured on this box. Collective in effect: every rank gives the same rows,
  // between the same calls. Throws errc::unsupported, and keeps the old table, when a row names no transport that is
  // up.
  void load_table(selection_table rows) {
    for (const table_row& row : rows) {
      if (!is_up(row.transport))
        throw error(errc::unsupported, "the table names " + std::string(row.transport) + ", which is not up");
    }
    table_ = std::move(rows);
    measured_ = true;
  }

  // The first failure of this rank; never blocks. A failed communicator stays failed: make a new one.
  failure status() const noexcept { return session_.status(); }
  // Throws what status() tells.
  void check() const { session_.check(); }

  // Waits until everything on `stream` has ended, at most the deadline of calls and two seconds more, then check().
  // Throws errc::timeout when the stream did not end, errc::cuda_error for what CUDA says of it, which ends the
  // communicator on all ranks when the device is lost.
  void synchronize(stream_type stream) {
    const auto limit = deadline::after(deadline_ + std::chrono::seconds(2));
    const bool ended =
        std::apply([&](auto&... slot) { return ((!slot || slot->synchronize(stream, limit)) && ...); }, transports_);
    session_.check();
    if (!ended) throw error(errc::timeout, "the stream did not come to an end within the deadline", rank());
  }

  // Ends the communicator on all ranks: calls that wait return; later ones throw errc::aborted, here at once and on the
  // peers from their next call that would have waited. Any thread; never blocks.
  void abort() noexcept { session_.end(errc::aborted, rank()); }

  // One line: rank, world, what was chosen and why, which memory it took and why not what was asked for, what did not
  // come up.
  std::string describe() const {
    std::string line = "rank " + std::to_string(rank()) + " of " + std::to_string(world_size()) + ": ";
    std::apply([&](auto&... slot) { ((slot ? void(line += std::string(name_of_slot(slot)) + " ") : void()), ...); },
               transports_);
    line += measured_ ? "by a measured table" : "as the first transport that came up on all ranks";
    std::apply([&](auto&... slot) { ((slot ? void(line += memory_note(*slot)) : void()), ...); }, transports_);
    if (!session_.wait_note().empty()) line += "; " + session_.wait_note();
    if (!notes_.empty()) line += "; " + notes_;
    return line;
  }

 private:
  communicator(bootstrap_ref boot, const communicator_options& options, deadline limit)
      : session_(boot, options, limit), deadline_(options.deadline) {
    require_order(boot, options, limit);
    std::optional<error> last;
    for (const std::string_view wanted : order(options)) {
      std::apply(
          [&](auto&... slot) {
            ((wanted == name_of_slot(slot) ? bring_up(slot, boot, options, limit, last) : void()), ...);
          },
          transports_);
      if (!table_.empty()) break;
    }
    if (table_.empty()) throw *last;
    if (options.log && rank() == 0) std::fprintf(stderr, "peerless: %s\n", describe().c_str());
  }

  template <class X>
  static constexpr std::string_view name_of_slot(const std::optional<X>&) {
    return X::name;
  }

  template <class X>
  static std::string memory_note(const X& transport) {
    if constexpr (requires { transport.memory_note(); }) return "; " + transport.memory_note();
    return {};
  }

  // Names of this communicator's transports.
  static std::vector<std::string_view> names() { return {First::name, Rest::name...}; }

  static std::vector<std::string_view> order(const communicator_options& options) {
    return options.order.empty() ? names() : std::vector<std::string_view>(options.order.begin(), options.order.end());
  }

  // Every name is one of ours, and the order is the same on all ranks.
  static void require_order(bootstrap_ref boot, const communicator_options& options, deadline limit) {
    std::string wished;
    agree_on(boot, limit, [&] {
      std::string legal;
      for (const auto name : names()) legal += (legal.empty() ? "" : ", ") + std::string(name);
      for (const auto wanted : order(options)) {
        wished += std::string(wanted) + ",";
        bool known = false;
        for (const auto name : names()) known = known || name == wanted;
        if (known) continue;
        throw error(errc::invalid_argument,
                    "no transport is called \"" + std::string(wanted) + "\"; this communicator has " + legal);
      }
    });
    const auto all = all_gather_value(boot, detail::stable_hash(wished), limit);
    for (int r = 0; r < boot.size(); ++r) {
      if (all[static_cast<std::size_t>(r)] == all[0]) continue;
      throw error(errc::rendezvous_mismatch,
                  "rank " + std::to_string(r) + " wants its transports in another order than rank 0", r);
    }
  }

  template <class X>
  void bring_up(std::optional<X>& slot, bootstrap_ref boot, const communicator_options& options, deadline limit,
                std::optional<error>& last) {
    try {
      slot.emplace(boot, session_, options, limit);
      table_ = slot->seed_table();
    } catch (const error& e) {
      // The group is broken then, not the transport.
      if (e.code() == errc::peer_died || e.code() == errc::rendezvous_timeout) throw;
      notes_ += (notes_.empty() ? "" : "; ") + std::string(X::name) + " did not come up: " + e.message();
      last = e;
    }
  }

  bool is_up(std::string_view name) const {
    return std::apply([&](const auto&... slot) { return ((slot && name == name_of_slot(slot)) || ...); }, transports_);
  }

  // Why a transport cannot take a call, nullptr when it can.
  const char* refusal(std::string_view name, protocol_id protocol, const launch_shape& shape, std::size_t bytes,
                      dtype type) const noexcept {
    const char* reason = "this transport is not up";
    std::apply(
        [&](const auto&... slot) {
          ((slot && name == name_of_slot(slot) ? void(reason = slot->refuse(protocol, shape, bytes, type)) : void()),
           ...);
        },
        transports_);
    return reason;
  }

  // Why a transport cannot take a call on this stream as it is now, nullptr when it can.
  const char* refusal_on(std::string_view name, protocol_id protocol, stream_type stream) const {
    const char* reason = nullptr;
    const auto ask = [&]<class X>(const std::optional<X>& slot) {
      if constexpr (requires { slot->refuse_on(protocol, stream); }) {
        if (slot && name == X::name) reason = slot->refuse_on(protocol, stream);
      }
    };
    std::apply([&](const auto&... slot) { (ask(slot), ...); }, transports_);
    return reason;
  }

  // What a call of any type and operation has in common is no template of them, and is compiled once.

  // Index of the first row from `first` on that a call can take. Throws errc::unsupported when there is none.
  PEERLESS_NOINLINE std::size_t next_row(std::size_t first, std::uint64_t n_elements, dtype type,
                                         stream_type stream) const {
    const std::size_t bytes = n_elements * size_bytes(type);
    for (std::size_t i = first; i < table_.size(); ++i) {
      const table_row& row = table_[i];
      if (!row_fits(row, bytes, type)) continue;
      if (refusal(row.transport, row.protocol, row.shape, bytes, type) != nullptr) continue;
      if (refusal_on(row.transport, row.protocol, stream) != nullptr) continue;
      return i;
    }
    throw error(errc::unsupported, "no transport takes " + text(n_elements, type));
  }

  PEERLESS_NOINLINE void require_served(const peerless::plan& choice, std::uint64_t n_elements, dtype type,
                                        stream_type stream) const {
    const std::size_t bytes = n_elements * size_bytes(type);
    const char* reason = refusal(choice.transport, choice.protocol, choice.shape, bytes, type);
    if (reason == nullptr) reason = refusal_on(choice.transport, choice.protocol, stream);
    if (reason != nullptr) refuse(choice, n_elements, type, reason);
  }

  [[noreturn]] PEERLESS_NOINLINE static void refuse(const peerless::plan& choice, std::uint64_t n_elements, dtype type,
                                                    const char* reason) {
    throw error(errc::unsupported, std::string(choice.transport) + " " + std::string(name_of(choice.protocol)) +
                                       " cannot take " + text(n_elements, type) + ": " + reason);
  }

  // Runs a call that the refusals admit; false when the transport was not written for the type and operation.
  template <class Op, class T>
  bool dispatch(std::string_view name, protocol_id protocol, const launch_shape& shape, const message<T>& msg,
                stream_type stream) {
    bool ran = false;
    const auto run = [&]<class X>(std::optional<X>& slot) {
      if constexpr (all_reduces<X, T, Op>) {
        if (ran || !slot || name != X::name) return;
        slot->template all_reduce<Op>(protocol, shape, msg, stream);
        ran = true;
      }
    };
    try {
      std::apply([&](auto&... slot) { (run(slot), ...); }, transports_);
    } catch (const error& e) {
      session_.end(e.code(), rank());  // the peers are in the call already
      throw;
    }
    if constexpr (space::executes_at_once) session_.check();
    return ran;
  }

  PEERLESS_NOINLINE void require_callable(const void* in, const void* out, std::uint64_t n_elements, dtype type) const {
    session_.check();
    const auto from = reinterpret_cast<std::uintptr_t>(in), to = reinterpret_cast<std::uintptr_t>(out);
    const std::uint64_t width = size_bytes(type);
    if (n_elements > max_elements / width)
      throw error(errc::invalid_argument, std::to_string(n_elements) + " elements are more than a call can take");
    if (n_elements > 0 && (in == nullptr || out == nullptr))
      throw error(errc::invalid_argument, "null pointer with " + std::to_string(n_elements) + " elements");
    if (from % width != 0 || to % width != 0)
      throw error(errc::invalid_argument, "a pointer is not aligned for " + std::string(name_of(type)));
    const std::uint64_t bytes = n_elements * width;
    if (from != to && from < to + bytes && to < from + bytes)
      throw error(errc::invalid_argument, "in and out overlap in part");
  }

  static std::string text(std::uint64_t n_elements, dtype type) {
    return std::to_string(n_elements) + " x " + std::string(name_of(type));
  }

  // Two threads in one communicator are told, not raced.
  class entry_guard {
   public:
    explicit entry_guard(std::atomic<bool>& busy) : busy_(busy) {
      if (busy_.exchange(true, std::memory_order_acquire))
        throw error(errc::invalid_usage, "two threads are in calls of one communicator");
    }
    ~entry_guard() { busy_.store(false, std::memory_order_release); }
    entry_guard(const entry_guard&) = delete;
    entry_guard& operator=(const entry_guard&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

  session<space> session_;
  std::tuple<std::optional<First>, std::optional<Rest>...> transports_;
  selection_table table_;
  std::string notes_;
  std::chrono::milliseconds deadline_;
  std::atomic<bool> busy_{false};
  bool measured_ = false;
};

PEERLESS_END_NAMESPACE
