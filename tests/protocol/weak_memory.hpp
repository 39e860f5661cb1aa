// Memory as weak as the protocols may assume, for ranks that are fibers of one thread.
//
// The model is operational, by views. A location keeps every value that was stored to it. A thread has a view: for each
// location the oldest value that it may still read. A load takes any value that is not older than the view, and moves
// the view there (one location never runs backwards); a store appends. A release store carries the storing thread's
// view; an acquire load that takes it joins that view to its own. Nothing else orders anything: a relaxed store may stay
// unseen while later ones are seen, in an order of its own for each reader.
//
// A 16-byte access is four locations of 4 bytes. It runs in one step all the same: since each of its words may be seen
// or not, every order and every tearing of it is among what readers draw.
//
// Two kinds of reordering do not show in values here, since a load takes effect when it runs: a load that takes effect
// after a later store. They are found as races instead, like a race detector does it: a store of payload, or a slot
// announced by note_overwrite, whose readers are not ordered before it ends the run.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <peerless/protocol/memory.hpp>

#include "fibers.hpp"

namespace peerless::test {

// What a thread knows: for each location the index of the oldest value that it may read.
struct memory_view {
  static constexpr std::size_t capacity = 6144;
  using lanes = std::uint16_t __attribute__((vector_size(16)));

  void join(const memory_view& other, std::size_t n_locations) {
    for (std::size_t i = 0; i < (n_locations + 7) / 8; ++i) {
      const lanes a = known[i], b = other.known[i];
      known[i] = a > b ? a : b;
    }
  }
  void assign(const memory_view& other, std::size_t n_locations) {
    std::memcpy(known.data(), other.known.data(), (n_locations + 7) / 8 * sizeof(lanes));
  }
  std::uint16_t operator[](std::size_t location) const { return known[location / 8][location % 8]; }
  void set(std::size_t location, std::uint16_t index) { known[location / 8][location % 8] = index; }

  std::array<lanes, capacity / 8> known{};
};

// How adverse a run is.
struct weakness {
  unsigned stale_one_in;    // loads that may take an old value do so once in this many times
  unsigned window_one_in;   // accesses at which a fiber stops seeing news of half of all locations for a while
  unsigned window_longest;  // accesses
};

// The memory of one simulation. An arena holds the initial values; its addresses name the locations.
class weak_memory {
 public:
  // Ends the run; must not return.
  using failure_handler = std::function<void(const std::string&)>;

  weak_memory(fiber_scheduler& fibers, failure_handler fail) : fibers_(&fibers), fail_(std::move(fail)), random_(0) {}
  weak_memory(const weak_memory&) = delete;
  weak_memory& operator=(const weak_memory&) = delete;

  // Forgets everything. `most_ranks` bounds the ranks that read payload.
  void reset(std::span<std::byte> arena, std::uint32_t most_ranks, std::uint64_t seed, weakness how) {
    arena_ = arena;
    most_ranks_ = most_ranks;
    random_ = random_choices(seed);
    how_ = how;
    ids_.resize(std::max(ids_.size(), arena.size() / 4 * (1 + most_ranks)));
    for (const std::size_t key : keys_) ids_[key] = 0;
    keys_.assign(1, 0);
    for (auto& location : locations_) location.clear();
    n_locations_ = 1;  // number 0 is none
    n_pooled_ = 0;
  }

  // The view of a fiber; it starts as a copy of `parent`, or with the initial values.
  void start(int fiber, std::uint32_t rank, const memory_view* parent) {
    const auto at = static_cast<std::size_t>(fiber);
    while (threads_.size() <= at) threads_.push_back(std::make_unique<thread_state>());
    thread_state& t = *threads_[at];
    t.view.known = {};
    if (parent != nullptr) t.view.assign(*parent, n_locations_);
    t.rank = rank;
    t.window = 0;
  }
  memory_view& view(int fiber) { return threads_[static_cast<std::size_t>(fiber)]->view; }
  void join(memory_view& into, const memory_view& from) const { into.join(from, n_locations_); }
  std::uint32_t current_rank() { return thread().rank; }

  std::uint64_t load(const void* from, unsigned bytes, bool acquires) {
    thread_state& t = thread();
    const std::size_t id = locate(from, bytes);
    auto& values = locations_[id];
    const std::size_t index = draw(t, id, t.view[id], values.size() - 1);
    t.view.set(id, static_cast<std::uint16_t>(index));
    if (acquires && values[index].carried != nullptr) t.view.join(*values[index].carried, n_locations_);
    return values[index].value;
  }

  void store(void* to, unsigned bytes, std::uint64_t value, bool releases) {
    thread_state& t = thread();
    const std::size_t id = locate(to, bytes);
    append(t, id, value);
    if (!releases) return;
    memory_view* carried = snapshot();
    carried->assign(t.view, n_locations_);
    locations_[id].back().carried = carried;
  }

