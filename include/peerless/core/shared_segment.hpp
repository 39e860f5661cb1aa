// Memory shared among processes through a nameless file: nothing is ever visible in a file system.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <peerless/core/memory_budget.hpp>
#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

// What a segment is made of: the file that all ranks map.
enum class segment_kind : std::uint32_t {
  none = 0,
  memfd = 1,     // sealed: no holder of the descriptor can take pages away
  shm_file = 2,  // a nameless file of a tmpfs, which cannot be sealed: a holder that truncated it would make the others
                 // fail with SIGBUS. No name leads to it, so only ranks hold it
};

constexpr const char* name_of(segment_kind kind) noexcept {
  return kind == segment_kind::memfd ? "memfd" : kind == segment_kind::shm_file ? "nameless file in shm" : "none";
}

// Where segments come from: a memfd; where the kernel or a sandbox refuses those, a file of a tmpfs that never has a
// name (O_TMPFILE), so that a kill at any moment leaves nothing there to reclaim.
struct segment_source {
  int (*memfd)(const char* name, unsigned flags) = &::memfd_create;  // others are for tests; EINVAL: a flag too many
  std::string shm_folder = "/dev/shm";
  account_roots accounts;  // asked for room before pages are taken
};

// Owns a mapping and the descriptor behind it. One rank creates, the others attach to the descriptor that they were
// given (bootstrap broadcast_fd); each owns its own mapping and may be destroyed in any order. Move-only. The kernel
// frees the memory when the last mapping and descriptor are gone, a killed process's included.
class shared_segment {
 public:
  shared_segment() noexcept = default;
  shared_segment(shared_segment&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        kind_(std::exchange(other.kind_, segment_kind::none)) {}
  shared_segment& operator=(shared_segment&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    kind_ = std::exchange(other.kind_, segment_kind::none);
    return *this;
  }
  ~shared_segment() { unmap(); }

  // A new segment of `size_bytes` > 0, all zeros, page-aligned. Local; blocks only for the kernel to supply pages.
  // `prepare(segment)` runs before there are any, to say where they shall lie. All pages are reserved here, so that
  // running out is an error of this call and not a SIGBUS in the middle of a collective; a memfd's size is sealed.
  // Throws errc::invalid_argument (0 bytes), errc::out_of_memory (with the need, the room and what to do),
  // errc::unsupported (neither kind of file can be had here), errc::system_error.
  template <class Prepare>
  static shared_segment create(std::size_t size_bytes, const segment_source& source, Prepare&& prepare,
                               source_location where = source_location::current()) {
    if (size_bytes == 0) throw error(errc::invalid_argument, "a shared segment of 0 bytes", -1, 0, where);
    require_file_size_limit(size_bytes, where);
    require_memory(size_bytes, source.accounts, where);
    auto [fd, kind] = nameless_file(source, size_bytes, where);
    int failure = 0;
    while (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
      if ((failure = errno) != EINTR) raise_memory(failure, size_bytes, "ftruncate", where);
    }
    shared_segment segment = map(std::move(fd), size_bytes, kind, where);
    prepare(std::as_const(segment));
    // In pieces, because an interrupted fallocate undoes its work: a periodic signal could starve one large call.
    constexpr std::size_t piece_bytes = std::size_t{4} << 20;
    for (std::size_t done = 0; done < size_bytes;) {
      const std::size_t piece = std::min(piece_bytes, size_bytes - done);
      if (::fallocate(segment.fd(), 0, static_cast<off_t>(done), static_cast<off_t>(piece)) == 0) {
        done += piece;
      } else if ((failure = errno) != EINTR) {
        if (kind == segment_kind::shm_file && failure == ENOSPC) raise_full(segment.fd(), source, size_bytes, where);
        raise_memory(failure, size_bytes, "fallocate", where);
      }
    }
    if (kind == segment_kind::memfd &&
        ::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      detail::raise_errno(errno, "sealing a shared segment", -1, where);
    }
    return segment;
  }
  static shared_segment create(std::size_t size_bytes, source_location where = source_location::current()) {
    return create(size_bytes, segment_source{}, [](const shared_segment&) {}, where);
  }

  // Maps a segment that another rank created as a `kind`; takes the descriptor. Local, does not block.
  // Throws errc::rendezvous_mismatch when it is not `expected_bytes` long or not what create() makes of that kind: a
  // memfd sealed against shrinking, a file of a tmpfs without a name; errc::out_of_memory, errc::system_error.
  static shared_segment attach(unique_fd fd, std::size_t expected_bytes, segment_kind kind = segment_kind::memfd,
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
    if (kind == segment_kind::memfd && (seals < 0 || (seals & F_SEAL_SHRINK) == 0)) {
      throw error(errc::rendezvous_mismatch, "a shared segment is not sealed against shrinking", -1, 0, where);
    }
    if (kind != segment_kind::memfd && (!S_ISREG(status.st_mode) || status.st_nlink != 0 || !is_on_tmpfs(fd.get()))) {
      throw error(errc::rendezvous_mismatch, "a shared segment is not a file of a tmpfs without a name", -1, 0, where);
    }
    return map(std::move(fd), expected_bytes, kind, where);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Borrowed: valid as long as this object, -1 when it is empty.
  int fd() const noexcept { return fd_.get(); }
  segment_kind kind() const noexcept { return kind_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  struct file {
    unique_fd fd;
    segment_kind kind;
  };

  static file nameless_file(const segment_source& source, std::size_t size_bytes, const source_location& where) {
    // The first kernels with vm.memfd_noexec (Linux 6.3) refuse memfds without it where that is 2; older ones do not
    // know it.
    constexpr unsigned noexec_seal = 0x0008;  // MFD_NOEXEC_SEAL, not in older C libraries
    unique_fd fd(source.memfd("peerless", MFD_CLOEXEC | MFD_ALLOW_SEALING | noexec_seal));
    if (!fd && errno == EINVAL) fd = unique_fd(source.memfd("peerless", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd) return {std::move(fd), segment_kind::memfd};
    const int refused = errno;
    if (refused == ENOMEM) raise_memory(refused, size_bytes, "memfd_create", where);
    // Old kernels; sandboxes.
    if (refused != ENOSYS && refused != EPERM && refused != EACCES && refused != EINVAL)
      detail::raise_errno(refused, "memfd_create", -1, where);
    const unique_fd folder(::open(source.shm_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool on_disk = folder && !is_on_tmpfs(folder.get());
    if (folder && !on_disk) fd = unique_fd(::openat(folder.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
    if (fd) return {std::move(fd), segment_kind::shm_file};
    const int failure = on_disk ? EINVAL : errno;
    const std::string what = "memfd_create is refused (" + std::generic_category().message(refused) +
                             "), and so is a nameless file in " + source.shm_folder;
    if (failure == EMFILE || failure == ENFILE) detail::raise_errno(failure, what, -1, where);
    throw error(errc::unsupported,
                what + " (" + (on_disk ? "it is not a tmpfs" : std::generic_category().message(failure)) +
                    "); allow one of them, or let the ranks be threads of one process",
                -1, failure, where);
  }

  // A folder of another file system would put every word of a call on its way to a disk.
  static bool is_on_tmpfs(int fd) noexcept {
    struct statfs status = {};
    return ::fstatfs(fd, &status) == 0 && status.f_type == TMPFS_MAGIC;
  }

  static shared_segment map(unique_fd fd, std::size_t size_bytes, segment_kind kind, source_location where) {
    void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (address == MAP_FAILED) raise_memory(errno, size_bytes, "mmap", where);
    shared_segment segment;
    segment.fd_ = std::move(fd);
    segment.data_ = static_cast<std::byte*>(address);
    segment.size_bytes_ = size_bytes;
    segment.kind_ = kind;
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

  [[noreturn]] static void raise_full(int fd, const segment_source& source, std::size_t size_bytes,
                                      const source_location& where) {
    struct statvfs room = {};
    struct stat own = {};
    const bool known = ::fstatvfs(fd, &room) == 0 && ::fstat(fd, &own) == 0;
    const std::uint64_t free_bytes =
        static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize + static_cast<std::uint64_t>(own.st_blocks) * 512;
    throw error(errc::out_of_memory,
                "need " + std::to_string(size_bytes) + " bytes in " + source.shm_folder + ", free are " +
                    (known ? std::to_string(free_bytes) : "unknown") +
                    "; enlarge it (docker run --shm-size) or ask for smaller slots",
                -1, ENOSPC, where);
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
  segment_kind kind_ = segment_kind::none;
};

PEERLESS_END_NAMESPACE
