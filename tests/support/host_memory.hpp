// Host memory for tests of backends that reduce host buffers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include <peerless/core/error.hpp>
#include <peerless/transport/host.hpp>

namespace peerless::test {

class host_memory {
 public:
  static constexpr bool captures = false;
  static constexpr bool on_device = false;

  host_memory(int, std::size_t capacity_bytes)
      : capacity_((capacity_bytes + 255) / 256 * 256), arena_(allocate(capacity_)), staging_(allocate(capacity_)) {}
  host_memory(const host_memory&) = delete;
  host_memory& operator=(const host_memory&) = delete;
  ~host_memory() {
    std::free(arena_);
    std::free(staging_);
  }

  host_stream stream() const { return {}; }
  std::byte* arena() { return arena_; }
  std::byte* staging() { return staging_; }
  void upload(std::size_t bytes) { std::memcpy(arena_, staging_, bytes); }
  const std::byte* fetch(std::size_t) { return arena_; }

  int capture(const std::function<void()>&) { throw error(errc::unsupported, "host calls cannot be captured"); }
  void replay(int) { throw error(errc::unsupported, "host calls cannot be captured"); }

 private:
  static std::byte* allocate(std::size_t bytes) {
    void* memory = std::aligned_alloc(256, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }

  std::size_t capacity_;
  std::byte* arena_;
  std::byte* staging_;
};

}  // namespace peerless::test
