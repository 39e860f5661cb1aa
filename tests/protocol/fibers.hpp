// Cooperative fibers on one thread: every switch is a decision of the test, so a run is a function of its seed.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ucontext.h>

#include "support/random.hpp"

namespace peerless::test {

// A pool of fibers and their scheduler. A fiber runs until it passes, blocks or ends. The next one is drawn at random
// among those that can run; a lazy fiber is passed over most of the time, so that long skews occur. One scheduler a process: stacks outlive the runs.
class fiber_scheduler {
 public:
  // Called when no fiber can run although some are blocked; must not return.
  using deadlock_handler = std::function<void()>;

  explicit fiber_scheduler(deadlock_handler deadlock) : deadlock_(std::move(deadlock)), random_(0) {}
  fiber_scheduler(const fiber_scheduler&) = delete;
  fiber_scheduler& operator=(const fiber_scheduler&) = delete;

  // Before each run, with no fiber alive. `passes_one_in`: how often pass() gives the thread away.
  void reset(std::uint64_t seed, unsigned passes_one_in) {
    random_ = random_choices(seed);
    passes_one_in_ = passes_one_in;
  }

  // Creates a fiber that can run, from outside or from a fiber. Returns its number, a small one that is reused.
  // `laziness`: it is chosen once in 2^laziness times that it is drawn.
  int spawn(std::function<void()> body, unsigned laziness) {
    int id = 0;
    if (free_.empty()) {
      id = static_cast<int>(all_.size());
      all_.push_back(std::make_unique<fiber>());
    } else {
      id = free_.back();
      free_.pop_back();
    }
    fiber& f = *all_[static_cast<std::size_t>(id)];
    f.body = std::move(body);
    f.laziness = laziness;
    wake(id);
    return id;
  }

  // Runs until all fibers have ended. Called from outside.
  void run() {
    active() = this;
    if (runnable_.empty()) return;
    current_ = pick();
    if (_setjmp(outside_) == 0) resume(current_);
    current_ = -1;
  }

  int current() const { return current_; }

  // Perhaps lets another fiber run.
  void pass() {
    if (passes_one_in_ <= 1 || random_.once_in(passes_one_in_)) go(pick());
  }
  // After a fruitless poll: lets another fiber run, which is more likely one that is not polling.
  void give_way() {
    all_[static_cast<std::size_t>(current_)]->polling = true;
    go(pick());
  }
  // Ends the current fiber's turn until another wakes it.
  void block() {
    remove(current_);
    go(next_or_deadlock());
  }
  void wake(int id) {
    fiber& f = *all_[static_cast<std::size_t>(id)];
    f.place = runnable_.size();
    runnable_.push_back(id);
  }

 private:
  static constexpr std::size_t stack_bytes = 128 << 10;

  struct fiber {
    std::function<void()> body;
    std::unique_ptr<std::byte[]> stack;
    ucontext_t start;
    std::jmp_buf at;
    bool started = false;
    unsigned laziness = 0;
    bool polling = false;
    std::size_t place = 0;  // in runnable_
  };

  static fiber_scheduler*& active() {
    static fiber_scheduler* scheduler = nullptr;
    return scheduler;
  }

  // The life of a stack: one body after the other.
  static void entry() {
    fiber_scheduler& self = *active();
    for (;;) {
      self.all_[static_cast<std::size_t>(self.current_)]->body();
      self.retire();
    }
  }

  void retire() {
    fiber& mine = *all_[static_cast<std::size_t>(current_)];
    mine.body = nullptr;
    remove(current_);
    free_.push_back(current_);
    if (free_.size() == all_.size()) {
      if (_setjmp(mine.at) == 0) _longjmp(outside_, 1);
      return;
    }
    go(next_or_deadlock());
  }

  int next_or_deadlock() {
    if (runnable_.empty()) deadlock_();
    return pick();
  }

  int pick() {
    int id = -1;
    for (int draws = 0; draws < 16; ++draws) {
      id = runnable_[random_.below(runnable_.size())];
      const fiber& f = *all_[static_cast<std::size_t>(id)];
      const unsigned laziness = f.laziness + (f.polling ? 2 : 0);
      if (laziness == 0 || (random_.next() & ((std::uint64_t{1} << laziness) - 1)) == 0) break;
    }
    all_[static_cast<std::size_t>(id)]->polling = false;
    return id;
  }

  void remove(int id) {
    const std::size_t place = all_[static_cast<std::size_t>(id)]->place;
    runnable_[place] = runnable_.back();
    all_[static_cast<std::size_t>(runnable_[place])]->place = place;
    runnable_.pop_back();
  }

  void go(int next) {
    if (next == current_) return;
    fiber& from = *all_[static_cast<std::size_t>(current_)];
    current_ = next;
    if (_setjmp(from.at) == 0) resume(next);
  }

  // Contexts start once; from then on a switch is a jump, which costs no system call.
  void resume(int id) {
    fiber& f = *all_[static_cast<std::size_t>(id)];
    if (f.started) _longjmp(f.at, 1);
    f.started = true;
    f.stack = std::make_unique<std::byte[]>(stack_bytes);
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = f.stack.get();
    f.start.uc_stack.ss_size = stack_bytes;
    f.start.uc_link = nullptr;
    makecontext(&f.start, &fiber_scheduler::entry, 0);
    setcontext(&f.start);
  }

  deadlock_handler deadlock_;
  random_choices random_;
  unsigned passes_one_in_ = 1;
  std::vector<std::unique_ptr<fiber>> all_;
  std::vector<int> free_;
  std::vector<int> runnable_;
  int current_ = -1;
  std::jmp_buf outside_;
};

}  // namespace peerless::test
