// Plain host memory as an executor's space.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <peerless/core/error.hpp>
#include <peerless/transport/placement.hpp>

PEERLESS_BEGIN_NAMESPACE

// The stream of host transports: a call has ended when the function returns. Carries nothing.
struct host_stream {};

// Memory space of ranks that are CPU threads or processes.
struct host_space {
  using stream_type = host_stream;
  static constexpr bool executes_at_once = true;

  struct registration {
    registration(std::byte*, std::size_t) {}
  };

  class allocation {
   public:
    static constexpr const char* name = "heap";
    explicit allocation(std::size_t bytes)
        : data_(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
      if (data_ == nullptr)
        throw error(errc::out_of_memory, "allocating " + std::to_string(bytes) + " bytes", -1, ENOMEM);
      std::memset(data_.get(), 0, bytes);
    }
    std::byte* data() const { return data_.get(); }

   private:
    struct release {
      void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, release> data_;
  };

  template <class T>
  class state {
   public:
    explicit state(const T& initial) : value_(std::make_unique<T>(initial)) {}
    T* get() const { return value_.get(); }

   private:
    std::unique_ptr<T> value_;
  };

  static std::byte* executor_address(std::byte* host) { return host; }
  // Of the CPU that the thread runs on now; it may move.
  static int numa_node(const std::string&) { return numa_node_of_cpu(); }
};

PEERLESS_END_NAMESPACE
