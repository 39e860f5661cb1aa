// The CPU executor: relaxed accesses are atomic_refs, payload is plain. Under ThreadSanitizer a shadow word a slot is
// read by readers and written by the clearing step, so that an order which the polled words hide is a reported race.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <sched.h>

#include <peerless/protocol/memory.hpp>

PEERLESS_BEGIN_NAMESPACE

// Memory policy of ranks that are CPU threads or processes. 16 bytes are four relaxed words: a 16-byte atomic_ref is
// not lock-free, and the locks of libatomic do not work between processes.
struct cpu_memory {
  std::uint32_t load4(const std::uint32_t* from) const { return ref(from).load(std::memory_order_relaxed); }
  void store4(std::uint32_t* to, std::uint32_t value) const { ref(to).store(value, std::memory_order_relaxed); }
  std::uint64_t load8(const std::uint64_t* from) const { return ref(from).load(std::memory_order_relaxed); }
  void store8(std::uint64_t* to, std::uint64_t value) const { ref(to).store(value, std::memory_order_relaxed); }
  std::uint64_t load8_acquire(const std::uint64_t* from) const { return ref(from).load(std::memory_order_acquire); }
  void store8_release(std::uint64_t* to, std::uint64_t value) const { ref(to).store(value, std::memory_order_release); }

  vec16 load16(const vec16* from) const {
    return {{load4(from->word), load4(from->word + 1), load4(from->word + 2), load4(from->word + 3)}};
  }
  void store16(vec16* to, vec16 value) const {
    for (int i = 0; i < 4; ++i) store4(to->word + i, value.word[i]);
  }
  vec16 load16_payload(const vec16* from) const { return *from; }
  void store16_payload(vec16* to, vec16 value) const { *to = value; }

  std::uint32_t load4_acquire_group(const std::uint32_t* from) const {
    return ref(from).load(std::memory_order_acquire);
  }
  void store4_release_group(std::uint32_t* to, std::uint32_t value) const {
    ref(to).store(value, std::memory_order_release);
  }
  bool claim(std::uint32_t* word, std::uint32_t value) const {
    std::uint32_t expected = 0;
    return ref(word).compare_exchange_strong(expected, value, std::memory_order_acq_rel);
  }

  std::uint64_t now_ns() const {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }
  // Spins briefly, then yields: ranks may outnumber the processors.
  void relax(unsigned spin) const {
    if ((spin & 31u) == 31u) sched_yield();
  }

  void note_read([[maybe_unused]] std::uint32_t* shadow) const {
#if PEERLESS_THREAD_SANITIZER
    [[maybe_unused]] volatile std::uint32_t seen = *shadow;
#endif
  }
  void note_overwrite([[maybe_unused]] std::uint32_t* shadow) const {
#if PEERLESS_THREAD_SANITIZER
    *shadow = 1;
#endif
  }

 private:
  template <class U>
  static std::atomic_ref<U> ref(const U* from) {
    return std::atomic_ref<U>(*const_cast<U*>(from));
  }
};
static_assert(memory_policy<cpu_memory>);

// A step executed by one thread alone.
struct single_thread {
  PEERLESS_HD unsigned thread_rank() const { return 0; }
  PEERLESS_HD unsigned size() const { return 1; }
  PEERLESS_HD void sync() const {}
  PEERLESS_HD bool all(bool vote) const { return vote; }
};
static_assert(execution_group<single_thread>);

PEERLESS_END_NAMESPACE
