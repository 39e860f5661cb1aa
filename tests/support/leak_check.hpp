// What a run may leave behind: entries of /dev/shm, abstract Unix sockets, child processes, descriptors and threads of
// the supervisor. Other programs work on the same machine, so a difference counts only if it lasts and is not theirs.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace peerless::test {

namespace detail {

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  ::closedir(dir);
  return names;
}

inline bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Parent of a process; 0 if it is gone.
inline int parent_of(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text, '\0');  // unlike an iterator, does not throw when the process ends between opening and reading
  auto const end = text.rfind(')');  // the name may hold anything
  if (end == std::string::npos) return 0;
  char state = 0;
  int parent = 0;
  return std::sscanf(text.c_str() + end + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

}  // namespace detail

// Direct children of this process, zombies included.
inline std::set<int> child_processes() {
  std::set<int> children;
  for (auto const& name : detail::names_in("/proc")) {
    if (detail::is_number(name) && detail::parent_of(std::stoi(name)) == ::getpid()) children.insert(std::stoi(name));
  }
  return children;
}

// Abstract Unix sockets of this network namespace: inode -> name.
inline std::map<std::string, std::string> abstract_sockets() {
  std::map<std::string, std::string> sockets;
  std::ifstream table("/proc/net/unix");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string ignored, inode, path;
    for (int i = 0; i < 6; ++i) fields >> ignored;
    if (fields >> inode >> path && path.front() == '@') sockets.emplace(inode, path);
  }
  return sockets;
}

inline std::size_t open_descriptors() { return detail::names_in("/proc/self/fd").size() - 1; }  // less the folder's own
inline std::size_t thread_count() { return detail::names_in("/proc/self/task").size(); }

// Mappings of memory files and shared-memory objects in this process.
inline std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t count = 0;
  while (std::getline(maps, line)) {
    if (line.find("/memfd:") != std::string::npos || line.find("/dev/shm/") != std::string::npos) ++count;
  }
  return count;
}

// Makes orphans of this process's descendants its children, so that a helper that outlives its rank is seen.
inline void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

// The state before a run; `left_behind` tells what has come and stayed since.
class leak_check {
 public:
  leak_check()
      : shm_(names()),
        sockets_(abstract_sockets()),
        children_(child_processes()),
        descriptors_(open_descriptors()),
        threads_(thread_count()) {}

  // Empty if all is as before; waits at most `patience` for other programs' entries, and dying processes, to go.
  // Processes that are left are reported and killed.
  std::vector<std::string> left_behind(std::chrono::milliseconds patience = std::chrono::seconds(3)) const {
    auto const until = std::chrono::steady_clock::now() + patience;
    std::vector<std::string> problems;
    for (;;) {
      problems = differences();
      if (problems.empty() || std::chrono::steady_clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    for (int pid : child_processes()) {
      if (children_.count(pid) == 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    return problems;
  }

 private:
  // Without CUDA's own entries, which belong to the driver.
  static std::set<std::string> names() {
    std::set<std::string> result;
    for (auto const& name : detail::names_in("/dev/shm")) {
      if (name.rfind("cuda", 0) != 0) result.insert(name);
    }
    return result;
  }

  // Inodes of sockets that processes other than this one hold: not ours, since our children are gone or reported.
  static std::set<std::string> foreign_sockets() {
    std::set<std::string> inodes;
    for (auto const& pid : detail::names_in("/proc")) {
      if (!detail::is_number(pid) || std::stoi(pid) == ::getpid()) continue;
      std::string const folder = "/proc/" + pid + "/fd/";
      for (auto const& fd : detail::names_in(folder)) {
        char target[64];
        auto const length = ::readlink((folder + fd).c_str(), target, sizeof target - 1);
        if (length <= 0) continue;
        std::string const text(target, static_cast<std::size_t>(length));
        if (text.rfind("socket:[", 0) == 0) inodes.insert(text.substr(8, text.size() - 9));
      }
    }
    return inodes;
  }

  std::vector<std::string> differences() const {
    std::vector<std::string> problems;
    while (reap_one()) {
    }
    for (int pid : child_processes()) {
      if (children_.count(pid) == 0) problems.push_back("process left behind: " + std::to_string(pid));
    }
    for (auto const& name : names()) {
      if (shm_.count(name) == 0) problems.push_back("/dev/shm entry left behind: " + name);
    }
    std::vector<std::pair<std::string, std::string>> fresh;
    for (auto const& socket : abstract_sockets()) {
      if (sockets_.count(socket.first) == 0) fresh.push_back(socket);
    }
    if (!fresh.empty()) {
      auto const foreign = foreign_sockets();
      for (auto const& [inode, name] : fresh) {
        if (foreign.count(inode) == 0) problems.push_back("abstract socket left behind: " + name);
      }
    }
    if (open_descriptors() != descriptors_) {
      problems.push_back("descriptors: " + std::to_string(descriptors_) + " before, " +
                         std::to_string(open_descriptors()) + " after");
    }
    if (thread_count() != threads_) {
      problems.push_back("threads: " + std::to_string(threads_) + " before, " + std::to_string(thread_count()) +
                         " after");
    }
    return problems;
  }

  // Collects one adopted orphan that has ended by itself. Children that were there before are left alone.
  bool reap_one() const {
    for (int pid : child_processes()) {
      if (children_.count(pid) == 0 && ::waitpid(pid, nullptr, WNOHANG) == pid) return true;
    }
    return false;
  }

  std::set<std::string> shm_;
  std::map<std::string, std::string> sockets_;
  std::set<int> children_;
  std::size_t descriptors_;
  std::size_t threads_;
};

}  // namespace peerless::test
