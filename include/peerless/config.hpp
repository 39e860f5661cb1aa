// Version, inline namespace and the only macros of the library.
#pragma once

#define PEERLESS_VERSION_MAJOR 0
#define PEERLESS_VERSION_MINOR 1
#define PEERLESS_VERSION_PATCH 0

// The inline namespace carries the full version: two copies of different versions in one process share no symbol.
#define PEERLESS_VERSION_NAMESPACE v0_1_0
#define PEERLESS_BEGIN_NAMESPACE \
  namespace peerless {           \
  inline namespace PEERLESS_VERSION_NAMESPACE {
#define PEERLESS_END_NAMESPACE \
  }                            \
  }

// Kernels and per-library registries are hidden: each shared library launches its own copy.
#define PEERLESS_HIDDEN __attribute__((visibility("hidden")))

#if defined(__CUDACC__)
// Function usable on host and device.
#define PEERLESS_HD __host__ __device__
// Before a host-device template that calls members of a host-only or device-only policy (nvcc warning 20014).
#define PEERLESS_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#define PEERLESS_NOINLINE __noinline__
#else
#define PEERLESS_HD
#define PEERLESS_EXEC_CHECK_DISABLE
#define PEERLESS_NOINLINE __attribute__((noinline))
#endif

// Before a loop of a host-device function that must be unrolled on the device.
#if defined(__CUDA_ARCH__)
#define PEERLESS_UNROLL _Pragma("unroll")
#else
#define PEERLESS_UNROLL
#endif

// 1 in device code for GPUs with instructions that convert 8-bit floating-point types (compute capability 8.9 and
// later). Define PEERLESS_SOFTWARE_FP8 to do without them; the results are the same.
#if defined(__CUDA_ARCH__) && !defined(PEERLESS_SOFTWARE_FP8)
#define PEERLESS_FP8_UNITS (__CUDA_ARCH__ >= 890)
#else
#define PEERLESS_FP8_UNITS 0
#endif

// 1 in translation units that ThreadSanitizer instruments.
#if defined(__SANITIZE_THREAD__)
#define PEERLESS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PEERLESS_THREAD_SANITIZER 1
#endif
#endif
#if !defined(PEERLESS_THREAD_SANITIZER)
#define PEERLESS_THREAD_SANITIZER 0
#endif
