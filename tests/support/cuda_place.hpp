// Where a rank on a GPU takes its memory, its stream and its multiprocessors from. Needs no CUDA.
#pragma once

#include <cstdint>
#include <string>

namespace peerless::test {

enum class memory_kind : std::uint8_t {
  device,      // cudaMalloc
  pool,        // cudaMallocAsync
  pieces,      // pieces of physical memory mapped behind each other, as an allocator with expandable segments does
  host,        // cudaHostAlloc, mapped
  registered,  // pages of the process, registered
  managed      // cudaMallocManaged
};

constexpr const char* name_of(memory_kind kind) {
  switch (kind) {
    case memory_kind::device: return "memory of cudaMalloc";
    case memory_kind::pool: return "memory of cudaMallocAsync";
    case memory_kind::pieces: return "memory mapped in pieces";
    case memory_kind::host: return "memory of cudaHostAlloc";
    case memory_kind::registered: return "registered memory";
    case memory_kind::managed: return "managed memory";
  }
  return "?";
}

enum class stream_kind : std::uint8_t {
  own,           // waits for no other
  blocking,      // waits for the legacy stream
  null,          // 0, which is the legacy stream
  legacy,        // cudaStreamLegacy
  of_the_thread  // cudaStreamPerThread
};

constexpr const char* name_of(stream_kind kind) {
  switch (kind) {
    case stream_kind::own: return "a stream of its own";
    case stream_kind::blocking: return "a blocking stream";
    case stream_kind::null: return "stream 0";
    case stream_kind::legacy: return "cudaStreamLegacy";
    case stream_kind::of_the_thread: return "cudaStreamPerThread";
  }
  return "?";
}

// True where ranks that are threads with one GPU would all work in one stream, and wait for each other in it.
constexpr bool is_shared(stream_kind kind) { return kind == stream_kind::null || kind == stream_kind::legacy; }

struct cuda_place {
  memory_kind memory = memory_kind::device;
  stream_kind stream = stream_kind::own;
  unsigned multiprocessors = 0;  // of a green context; 0: the whole device

  // The legacy stream cannot be captured.
  constexpr bool captures() const { return !is_shared(stream); }
};

inline std::string describe(const cuda_place& place) {
  std::string text = std::string(name_of(place.memory)) + ", " + name_of(place.stream);
  if (place.multiprocessors != 0) {
    text += ", a green context of at least " + std::to_string(place.multiprocessors) + " multiprocessors";
  }
  return text;
}

// Where the rank that is this thread makes its memory next.
inline thread_local cuda_place place_of_this_rank;

}  // namespace peerless::test
