// Memory among processes: filled before use, sealed, gone without a trace.
#include "support/catch.hpp"
#include "support/leak_check.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerless/core/shared_segment.hpp>

using peerless::errc;
using peerless::shared_segment;
using peerless::unique_fd;

namespace {

template <class F>
errc code_of(F&& action, std::string* text = nullptr) {
  try {
    action();
  } catch (const peerless::error& caught) {
    if (text != nullptr) *text = caught.what();
    return caught.code();
  }
  return errc::ok;
}

// Runs `body` in a child; its exit code, or 128 + signal.
template <class F>
int in_child(F&& body) {
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a segment is zeroed, page-aligned and writable to its last byte") {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{9} << 20}) {
    const shared_segment segment = shared_segment::create(bytes);
    REQUIRE(segment.size_bytes() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(segment.data()) % 4096 == 0);
    std::size_t set = 0;
    for (std::size_t i = 0; i < bytes; ++i) set += segment.data()[i] != std::byte{0};
    CHECK(set == 0);
    std::memset(segment.data(), 0xa5, bytes);
    CHECK(segment.data()[bytes - 1] == std::byte{0xa5});
  }
}

TEST_CASE("two mappings of one segment are the same memory, also in another process") {
  const shared_segment one = shared_segment::create(1 << 16);
  const shared_segment two = shared_segment::attach(unique_fd::duplicate(one.fd()), 1 << 16);
  CHECK(one.data() != two.data());
  one.data()[12345] = std::byte{17};
  CHECK(two.data()[12345] == std::byte{17});
  const int code = in_child([&] {
    const shared_segment three = shared_segment::attach(unique_fd::duplicate(one.fd()), 1 << 16);
    three.data()[65535] = std::byte{99};
    return static_cast<int>(three.data()[12345]);
  });
  CHECK(code == 17);
  CHECK(two.data()[65535] == std::byte{99});
}

TEST_CASE("all pages are there before use") {
  const shared_segment segment = shared_segment::create(6 << 20);
  struct stat status = {};
  REQUIRE(::fstat(segment.fd(), &status) == 0);
  CHECK(status.st_blocks * 512 >= 6 << 20);
}

