// Owner of a file descriptor.
#pragma once

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <peerless/core/system_error.hpp>

PEERLESS_BEGIN_NAMESPACE

// Closes its descriptor once. Move-only; -1 stands for "none". No member blocks.
class unique_fd {
 public:
  constexpr unique_fd() noexcept = default;
  // Takes ownership of `fd`.
  constexpr explicit unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~unique_fd() { reset(); }

  constexpr int get() const noexcept { return fd_; }
  constexpr explicit operator bool() const noexcept { return fd_ >= 0; }

  // Gives the descriptor up: the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  // Closes what is held and takes `fd`. errno is kept, so that it is safe on error paths. close() is not repeated on
  // EINTR: Linux has released the number by then, and another thread may own it already.
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old < 0 || old == fd) return;
    const int saved_errno = errno;
    ::close(old);
    errno = saved_errno;
  }

  // A second descriptor of the same open file, closed on exec. Throws errc::system_error (EBADF, EMFILE).
  static unique_fd duplicate(int fd, source_location where = source_location::current()) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) detail::raise_errno(errno, "duplicating a file descriptor", -1, where);
    return unique_fd(copy);
  }

  // As above, for an owner: none gives none.
  unique_fd duplicate() const { return fd_ < 0 ? unique_fd() : duplicate(fd_); }

 private:
  int fd_ = -1;
};

PEERLESS_END_NAMESPACE
