// The CUDA executor: PTX accesses at system scope, and groups of threads of one block.
#pragma once

#include <cstdint>

#include <peerless/protocol/memory.hpp>

PEERLESS_BEGIN_NAMESPACE

// Memory policy of GPU threads. Shared data is never read by a plain, const or read-only-cache load, which could return
// a stale line; payload is therefore relaxed here too. Addresses must be global (device or mapped host) memory, except
// those of the `group` pair, which are generic.
struct cuda_memory {
  __device__ std::uint32_t load4(const std::uint32_t* from) const {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ void store4(std::uint32_t* to, std::uint32_t value) const {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }
  __device__ std::uint64_t load8(const std::uint64_t* from) const {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ void store8(std::uint64_t* to, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  __device__ std::uint64_t load8_acquire(const std::uint64_t* from) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ void store8_release(std::uint64_t* to, std::uint64_t value) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }

  __device__ vec16 load16(const vec16* from) const {
    vec16 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(from)
                 : "memory");
    return v;
  }
  __device__ void store16(vec16* to, vec16 v) const {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]),
                 "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
  }
  __device__ vec16 load16_payload(const vec16* from) const { return load16(from); }
  __device__ void store16_payload(vec16* to, vec16 value) const { store16(to, value); }

  __device__ std::uint32_t load4_acquire_group(const std::uint32_t* from) const {
    std::uint32_t value;
    asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ void store4_release_group(std::uint32_t* to, std::uint32_t value) const {
    asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
  }
  __device__ bool claim(std::uint32_t* word, std::uint32_t value) const {
    std::uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], 0, %2;" : "=r"(old) : "l"(word), "r"(value) : "memory");
    return old == 0;
  }

  // %globaltimer: nanoseconds, in steps of up to a microsecond.
  __device__ std::uint64_t now_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ void relax(unsigned) const {}
  __device__ void note_read(std::uint32_t*) const {}
  __device__ void note_overwrite(std::uint32_t*) const {}
};

#if defined(__CUDA_ARCH__)
static_assert(memory_policy<cuda_memory>);
#endif

// All threads of the block, the grid's blocks aside.
struct block_group {
  __device__ unsigned thread_rank() const { return threadIdx.x; }
  __device__ unsigned size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool all(bool vote) const { return __syncthreads_and(vote) != 0; }
};

// Threads [First, First + Size) of the block, joined by hardware barrier `Barrier` (1-15; 0 is __syncthreads). First
// and Size are multiples of 32. The lanes of a warp are brought together first: a hardware barrier counts warps, and
// one that is left to find a warp apart has been seen to lose a lane that had waited long for a peer, and to hang
// (ptxas 13.0, sm_90).
template <int Barrier, unsigned First, unsigned Size>
struct warp_range_group {
  static_assert(Barrier > 0 && Barrier < 16 && First % 32 == 0 && Size % 32 == 0);
  __device__ unsigned thread_rank() const { return threadIdx.x - First; }
  __device__ unsigned size() const { return Size; }
  __device__ void sync() const {
    __syncwarp();
    asm volatile("barrier.sync.aligned %0, %1;" ::"n"(Barrier), "n"(Size) : "memory");
  }
  __device__ bool all(bool vote) const {
    __syncwarp();
    int every;
    asm volatile(
        "{ .reg .pred mine, every;\n"
        "  setp.ne.s32 mine, %1, 0;\n"
        "  barrier.red.and.aligned.pred every, %2, %3, mine;\n"
        "  selp.s32 %0, 1, 0, every; }"
        : "=r"(every)
        : "r"(static_cast<int>(vote)), "n"(Barrier), "n"(Size)
        : "memory");
    return every != 0;
  }
};

PEERLESS_END_NAMESPACE
