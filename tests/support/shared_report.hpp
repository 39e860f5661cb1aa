// What the ranks of a test tell their supervisor, through memory that all processes of the test share. It survives a
// rank that is killed at any instruction: a record is written field by field, its counters last.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <peerless/core/error.hpp>

namespace peerless::test {

// Nanoseconds of the machine's monotonic clock: comparable among processes.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A text of bounded length in shared memory; longer ones are cut.
template <std::size_t Capacity>
struct fixed_text {
  char characters[Capacity];

  void assign(std::string_view text) {
    std::size_t const length = text.size() < Capacity - 1 ? text.size() : Capacity - 1;
    std::memcpy(characters, text.data(), length);
    characters[length] = '\0';
  }
  std::string_view view() const { return {characters, strnlen(characters, Capacity)}; }
};

// How a call that was to fail ended.
struct fault_outcome {
  std::uint32_t code = 0;       // peerless::errc
  std::int32_t rank = -1;       // the rank that the error names
  std::int64_t elapsed_ns = 0;  // from the start of the failing call to the error
  std::int64_t at_ns = 0;       // when the error came, on now_ns()
  fixed_text<704> text{};       // what()

  peerless::errc errc() const { return static_cast<peerless::errc>(code); }
};

struct failure_text {
  fixed_text<96> where;
  fixed_text<704> text;
};

// One rank's account. Written by the rank alone, except `command`.
struct rank_record {
  static constexpr std::size_t kept_failures = 6;  // texts; the count goes on

  std::atomic<std::uint32_t> finished{0};  // the body returned or threw
  std::atomic<std::uint32_t> failures{0};
  std::atomic<std::uint64_t> verified{0};  // calls whose result was compared bit for bit
  std::atomic<std::uint64_t> phase{0};     // free for the test: how far the rank has come
  std::atomic<std::uint64_t> command{0};   // free for the test: what the supervisor or a peer asks for
  std::atomic<std::int64_t> marked_ns{0};  // free for the test: when something happened
  std::atomic<std::int32_t> pid{0};        // as the rank itself sees it
  std::atomic<std::uint32_t> outcomes{0};  // 1: `ended` holds
  fault_outcome ended;
  failure_text texts[kept_failures];
  fixed_text<480> note{};  // one line for the log

  void fail(std::string_view where, std::string_view text) {
    std::uint32_t const index = failures.load(std::memory_order_relaxed);
    if (index < kept_failures) {
      texts[index].where.assign(where);
      texts[index].text.assign(text);
    }
    failures.store(index + 1, std::memory_order_release);
  }
};

// The records of all ranks of one run. Mapped before the ranks are forked.
class shared_report {
 public:
  explicit shared_report(int world) : world_(world), bytes_(sizeof(rank_record) * static_cast<std::size_t>(world)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of the shared report");
    records_ = static_cast<rank_record*>(memory);
    for (int rank = 0; rank < world; ++rank) new (records_ + rank) rank_record;
  }
  shared_report(const shared_report&) = delete;
  shared_report& operator=(const shared_report&) = delete;
  ~shared_report() { ::munmap(records_, bytes_); }

  int world_size() const { return world_; }
  rank_record& operator[](int rank) { return records_[rank]; }
  const rank_record& operator[](int rank) const { return records_[rank]; }

 private:
  int world_;
  std::size_t bytes_;
  rank_record* records_;
};

}  // namespace peerless::test
