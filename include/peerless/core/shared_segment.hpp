// Memory shared among processes through an anonymous file: nothing is ever visible in a file system.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

// Owns a mapping and the descriptor behind it. One rank creates, the others attach to the descriptor that they were
// given (bootstrap broadcast_fd); each owns its own mapping and may be destroyed in any order. Move-only. The kernel
// frees the memory when the last mapping and descriptor are gone, a killed process's included.
class shared_segment {
 public:
  shared_segment() noexcept = default;
  shared_segment(shared_segment&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  shared_segment& operator=(shared_segment&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    return *this;
  }
  ~shared_segment() { unmap(); }

  // A new segment of `size_bytes` > 0, all zeros, page-aligned. Local; blocks only for the kernel to supply pages.
  // All pages are reserved here, so that running out is an error of this call and not a SIGBUS in the middle of a
  // collective; its size is sealed, so that no holder of the descriptor can take pages away.
  // Throws errc::invalid_argument (0 bytes), errc::out_of_memory (with the need and what to do), errc::system_error.
  static shared_segment create(std::size_t size_bytes, source_location where = source_location::current()) {
    if (size_bytes == 0) throw error(errc::invalid_argument, "a shared segment of 0 bytes", -1, 0, where);
    require_file_size_limit(size_bytes, where);
    unique_fd fd(::memfd_create("peerless", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) detail::raise_errno(errno, "memfd_create", -1, where);
    int failure = 0;
    while (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
      if ((failure = errno) != EINTR) raise_memory(failure, size_bytes, "ftruncate", where);
    }
    // In pieces, because an interrupted fallocate undoes its work: a periodic signal could starve one large call.
    constexpr std::size_t piece_bytes = std::size_t{4} << 20;
    for (std::size_t done = 0; done < size_bytes;) {
      const std::size_t piece = std::min(piece_bytes, size_bytes - done);
      if (::fallocate(fd.get(), 0, static_cast<off_t>(done), static_cast<off_t>(piece)) == 0) {
        done += piece;
      } else if ((failure = errno) != EINTR) {
        raise_memory(failure, size_bytes, "fallocate", where);
      }
    }
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      detail::raise_errno(errno, "sealing a shared segment", -1, where);
    }
    return map(std::move(fd), size_bytes, where);
  }

  // Maps a segment that another rank created; takes the descriptor. Local, does not block.
  // Throws errc::rendezvous_mismatch when it is not `expected_bytes` long or is not sealed against shrinking (then it
  // was not made by create()), errc::out_of_memory, errc::system_error.
  static shared_segment attach(unique_fd fd, std::size_t expected_bytes,
                               source_location where = source_location::current()) {
    struct stat status = {};
    if (::fstat(fd.get(), &status) != 0) detail::raise_errno(errno, "fstat of a shared segment", -1, where);
    if (static_cast<std::size_t>(status.st_size) != expected_bytes || expected_bytes == 0) {
      throw error(errc::rendezvous_mismatch,
                  "a shared segment has " + std::to_string(status.st_size) + " bytes, this rank expects " +
                      std::to_string(expected_bytes) + "; do all ranks use the same options and library version?",
                  -1, 0, where);
    }
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      throw error(errc::rendezvous_mismatch, "a shared segment is not sealed against shrinking", -1, 0, where);
    }
    return map(std::move(fd), expected_bytes, where);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Borrowed: valid as long as this object, -1 when it is empty.
  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  static shared_segment map(unique_fd fd, std::size_t size_bytes, source_location where) {
    void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (address == MAP_FAILED) raise_memory(errno, size_bytes, "mmap", where);
    shared_segment segment;
    segment.fd_ = std::move(fd);
    segment.data_ = static_cast<std::byte*>(address);
    segment.size_bytes_ = size_bytes;
    return segment;
  }

  // ftruncate beyond RLIMIT_FSIZE raises SIGXFSZ, whose default is to kill: ask first.
  static void require_file_size_limit(std::size_t size_bytes, const source_location& where) {
    if (size_bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
      raise_memory(EFBIG, size_bytes, "memfd_create", where);
    struct rlimit limit = {};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size_bytes <= limit.rlim_cur)
      return;
    throw error(errc::out_of_memory,
                "a shared segment needs " + std::to_string(size_bytes) + " bytes, the file size limit (ulimit -f) is " +
                    std::to_string(limit.rlim_cur) + " bytes; raise it or ask for smaller slots",
                -1, EFBIG, where);
  }

  [[noreturn]] static void raise_memory(int failure, std::size_t size_bytes, const char* call,
                                        const source_location& where) {
    const std::string need = std::string(call) + " of a shared segment of " + std::to_string(size_bytes) + " bytes";
    if (failure == ENOMEM || failure == ENOSPC || failure == EFBIG || failure == EAGAIN) {
      throw error(
          errc::out_of_memory,
          need + " failed: " + std::generic_category().message(failure) +
              "; raise the memory limit (docker run --memory, cgroup memory.max, ulimit -v) or ask for smaller slots",
          -1, failure, where);
    }
    detail::raise_errno(failure, need, -1, where);
  }

  void unmap() noexcept {
    if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), size_bytes_);
    size_bytes_ = 0;
  }

  unique_fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

PEERLESS_END_NAMESPACE
