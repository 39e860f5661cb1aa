// Abstract Unix sockets: names that live in the kernel, vanish with the process and belong to no file system.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <peerless/bootstrap/job_identity.hpp>
#include <peerless/core/unique_fd.hpp>

PEERLESS_BEGIN_NAMESPACE

namespace detail {

// The meeting place of a job of this user: "\0peerless-<uid>-<job key>". No version in it: ranks with different
// versions must meet to tell each other.
struct abstract_address {
  ::sockaddr_un address = {};
  ::socklen_t length = 0;

  static abstract_address of(const job_key& key) { return named(name_of(key)); }

  static abstract_address named(const std::string& name) {
    abstract_address made;
    made.address.sun_family = AF_UNIX;
    std::memcpy(made.address.sun_path + 1, name.data(), std::min(name.size(), sizeof(made.address.sun_path) - 1));
    made.length = static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + 1 + name.size());
    return made;
  }

  // At most 59 of the 107 bytes that an abstract name may have.
  static std::string name_of(const job_key& key) {
    const auto hex = [](std::uint64_t value) {
      std::string digits(16, '0');
      for (std::size_t i = 16; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
      return digits;
    };
    return "peerless-" + std::to_string(::geteuid()) + "-" + hex(key.high) + hex(key.low);
  }

  const ::sockaddr* get() const noexcept { return reinterpret_cast<const ::sockaddr*>(&address); }
};

inline unique_fd stream_socket() {
  unique_fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) raise_errno(errno, "creating a Unix socket");
  return made;
}

// Listens at `where`. None when the name is in use; throws errc::system_error for anything else. Does not block.
inline unique_fd listen_at(const abstract_address& where) {
  unique_fd made = stream_socket();
  if (::bind(made.get(), where.get(), where.length) != 0) {
    if (errno == EADDRINUSE) return unique_fd();
    raise_errno(errno, "binding the rendezvous socket");
  }
  if (::listen(made.get(), 256) != 0) raise_errno(errno, "listening at the rendezvous socket");
  return made;
}

// Connects to `where`. None when nobody listens there, or too many wait; throws errc::system_error for anything else.
// Does not block.
inline unique_fd connect_to(const abstract_address& where) {
  unique_fd made = stream_socket();
  for (;;) {
    if (::connect(made.get(), where.get(), where.length) == 0) return made;
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED || errno == EAGAIN || errno == ENOENT) return unique_fd();
    raise_errno(errno, "connecting to the rendezvous socket");
  }
}

// The process at the other end as the kernel vouches for it: of the connecting side when it connected, of the listening
// side when it began to listen. `pid` is 0 where it is not visible from this pid namespace.
inline ::ucred credentials_of(int socket) {
  ::ucred found = {};
  ::socklen_t length = sizeof(found);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) raise_errno(errno, "SO_PEERCRED");
  return found;
}

}  // namespace detail

PEERLESS_END_NAMESPACE
