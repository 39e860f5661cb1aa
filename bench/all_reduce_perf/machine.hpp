// The facts of a machine that a measurement is worthless without. Nothing here touches a GPU.
#pragma once

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include <sys/utsname.h>
#include <unistd.h>

namespace peerless::bench {

struct machine_facts {
  std::string cpu;         // model as the kernel names it
  unsigned n_cpus = 0;     // logical CPUs
  double memory_gb = 0;    // 10^9 bytes
  std::string system;      // kernel name, release and architecture; no host name
  std::string gpu_driver;  // version of NVIDIA's kernel driver; empty without one
};

// The value after "key : value" in a file like /proc/cpuinfo; empty if there is none.
inline std::string field_of(std::istream& file, std::string_view key) {
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

inline machine_facts read_machine_facts() {
  machine_facts facts;
  std::ifstream cpu_info("/proc/cpuinfo");
  facts.cpu = field_of(cpu_info, "model name");
  if (facts.cpu.empty()) facts.cpu = "unknown";
  facts.n_cpus = std::thread::hardware_concurrency();
  facts.memory_gb = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e9;
  ::utsname name{};
  if (::uname(&name) == 0) facts.system = std::string(name.sysname) + ' ' + name.release + ' ' + name.machine;
  std::ifstream driver("/sys/module/nvidia/version");
  std::getline(driver, facts.gpu_driver);
  if (facts.gpu_driver.empty()) {  // containers often hide /sys/module
    std::ifstream version("/proc/driver/nvidia/version");
    std::string word;
    while (version >> word) {
      if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) {
        facts.gpu_driver = word;
        break;
      }
    }
  }
  return facts;
}

// Every environment variable that changes what is measured, as it is set.
inline std::map<std::string, std::string> relevant_environment(char** environment) {
  std::map<std::string, std::string> result;
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    bool matters = name.substr(0, 5) == "NCCL_" || name.substr(0, 9) == "PEERLESS_" || name.substr(0, 9) == "CUDA_MPS_";
    for (const std::string_view known : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
                                         "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"}) {
      matters = matters || name == known;
    }
    if (matters) result.emplace(name, text.substr(equals + 1));
  }
  return result;
}

// Now, as 2026-11-30T21:34:29Z.
inline std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

}  // namespace peerless::bench
