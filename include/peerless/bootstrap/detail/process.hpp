// Signs of life of a process: pidfds and life lines.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <peerless/core/deadline.hpp>
#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// A pidfd of process `pid` of this pid namespace; none where the kernel (before 5.3) or a sandbox has no such call, or
// the process is gone. Through syscall(), because the C library of older distributions has no wrapper.
inline unique_fd open_pidfd(::pid_t pid) noexcept {
#ifdef SYS_pidfd_open
  constexpr long call = SYS_pidfd_open;
#else
  constexpr long call = 434;
#endif
  return unique_fd(static_cast<int>(::syscall(call, pid, 0)));  // close-on-exec by definition
}

// A pidfd of the process at the other end of a connected Unix socket, none if that is not to be had. Newer kernels
// (6.5) hand it out directly; older ones tell the pid, which is 0 when that process is of another pid namespace.
inline unique_fd open_peer_pidfd(int socket, ::pid_t pid) noexcept {
#ifdef SO_PEERPIDFD
  constexpr int option = SO_PEERPIDFD;
#else
  constexpr int option = 77;
#endif
  int fd = -1;
  ::socklen_t length = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, option, &fd, &length) == 0 && fd >= 0) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return unique_fd(fd);
  }
  return pid > 0 ? open_pidfd(pid) : unique_fd();
}

// Polls `polled` until something is ready or `limit` has passed; true when something is ready. Signals do not cut it.
inline bool poll_until(::pollfd* polled, std::size_t count, deadline limit,
                       source_location where = source_location::current()) {
  for (;;) {
    constexpr auto longest = std::chrono::milliseconds(std::chrono::hours(1));
    const auto left = std::min(limit.remaining(), longest);
    const int ready = ::poll(polled, static_cast<::nfds_t>(count), static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) raise_errno(errno, "poll", -1, where);
    if (limit.expired()) return false;
  }
}

// Has the process of this pidfd ended? False for none. Waits at most until `limit`.
inline bool has_ended(const unique_fd& process, deadline limit) {
  if (!process) return false;
  ::pollfd polled = {process.get(), POLLIN, 0};
  return poll_until(&polled, 1, limit);
}

// Without a pidfd: does `pid` look like a process that has ended? True also of a zombie, which kill() takes for alive.
// False where it cannot be seen (0: another pid namespace), and when its number has been given to a new process.
inline bool looks_ended(::pid_t pid) {
  if (pid <= 0) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const unique_fd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[128] = {};  // pid (name of at most 64 characters) state
  if (!file || ::read(file.get(), text, sizeof(text) - 1) <= 0) return false;
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' && (name_end[2] == 'Z' || name_end[2] == 'X');
}

// As above, waiting for it until `limit`.
inline bool looks_ended(::pid_t pid, deadline limit) {
  while (!looks_ended(pid)) {
    if (pid <= 0 || limit.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// A pipe that tells the life of its owner where there are no pidfds: `own` is the write end and never written to,
// `peers` the read end to hand around; it hangs up when the last copy of `own` is closed, by exit or SIGKILL too.
struct life_line {
  unique_fd own;
  unique_fd peers;

  static life_line make() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) raise_errno(errno, "pipe2 for the life line");
    return {unique_fd(ends[1]), unique_fd(ends[0])};
  }
};

}  // namespace detail

PEERLESS_END_NAMESPACE
