# peerless_find_dependency(<Catch2|benchmark|CLI11|nlohmann_json>): what tests and measuring programs link. The
# system's package; a pinned download only with PEERLESS_FETCH_DEPENDENCIES. The library itself links none of them.
include_guard(GLOBAL)
include(FetchContent)

set(PEERLESS_GIT_Catch2 https://github.com/catchorg/Catch2.git v3.4.0)
set(PEERLESS_GIT_benchmark https://github.com/google/benchmark.git v1.8.3)
set(PEERLESS_GIT_CLI11 https://github.com/CLIUtils/CLI11.git v2.4.1)
set(PEERLESS_GIT_nlohmann_json https://github.com/nlohmann/json.git v3.11.3)
set(PEERLESS_APT_Catch2 catch2)
set(PEERLESS_APT_benchmark libbenchmark-dev)
set(PEERLESS_APT_CLI11 libcli11-dev)
set(PEERLESS_APT_nlohmann_json nlohmann-json3-dev)

# A macro: imported targets belong to the folder that asks, which is all of ours when the top level asks.
macro(peerless_find_dependency package)
  find_package(${package} QUIET GLOBAL)
  if(NOT ${package}_FOUND)
    if(NOT PEERLESS_FETCH_DEPENDENCIES)
      message(FATAL_ERROR "peerless: ${package} is missing. Install it (Debian, Ubuntu: apt-get install "
        "${PEERLESS_APT_${package}}), or configure with -DPEERLESS_FETCH_DEPENDENCIES=ON")
    endif()
    list(GET PEERLESS_GIT_${package} 0 peerless_repository)
    list(GET PEERLESS_GIT_${package} 1 peerless_tag)
    set(BENCHMARK_ENABLE_TESTING OFF CACHE BOOL "" FORCE)
    FetchContent_Declare(${package} GIT_REPOSITORY ${peerless_repository} GIT_TAG ${peerless_tag} GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(${package})
  endif()
endmacro()