  // An atomic compare-and-store from 0, acquiring and releasing.
  bool claim(std::uint32_t* word, std::uint32_t value) {
    thread_state& t = thread();
    const std::size_t id = locate(word, 4);
    const entry& newest = locations_[id].back();
    t.view.set(id, static_cast<std::uint16_t>(locations_[id].size() - 1));
    if (newest.carried != nullptr) t.view.join(*newest.carried, n_locations_);
    if (newest.value != 0) return false;
    store(word, 4, value, true);
    return true;
  }

  // Remembers that the rank of this fiber reads what lies at `at`.
  void note_read(const void* at) {
    thread_state& t = thread();
    append(t, locate_reader(at, t.rank), 0);
  }
  // Ends the run unless every read of what lies at `at` happens before this access.
  void require_no_reader(const void* at, const char* what) {
    thread_state& t = thread();
    for (std::uint32_t r = 0; r < most_ranks_; ++r) {
      const std::size_t id = locate_reader(at, r);
      if (t.view[id] + std::size_t{1} == locations_[id].size()) continue;
      fail_("rank " + std::to_string(t.rank) + " overwrites " + what + " without an order after the reads of rank " +
            std::to_string(r));
    }
  }
  // Ends the run unless the last store to the word at `at` happens before this access.
  void require_newest(const void* at, const char* what) {
    thread_state& t = thread();
    const std::size_t id = locate(at, 4);
    if (t.view[id] + std::size_t{1} == locations_[id].size()) return;
    fail_("rank " + std::to_string(t.rank) + " reads " + what + " without an order after what was done to it");
  }
  // How many stores to the word at `at` this fiber knows of: after a load, the index of the value that it took.
  std::size_t known_stores(const void* at) { return thread().view[locate(at, 4)]; }

 private:
  struct entry {
    std::uint64_t value;
    memory_view* carried;  // by a release store
  };
  struct thread_state {
    memory_view view;
    std::uint32_t rank = 0;
    unsigned window = 0;  // accesses for which half of the locations show no news
    std::uint64_t salt = 0;
  };

  thread_state& thread() { return *threads_[static_cast<std::size_t>(fibers_->current())]; }

  std::size_t locate(const void* at, unsigned bytes) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - arena_.data());
    if (offset >= arena_.size() || offset % bytes != 0) fail_("an access outside the memory of the ranks");
    std::uint16_t& id = ids_[offset / 4];
    if (id == 0) {
      std::uint64_t initial = 0;
      std::memcpy(&initial, at, bytes);
      id = create(offset / 4, initial);
    }
    return id;
  }
  std::size_t locate_reader(const void* at, std::uint32_t rank) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - arena_.data());
    const std::size_t key = arena_.size() / 4 + offset / 4 * most_ranks_ + rank;
    std::uint16_t& id = ids_[key];
    if (id == 0) id = create(key, 0);
    return id;
  }
  std::uint16_t create(std::size_t key, std::uint64_t initial) {
    if (n_locations_ + 8 >= memory_view::capacity) fail_("more locations than a view holds");
    keys_.push_back(key);
    if (locations_.size() <= n_locations_) locations_.resize(n_locations_ + 1);
    locations_[n_locations_].push_back({initial, nullptr});
    return static_cast<std::uint16_t>(n_locations_++);
  }
  void append(thread_state& t, std::size_t id, std::uint64_t value) {
    if (locations_[id].size() >= 0xffff) fail_("more stores to one location than a view can count");
    locations_[id].push_back({value, nullptr});
    t.view.set(id, static_cast<std::uint16_t>(locations_[id].size() - 1));
  }
  memory_view* snapshot() {
    if (n_pooled_ == pool_.size()) pool_.push_back(std::make_unique<memory_view>());
    memory_view* fresh = pool_[n_pooled_++].get();
    fresh->known = {};
    return fresh;
  }

  std::size_t draw(thread_state& t, std::size_t id, std::size_t oldest, std::size_t newest) {
    if (t.window != 0) {
      --t.window;
      if ((mix(t.salt + id) & 1u) != 0) return oldest;
    } else if (random_.once_in(how_.window_one_in)) {
      t.window = static_cast<unsigned>(random_.log_uniform(how_.window_longest));
      t.salt = random_.next();
    }
    if (oldest == newest || !random_.once_in(how_.stale_one_in)) return newest;
    return oldest + random_.below(newest - oldest + 1);
  }

  fiber_scheduler* fibers_;
  failure_handler fail_;
  random_choices random_;
  weakness how_{};
  std::span<std::byte> arena_;
  std::uint32_t most_ranks_ = 0;
  std::vector<std::uint16_t> ids_;  // by word of the arena, then by word and reading rank
  std::vector<std::size_t> keys_;   // entries of ids_ in use
  std::vector<std::vector<entry>> locations_;
  std::size_t n_locations_ = 1;
  std::vector<std::unique_ptr<thread_state>> threads_;  // by fiber
  std::vector<std::unique_ptr<memory_view>> pool_;
  std::size_t n_pooled_ = 0;
};

// Fibers, memory and time of one process; reset for every run.
class simulator {
 public:
  simulator()
      : fibers([this] { fail("every rank waits at a barrier"); }),
        memory(fibers, [this](const std::string& what) { fail(what); }) {}