TEST_CASE("nobody can take pages away or add some") {
  const shared_segment segment = shared_segment::create(1 << 16);
  CHECK(::ftruncate(segment.fd(), 4096) != 0);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(segment.fd(), 1 << 20) != 0);
  CHECK((::fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("another size is refused with both values") {
  const shared_segment segment = shared_segment::create(8192);
  std::string text;
  CHECK(code_of([&] { (void)shared_segment::attach(unique_fd::duplicate(segment.fd()), 4096); }, &text) ==
        errc::rendezvous_mismatch);
  CHECK_THAT(text, peerless::test::contains("8192"));
  CHECK_THAT(text, peerless::test::contains("4096"));
}

TEST_CASE("what another program made is refused") {
  unique_fd unsealed(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  CHECK(code_of([&] { (void)shared_segment::attach(std::move(unsealed), 4096); }) == errc::rendezvous_mismatch);
  CHECK(code_of([&] { (void)shared_segment::attach(unique_fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 4096); }) ==
        errc::rendezvous_mismatch);
  CHECK(code_of([&] { (void)shared_segment::attach(unique_fd(), 4096); }) == errc::system_error);
}

TEST_CASE("where memfds are refused, a file of a tmpfs that has no name") {
  for (const auto refusal : {+[](const char*, unsigned) { return errno = ENOSYS, -1; },
                             +[](const char*, unsigned) { return errno = EPERM, -1; }}) {
    peerless::segment_source source;
    source.memfd = refusal;
    const auto names = peerless::test::detail::names_in(source.shm_folder);
    const std::size_t descriptors = peerless::test::open_descriptors();
    {
      const shared_segment one = shared_segment::create(1 << 16, source, [](const shared_segment&) {});
      CHECK(one.kind() == peerless::segment_kind::shm_file);
      CHECK(peerless::test::detail::names_in(source.shm_folder) == names);
      one.data()[65535] = std::byte{5};
      const int code = in_child([&] {
        const shared_segment two = shared_segment::attach(unique_fd::duplicate(one.fd()), 1 << 16, one.kind());
        two.data()[0] = std::byte{6};
        return static_cast<int>(two.data()[65535]);
      });
      CHECK(code == 5);
      CHECK(one.data()[0] == std::byte{6});
      // It is no memfd, and does not pass for one.
      CHECK(code_of([&] { (void)shared_segment::attach(unique_fd::duplicate(one.fd()), 1 << 16); }) ==
            errc::rendezvous_mismatch);
    }
    CHECK(peerless::test::open_descriptors() == descriptors);
    source.shm_folder = "/proc/no such folder";
    std::string text;
    CHECK(code_of([&] { (void)shared_segment::create(4096, source, [](const shared_segment&) {}); }, &text) == errc::unsupported);
    CHECK_THAT(text, peerless::test::contains("no such folder"));
  }
  // Anything else that goes wrong with a memfd is told as it is.
  peerless::segment_source source;
  source.memfd = [](const char*, unsigned) { return errno = EMFILE, -1; };
  CHECK(code_of([&] { (void)shared_segment::create(4096, source, [](const shared_segment&) {}); }) == errc::system_error);
  source.memfd = [](const char*, unsigned) { return errno = ENOMEM, -1; };
  CHECK(code_of([&] { (void)shared_segment::create(4096, source, [](const shared_segment&) {}); }) == errc::out_of_memory);
  // A file that has a name is refused: others could open it.
  char path[] = "/tmp/peerless-test-XXXXXX";
  unique_fd named(::mkstemp(path));
  REQUIRE(::ftruncate(named.get(), 4096) == 0);
  CHECK(code_of([&] {
          (void)shared_segment::attach(unique_fd::duplicate(named.get()), 4096, peerless::segment_kind::shm_file);
        }) == errc::rendezvous_mismatch);
  ::unlink(path);
}

TEST_CASE("a kernel that wants memfds without execution has them, and so has one that knows no such flag") {
  constexpr unsigned noexec_seal = 0x0008;  // MFD_NOEXEC_SEAL
  peerless::segment_source source;
  source.memfd = [](const char* name, unsigned flags) {
    if ((flags & noexec_seal) != 0) return ::memfd_create(name, flags & ~noexec_seal);
    return errno = EACCES, -1;
  };
  const auto create = [&] { return shared_segment::create(4096, source, [](const shared_segment&) {}); };
  CHECK(create().kind() == peerless::segment_kind::memfd);
  source.memfd = [](const char* name, unsigned flags) {
    return (flags & noexec_seal) != 0 ? (errno = EINVAL, -1) : ::memfd_create(name, flags);
  };
  CHECK(create().kind() == peerless::segment_kind::memfd);
  CHECK(::fcntl(create().fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  // One that takes no flag at all is refused as ever.
  source.memfd = [](const char*, unsigned) { return errno = EINVAL, -1; };
  CHECK(create().kind() == peerless::segment_kind::shm_file);
}

TEST_CASE("a folder that is no tmpfs is refused, and so is a file there") {
  peerless::segment_source source;
  source.memfd = [](const char*, unsigned) { return errno = ENOSYS, -1; };
  source.shm_folder = "/proc";
  std::string text;
  CHECK(code_of([&] { (void)shared_segment::create(4096, source, [](const shared_segment&) {}); }, &text) ==
        errc::unsupported);
  CHECK_THAT(text, peerless::test::contains("/proc (it is not a tmpfs)"));
  // Where a nameless file can be made, but on a disk.
  source.shm_folder = ".";
  const unique_fd on_disk(::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  struct statfs status = {};
  if (!on_disk || ::fstatfs(on_disk.get(), &status) != 0 || status.f_type == TMPFS_MAGIC)
    PEERLESS_SKIP("the build folder has no nameless files on a disk: only a folder without any was refused");
  text.clear();
  CHECK(code_of([&] { (void)shared_segment::create(4096, source, [](const shared_segment&) {}); }, &text) ==
        errc::unsupported);
  CHECK_THAT(text, peerless::test::contains("not a tmpfs"));
  REQUIRE(::ftruncate(on_disk.get(), 4096) == 0);
  CHECK(code_of([&] {
          (void)shared_segment::attach(unique_fd::duplicate(on_disk.get()), 4096, peerless::segment_kind::shm_file);
        }) == errc::rendezvous_mismatch);
}

TEST_CASE("the caller says where pages shall lie before there are any") {
  std::size_t pages_before = 99;
  const shared_segment segment = shared_segment::create(1 << 20, {}, [&](const shared_segment& made) {
    unsigned char resident[256];
    REQUIRE(::mincore(made.data(), 1 << 20, resident) == 0);
    pages_before = 0;
    for (const unsigned char page : resident) pages_before += page & 1u;
  });
  CHECK(pages_before == 0);
}

TEST_CASE("memory that the accounts say is not there is not taken") {
  peerless::segment_source source;
  source.accounts.cgroup = "/nowhere";
  source.accounts.proc = PEERLESS_TEST_ACCOUNTS "/scarce";
  std::string text;
  CHECK(code_of([&] { (void)shared_segment::create(1 << 20, source, [](const shared_segment&) {}); }, &text) ==
        errc::out_of_memory);
  CHECK_THAT(text, peerless::test::contains("1048576"));
  CHECK_THAT(text, peerless::test::contains("524288"));
  CHECK(code_of([&] { (void)shared_segment::create(1 << 18, source, [](const shared_segment&) {}); }) == errc::ok);
}

TEST_CASE("nothing of 0 bytes") { CHECK(code_of([] { (void)shared_segment::create(0); }) == errc::invalid_argument); }

TEST_CASE("too little memory is a typed error with the need, never a signal") {
  SECTION("file size limit") {
    const int code = in_child([] {
      const struct rlimit limit = {1 << 20, 1 << 20};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      std::string text;
      if (code_of([] { (void)shared_segment::create(2 << 20); }, &text) != errc::out_of_memory) return 1;
      if (text.find("2097152") == std::string::npos || text.find("1048576") == std::string::npos) return 2;
      return code_of([] { (void)shared_segment::create(1 << 20); }) == errc::ok ? 0 : 3;
    });
    CHECK(code == 0);
  }
#if !defined(__SANITIZE_ADDRESS__)  // which needs its address space
  SECTION("address space limit") {
    const int code = in_child([] {
      const struct rlimit limit = {std::size_t{256} << 20, std::size_t{256} << 20};
      ::setrlimit(RLIMIT_AS, &limit);
      std::string text;
      if (code_of([] { (void)shared_segment::create(std::size_t{300} << 20); }, &text) != errc::out_of_memory) return 1;
      return text.find("314572800") == std::string::npos ? 2 : 0;
    });
    CHECK(code == 0);
  }
#endif
  SECTION("more than a file can hold") {
    std::string text;
    const errc code = code_of([] { (void)shared_segment::create(~std::size_t{0} / 2 + 2); }, &text);
    CHECK((code == errc::out_of_memory || code == errc::system_error));
  }
}

TEST_CASE("an owner moves and leaves nothing behind") {
  const std::size_t descriptors = peerless::test::open_descriptors();
  const std::size_t mappings = peerless::test::shared_mappings();
  {
    shared_segment one = shared_segment::create(4096);
    std::byte* const data = one.data();
    shared_segment two = std::move(one);
    CHECK_FALSE(one);
    CHECK(two.data() == data);
    one = shared_segment::create(8192);
    one = std::move(two);
    CHECK(one.data() == data);
    CHECK(one.size_bytes() == 4096);
    CHECK(peerless::test::shared_mappings() == mappings + 1);
  }
  CHECK(peerless::test::open_descriptors() == descriptors);
  CHECK(peerless::test::shared_mappings() == mappings);
}
