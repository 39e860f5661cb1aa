// Environment variables for the length of a scope.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peerless::test {

// Sets some variables and removes others; puts all back as they were. For tests without threads.
class scoped_environment {
 public:
  scoped_environment(const std::vector<std::pair<std::string, std::string>>& set,
                     const std::vector<std::string>& unset) {
    for (auto const& name : unset) {
      remember(name);
      ::unsetenv(name.c_str());
    }
    for (auto const& [name, value] : set) {
      remember(name);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  scoped_environment(const std::string& name, const std::string& value) {
    remember(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  scoped_environment(const scoped_environment&) = delete;
  scoped_environment& operator=(const scoped_environment&) = delete;
  ~scoped_environment() {
    for (auto entry = before_.rbegin(); entry != before_.rend(); ++entry) {
      if (entry->second) {
        ::setenv(entry->first.c_str(), entry->second->c_str(), 1);
      } else {
        ::unsetenv(entry->first.c_str());
      }
    }
  }

 private:
  void remember(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    before_.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace peerless::test
