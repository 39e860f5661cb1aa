// Plain host memory as an executor's space.
#pragma once

#include <cstddef>
#include <memory>

#include <peerless/config.hpp>

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

  template <class T>
  class state {
   public:
    explicit state(const T& initial) : value_(std::make_unique<T>(initial)) {}
    T* get() const { return value_.get(); }

   private:
    std::unique_ptr<T> value_;
  };

  static std::byte* executor_address(std::byte* host) { return host; }
};

PEERLESS_END_NAMESPACE
