// The codes of failures, without anything that a kernel cannot use.
#pragma once

#include <cstdint>
#include <string_view>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

// Stable codes: they cross the shared segment between ranks and will cross a C interface. Append, never renumber.
enum class errc : std::uint32_t {
  ok = 0,
  invalid_argument = 1,     // a pointer, count or span of this call; the call had no effect
  invalid_usage = 2,        // right arguments at the wrong time or place (two threads in one communicator, ...)
  unsupported = 3,          // type, op, world or box that this build or transport cannot serve
  bad_environment = 4,      // an environment variable whose value is not legal
  rendezvous_timeout = 5,   // not all ranks came up within the deadline
  rendezvous_mismatch = 6,  // ranks of other jobs, world sizes, versions or layouts met
  out_of_memory = 7,        // host or device memory, /dev/shm, memlock or a cgroup limit
  system_error = 8,         // a system call failed; native_code is errno
  cuda_error = 9,           // native_code is the cudaError_t
  nccl_error = 10,          // native_code is the ncclResult_t
  no_device = 11,           // no GPU that this process may use
  timeout = 12,             // a live peer did not arrive within the deadline
  peer_died = 13,           // the process of a peer has ended
  peer_closed = 14,         // a peer destroyed its communicator while this rank still had calls
  call_mismatch = 15,       // ranks called with different counts, types, ops or protocols
  overlapped = 16,          // two calls of one communicator ran at the same time
  aborted = 17,             // abort() was called here or on a peer
  forked = 18,              // a communicator was used in a forked child
};

// A short fixed phrase for a code, without context.
constexpr std::string_view describe(errc code) {
  switch (code) {
    case errc::ok: return "ok";
    case errc::invalid_argument: return "invalid argument";
    case errc::invalid_usage: return "invalid usage";
    case errc::unsupported: return "unsupported";
    case errc::bad_environment: return "bad environment variable";
    case errc::rendezvous_timeout: return "rendezvous timed out";
    case errc::rendezvous_mismatch: return "ranks do not fit together";
    case errc::out_of_memory: return "out of memory";
    case errc::system_error: return "system error";
    case errc::cuda_error: return "CUDA error";
    case errc::nccl_error: return "NCCL error";
    case errc::no_device: return "no usable GPU";
    case errc::timeout: return "peer late beyond the deadline";
    case errc::peer_died: return "peer died";
    case errc::peer_closed: return "peer closed its communicator";
    case errc::call_mismatch: return "calls differ between ranks";
    case errc::overlapped: return "calls overlapped";
    case errc::aborted: return "aborted";
    case errc::forked: return "used in a forked child";
  }
  return "unknown error";
}

PEERLESS_END_NAMESPACE
