// Entry and exit of a kernel that is one call: where the rank stands, whether it may run, and the detection of calls
// that overlap on the device (parallel replays, capture branches, two streams).
#pragma once

#include <cstdint>

#include <peerless/protocol/call.hpp>
#include <peerless/protocol/memory_cuda.cuh>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The gate, from the top: blocks that have entered any call so far (16 bits), tags of the current call (12, see
// closed_gate), sum of the ids of the grids that entered it (26), blocks that entered it (10). A block adds itself and
// learns from what was there whether only blocks of its own grid have entered this call, and the first block of a grid
// also whether every block of the calls before has left. So the first block of an overlapping grid is refused before it
// has written anything.
struct gate_value {
  std::uint64_t bits;

  // What a block of grid `id` adds.
  __device__ static gate_value entry(std::uint64_t id) { return {std::uint64_t{1} << 48 | id << 10 | 1u}; }
  __device__ std::uint32_t entered() const { return bits & 0x3ffu; }
  __device__ std::uint64_t ids() const { return bits >> 10 & 0x3ffffffu; }
  // Field 0: the call's number; n: the epoch of the protocol with id n. Each modulo 4.
  __device__ std::uint32_t tag(unsigned field) const { return bits >> (36 + 2 * field) & 3u; }
  __device__ std::uint32_t tags() const { return bits >> 36 & 0xfffu; }
  // The tags of the call after this one, which is of the given protocol.
  __device__ std::uint32_t next_tags(unsigned protocol) const {
    const unsigned keep = ~(3u | 3u << (2 * protocol));
    return (tags() & keep) | ((tag(0) + 1) & 3u) | ((tag(protocol) + 1) & 3u) << (2 * protocol);
  }
  __device__ std::uint16_t entered_ever() const { return static_cast<std::uint16_t>(bits >> 48); }
};

// Puts right a number that was read after the last block of this very call may have moved it on. False: neither the
// tagged number nor the one after it, so another call is running.
__device__ inline bool settle(std::uint64_t& number, std::uint32_t tag) {
  const std::uint32_t ahead = (number - tag) & 3u;
  number -= ahead;
  return ahead <= 1;
}

// An id that no other running grid of this process has, replays of one captured launch included: 20 bits of %gridid.
__device__ inline std::uint64_t grid_id() {
  std::uint64_t id;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(id));
  return id & 0xfffffu;
}

}  // namespace detail

// Dependent launch (sm_90 and later): a kernel that was launched with
// cudaLaunchAttributeProgrammaticStreamSerialization may start while the one before it on the stream still runs. Every
// thread calls this before it reads or writes anything: waits until the kernels before have ended and their memory is
// visible, as if launched the ordinary way. So a call still begins where the last one has ended, which is what every
// protocol's reuse of slots rests on.
__device__ inline void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Every block, once: the next kernel on the stream may come onto the device, if it was launched as a dependent one. Not
// before await_earlier_kernels(), or a graph of calls would fill the device with kernels that wait.
__device__ inline void admit_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Enters a call. Every thread of every block, once, before anything that has effects; contains one barrier of the
// block. Returns false, with `f` undefined, when the communicator has failed or calls overlap: the thread must return
// at once. Only thread 0 reads the state, all words at the same time, since each is a round trip to the L2 cache. The
// last block to enter moves the state on for the next call, so that nothing is left to do at the end, where it would
// add to the latency. A call of several kernels enters with the first, of one block, and leaves with the last, even
// when it was refused: not before its copies have ended.
__device__ inline bool enter_call(const rank_view& v, std::uint64_t fingerprint, call_frame& f,
                                  bool leaves_if_refused = true) {
  __shared__ call_frame frame;
  __shared__ bool admitted;
  if (threadIdx.x == 0) {
    const cuda_memory m;
    call_state* s = v.calls;
    const std::uint64_t id = detail::grid_id();
    detail::gate_value gate;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(gate.bits)
                 : "l"(&s->gate), "l"(detail::gate_value::entry(id).bits)
                 : "memory");
    const std::uint32_t poison = m.load4(&s->poison), left = m.load4(&s->blocks_left);
    call_frame now = open_call(m, v, fingerprint);
    const auto protocol = static_cast<unsigned>(now.protocol);
    const bool settled = detail::settle(now.call, gate.tag(0)) & detail::settle(now.epoch, gate.tag(protocol));
    const auto ahead =
        static_cast<std::uint16_t>(left - gate.entered_ever());  // blocks of this grid that have left already
    const bool alone = settled && gate.entered() < gridDim.x && gate.ids() == gate.entered() * id &&
                       (gate.entered() != 0 || ahead < gridDim.x);
    frame = now;
    admitted = alone && poison == 0;
    if (admitted && gate.entered() + 1 == gridDim.x) {
      m.store8(&s->gate, closed_gate(gate.entered_ever() + 1u, gate.next_tags(protocol)));
      advance_call(m, v, now);
    }
    if (!alone && poison == 0) fail_call(m, v, now, errc::overlapped, v.rank, gate.entered(), gate.bits);
  }
  __syncthreads();
  f = frame;
  if (!admitted && leaves_if_refused && threadIdx.x == 0) {  // has entered, and leaves at once
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(&v.calls->blocks_left) : "memory");
  }
  return admitted;
}

// Leaves a call that was entered. Every thread, last; contains one barrier of the block. Nothing waits for the result.
__device__ inline void leave_call(const rank_view& v) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&v.calls->blocks_left) : "memory");
  }
}

PEERLESS_END_NAMESPACE
