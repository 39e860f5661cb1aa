# Measuring programs and examples:
#
#   peerless_add_program(<target>
#     SOURCES <file>...        .cpp, .cu
#     [CUDA_SOURCES <file>...] added, with the definition PEERLESS_WITH_CUDA=1 and peerless::cuda, where CUDA is
#                              compiled; a program whose SOURCES hold a .cu is left out elsewhere
#     [LIBRARIES <target>...]  linked in addition
#     [NCCL]                   links peerless::nccl and defines PEERLESS_WITH_NCCL=1 where there is one
#     [DEPENDENCIES <package>...] Catch2, benchmark, CLI11, nlohmann_json: found and linked
#     [BUILD_INFO]             #include "peerless_build_info.hpp": version, commit, compiler, build type as constants
#   )
#
# The program lies in <build folder>/bin. Definitions and generated headers are for programs only; the library's headers never see them.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/PeerlessWarnings.cmake")

set(PEERLESS_TARGET_benchmark benchmark::benchmark)
set(PEERLESS_TARGET_CLI11 CLI11::CLI11)
set(PEERLESS_TARGET_nlohmann_json nlohmann_json::nlohmann_json)
set(PEERLESS_TARGET_Catch2 Catch2::Catch2)

# The commit is read at configure time, and each commit, checkout or merge configures anew.
function(peerless_write_build_info)
  set(commit "unknown")
  if(PEERLESS_COMMIT)  # a copy of the sources, whose history may be absent or older
    set(commit "${PEERLESS_COMMIT}")
  endif()
  find_package(Git QUIET)
  if(NOT PEERLESS_COMMIT AND Git_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
    execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
      OUTPUT_VARIABLE head RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(commit "${head}")
    endif()
    if(EXISTS "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
    endif()
  endif()
  set(nvcc "none")
  if(PEERLESS_CUDA_LANGUAGE)
    set(nvcc "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/peerless_build_info.hpp" @ONLY CONTENT
"// Generated: what this program was built from and with.
#pragma once

namespace peerless_build_info {
inline constexpr const char* version = \"@PROJECT_VERSION@\";
inline constexpr const char* commit = \"@commit@\";
inline constexpr const char* compiler = \"@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@\";
inline constexpr const char* cuda_compiler = \"@nvcc@\";
inline constexpr const char* build_type = \"@CMAKE_BUILD_TYPE@\";
}  // namespace peerless_build_info
")
endfunction()
peerless_write_build_info()

function(peerless_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NCCL;BUILD_INFO" "" "SOURCES;CUDA_SOURCES;LIBRARIES;DEPENDENCIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "peerless_add_program(${target}): SOURCES missing, or unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(cuda "${arg_SOURCES}")
  list(FILTER cuda INCLUDE REGEX "\\.cu$")
  if(cuda AND NOT PEERLESS_CUDA_LANGUAGE)
    message(STATUS "peerless: ${target} is left out, it needs CUDA")
    return()
  endif()

  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE peerless::core ${arg_LIBRARIES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(PEERLESS_CUDA_LANGUAGE AND (cuda OR arg_CUDA_SOURCES))
    target_sources(${target} PRIVATE ${arg_CUDA_SOURCES})
    target_link_libraries(${target} PRIVATE peerless::cuda)
    target_compile_definitions(${target} PRIVATE PEERLESS_WITH_CUDA=1)
    if(arg_NCCL AND TARGET peerless::nccl)
      target_link_libraries(${target} PRIVATE peerless::nccl)
      target_compile_definitions(${target} PRIVATE PEERLESS_WITH_NCCL=1)
    endif()
  endif()
  foreach(package IN LISTS arg_DEPENDENCIES)
    peerless_find_dependency(${package})
    target_link_libraries(${target} PRIVATE ${PEERLESS_TARGET_${package}})
  endforeach()
  if(arg_BUILD_INFO)
    target_include_directories(${target} PRIVATE "${PROJECT_BINARY_DIR}/generated")
  endif()
  peerless_warnings(${target})
endfunction()
