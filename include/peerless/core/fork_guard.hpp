// Tells a process from a child that it forked, without a system call.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <peerless/core/system_error.hpp>

PEERLESS_BEGIN_NAMESPACE

// A page that the kernel empties in every forked child. Move-only; construct one when the object to protect is made.
class fork_guard {
 public:
  // Throws errc::system_error when no page can be mapped.
  fork_guard() {
    void* page = ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) detail::raise_errno(errno, "mmap of a fork guard");
    mark_ = static_cast<volatile std::uint8_t*>(page);
    if (::madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) {  // Linux 4.14; older kernels share the page
      owner_ = ::getpid();
    }
    *mark_ = 1;
  }
  fork_guard(fork_guard&& other) noexcept : mark_(std::exchange(other.mark_, nullptr)), owner_(other.owner_) {}
  fork_guard& operator=(fork_guard&&) = delete;
  ~fork_guard() {
    if (mark_ != nullptr) ::munmap(const_cast<std::uint8_t*>(mark_), page_bytes());
  }

  // True in a process that was forked after construction. One load.
  bool is_child() const noexcept { return *mark_ == 0 || (owner_ != 0 && owner_ != ::getpid()); }

 private:
  static std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  volatile std::uint8_t* mark_ = nullptr;
  ::pid_t owner_ = 0;  // 0: the kernel wipes the page
};

PEERLESS_END_NAMESPACE