  // Every access goes through here: it may let another fiber run, takes simulated time, and ends a run that never ends.
  void step() {
    fibers.pass();
    if (++steps > most_steps) fail("a wait without an end");
  }
  // Prints how to see it again, and ends the process: fibers cannot be unwound.
  [[noreturn]] void fail(const std::string& what);

  fiber_scheduler fibers;
  weak_memory memory;
  std::uint64_t steps = 0;
  std::uint64_t most_steps = 0;
  std::uint64_t ns_per_step = 10;
  std::string what_runs;  // for the account of a failure
  // Told of every payload load, after it: address and index of the value taken. For checks of a caller.
  std::function<void(const vec16*, std::size_t)> on_payload_load;
};

// The memory policy of the fibers of a simulator.
class simulated_memory {
 public:
  explicit simulated_memory(simulator& s) : s_(&s) {}

  std::uint32_t load4(const std::uint32_t* from) const { return word(load(from, 4, false)); }
  void store4(std::uint32_t* to, std::uint32_t value) const { store(to, 4, value, false); }
  std::uint64_t load8(const std::uint64_t* from) const { return load(from, 8, false); }
  void store8(std::uint64_t* to, std::uint64_t value) const { store(to, 8, value, false); }
  std::uint64_t load8_acquire(const std::uint64_t* from) const { return load(from, 8, true); }
  void store8_release(std::uint64_t* to, std::uint64_t value) const { store(to, 8, value, true); }

  vec16 load16(const vec16* from) const {
    s_->step();
    vec16 v;
    for (int i = 0; i < 4; ++i) v.word[i] = word(s_->memory.load(from->word + i, 4, false));
    return v;
  }
  void store16(vec16* to, vec16 value) const {
    s_->step();
    for (int i = 0; i < 4; ++i) s_->memory.store(to->word + i, 4, value.word[i], false);
  }
  vec16 load16_payload(const vec16* from) const {
    const vec16 v = load16(from);
    s_->memory.note_read(from);
    if (s_->on_payload_load) s_->on_payload_load(from, s_->memory.known_stores(from));
    return v;
  }
  void store16_payload(vec16* to, vec16 value) const {
    s_->memory.require_no_reader(to, "payload");
    store16(to, value);
  }

  std::uint32_t load4_acquire_group(const std::uint32_t* from) const { return word(load(from, 4, true)); }
  void store4_release_group(std::uint32_t* to, std::uint32_t value) const { store(to, 4, value, true); }
  bool claim(std::uint32_t* to, std::uint32_t value) const {
    s_->step();
    return s_->memory.claim(to, value);
  }

  std::uint64_t now_ns() const {
    s_->step();
    return s_->steps * s_->ns_per_step;
  }
  void relax(unsigned) const {
    ++s_->steps;
    s_->fibers.give_way();
  }
  void note_read(std::uint32_t* shadow) const {
    s_->memory.require_newest(shadow, "a slot");
    s_->memory.note_read(shadow);
  }
  void note_overwrite(std::uint32_t* shadow) const {
    s_->memory.require_no_reader(shadow, "a slot");
    s_->memory.store(shadow, 4, 1, false);
  }

 private:
  static std::uint32_t word(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
  std::uint64_t load(const void* from, unsigned bytes, bool acquires) const {
    s_->step();
    return s_->memory.load(from, bytes, acquires);
  }
  void store(void* to, unsigned bytes, std::uint64_t value, bool releases) const {
    s_->step();
    s_->memory.store(to, bytes, value, releases);
  }

  simulator* s_;
};
static_assert(memory_policy<simulated_memory>);

// A barrier of fibers of one block: it joins their views, as the barrier of a block orders its threads' accesses.
class fiber_barrier {
 public:
  fiber_barrier(simulator& s, unsigned size) : s_(&s), size_(size) {}

  bool all(bool vote) {
    weak_memory& memory = s_->memory;
    const int me = s_->fibers.current();
    s_->step();
    if (waiting_.empty()) {
      joined_ = memory.view(me);
      vote_ = vote;
    } else {
      memory.join(joined_, memory.view(me));
      vote_ = vote_ && vote;
    }
    waiting_.push_back(me);
    if (waiting_.size() < size_) {
      s_->fibers.block();
      return result_;
    }
    result_ = vote_;
    for (const int fiber : waiting_) {
      memory.view(fiber) = joined_;
      if (fiber != me) s_->fibers.wake(fiber);
    }
    waiting_.clear();
    return result_;
  }

 private:
  simulator* s_;
  unsigned size_;
  std::vector<int> waiting_;
  memory_view joined_;
  bool vote_ = true;
  bool result_ = true;
};

// A fiber's membership of a group.
class fiber_group {
 public:
  fiber_group(fiber_barrier& barrier, unsigned rank, unsigned size) : barrier_(&barrier), rank_(rank), size_(size) {}
  unsigned thread_rank() const { return rank_; }
  unsigned size() const { return size_; }
  void sync() const { barrier_->all(true); }
  bool all(bool vote) const { return barrier_->all(vote); }

 private:
  fiber_barrier* barrier_;
  unsigned rank_;
  unsigned size_;
};
static_assert(execution_group<fiber_group>);

}  // namespace peerless::test
