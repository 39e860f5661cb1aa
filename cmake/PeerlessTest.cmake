# Tests of this project. Every test program, plain or sanitized, is declared by one call:
#
#   peerless_add_test(<name>
#     SOURCES <file>...               .cpp, .cu; a test with a .cu links peerless::cuda, else it links peerless::core
#     LABELS <cpu|gpu1|gpu2>          what it needs to run: no GPU, one GPU, two GPUs
#     TIMEOUT <seconds>               always; a test that hangs is a failure, not a wait. Say it for the plain build:
#                                     sanitized variants get four times as much
#     [SANITIZE <thread|address|undefined>...]  the same sources once more per sanitizer, as tests <name>.tsan, .asan,
#                                     .ubsan; `address` includes undefined behaviour. C++ only
#     [NO_CATCH]                      the sources have their own main; exit code 77 says skipped, 0 passed
#     [NO_TEST]                       build the program (and its sanitized variants), register no test: a helper that
#                                     another test starts
#     [PARTS <name>...]               sources that other tests have as well: see peerless_add_test_part
#     [LIBRARIES <target>...]         linked in addition (nlohmann_json::nlohmann_json, peerless::nccl, ...)
#     [DEFINITIONS <NAME=VALUE>...]   compile definitions
#     [OPTIONS <flag>...]             compile options for C++ sources
#     [CUDA_OPTIONS <flag>...]        compile options for CUDA sources
#     [SANITIZE_DEFINITIONS <NAME=VALUE>...]  compile definitions of the sanitized variants only
#     [ARGS <arg>...]                 command line of the program
#     [SANITIZE_ARGS <arg>...]        command line of the sanitized variants, where it differs (fewer calls, say)
#     [PROCESSORS <n>]                cores it keeps busy (ranks), so that ctest -j does not overload the machine
#     [RUN_SERIAL]                    nothing else may run beside it: it asserts times
#     [RESOURCE_LOCK <name>...]       not beside tests with the same lock
#     [ENVIRONMENT <NAME=VALUE>...]
#   )
#
# The test is called <folder>.<name> (folder: the one directly below tests/), the target peerless_test_<folder>_<name>, left in
# the variable <name>_TARGET of the caller: $<TARGET_FILE:...> of it is the program. Example:
#
#   peerless_add_test(env SOURCES env.cpp LABELS cpu TIMEOUT 20 SANITIZE address)
#
# Sources say #include "support/catch.hpp" (both Catch2 generations, PEERLESS_SKIP); tests/ is on the include path.
#
# Skips. A test that cannot run here prints `peerless: skipped: <reason>` and is reported by CTest as skipped, never
# as passed. Tests with a GPU label are started through a gate that counts the GPUs, so they need not do it themselves.
# Without a CUDA toolkit they are registered all the same, and are skipped with that reason. A failure in the same
# program always wins over a skip: the exit code decides (77), not the text.

include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/PeerlessWarnings.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/PeerlessSanitizers.cmake")
set(PEERLESS_SKIP_CODE 77)
set(PEERLESS_SKIP_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/skip.cmake")

# The library that holds main() and, with Catch2 2.13, Catch2 itself: most of the time of a small test, so it is built
# once, without much optimisation, and sanitized programs link it, too (as they do the system's library of Catch2 3.x).
# What it shares with a test, the standard library's templates, the linker takes from the test.
function(peerless_test_main)
  if(TARGET peerless_test_main)
    return()
  endif()
  add_library(peerless_test_main STATIC "${PROJECT_SOURCE_DIR}/tests/support/catch_main.cpp")
  target_link_libraries(peerless_test_main PUBLIC Catch2::Catch2)
  target_include_directories(peerless_test_main PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_compile_features(peerless_test_main PUBLIC cxx_std_20)
  target_compile_options(peerless_test_main PRIVATE -O1)
endfunction()

# Registers a test that reports itself as skipped, with the reason, so that it is counted.
function(peerless_add_skipped_test test reason)
  add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} "-DREASON=${reason}" -P "${PEERLESS_SKIP_SCRIPT}")
  set_tests_properties(${test} PROPERTIES TIMEOUT 10 SKIP_REGULAR_EXPRESSION "peerless: skipped: " LABELS "${ARGN}")
endfunction()

# peerless_add_test_part(<name> SOURCES <file>... [DEFINITIONS <NAME=VALUE>...])
# Sources that several tests have in common, of any folder: compiled once, and once more a sanitizer, when the first test
# asks for them. Like tests, they are compiled with -O1.
function(peerless_add_test_part name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEFINITIONS")
  set(sources "")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    list(APPEND sources "${source}")
  endforeach()
  set_property(GLOBAL PROPERTY peerless_test_part_${name} "${sources}")
  set_property(GLOBAL PROPERTY peerless_test_part_${name}_DEFINITIONS "${arg_DEFINITIONS}")
endfunction()

# Links part `name` into `target`, as objects. `suffix` and `sanitizer` are empty for the plain build.
function(peerless_link_test_part target name suffix sanitizer)
  set(part peerless_test_part_${name}${suffix})
  if(NOT TARGET ${part})
    get_property(sources GLOBAL PROPERTY peerless_test_part_${name})
    get_property(definitions GLOBAL PROPERTY peerless_test_part_${name}_DEFINITIONS)
    add_library(${part} OBJECT ${sources})
    target_compile_definitions(${part} PRIVATE ${definitions})
    target_include_directories(${part} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_link_libraries(${part} PRIVATE Catch2::Catch2)
    if(sources MATCHES "\\.cu(;|$)")
      target_link_libraries(${part} PUBLIC peerless::cuda)
    else()
      target_link_libraries(${part} PUBLIC peerless::core)
    endif()
    peerless_warnings(${part})
    target_compile_options(${part} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
    if(sanitizer)
      peerless_sanitize(${part} ${sanitizer})
    endif()
  endif()
  target_link_libraries(${target} PRIVATE ${part})
endfunction()

function(peerless_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_CATCH;NO_TEST;RUN_SERIAL" "TIMEOUT;PROCESSORS"
    "SOURCES;PARTS;LABELS;SANITIZE;LIBRARIES;DEFINITIONS;OPTIONS;CUDA_OPTIONS;ARGS;SANITIZE_DEFINITIONS;SANITIZE_ARGS;RESOURCE_LOCK;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "peerless_add_test(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if((NOT arg_SOURCES AND NOT arg_PARTS) OR (NOT arg_NO_TEST AND (NOT arg_LABELS OR NOT arg_TIMEOUT)))
    message(FATAL_ERROR "peerless_add_test(${name}): SOURCES or PARTS, LABELS and TIMEOUT are required")
  endif()
  foreach(label IN LISTS arg_LABELS)
    if(NOT label MATCHES "^(cpu|gpu1|gpu2)$")
      message(FATAL_ERROR "peerless_add_test(${name}): label ${label} is none of cpu, gpu1, gpu2")
    endif()
  endforeach()

  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests" OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "[^A-Za-z0-9_].*" "" folder "${folder}")
  set(test_name "${folder}.${name}")
  set(base_target "peerless_test_${folder}_${name}")
  set(${name}_TARGET ${base_target} PARENT_SCOPE)

  set(sources_cuda "${arg_SOURCES}")
  foreach(part IN LISTS arg_PARTS)
    get_property(sources GLOBAL PROPERTY peerless_test_part_${part})
    if(NOT sources)
      message(FATAL_ERROR "peerless_add_test(${name}): there is no part ${part}")
    endif()
    list(APPEND sources_cuda ${sources})
  endforeach()
  list(FILTER sources_cuda INCLUDE REGEX "\\.cu$")
  if(sources_cuda AND NOT PEERLESS_CUDA_LANGUAGE)
    if(NOT arg_NO_TEST)
      peerless_add_skipped_test(${test_name} "built without a CUDA toolkit" ${arg_LABELS})
    endif()
    return()
  endif()
  if(sources_cuda AND arg_SANITIZE)
    message(FATAL_ERROR "peerless_add_test(${name}): SANITIZE is for C++ sources only")
  endif()

  foreach(sanitizer IN ITEMS plain ${arg_SANITIZE})
    set(target ${base_target})
    set(test ${test_name})
    set(suffix "")
    set(timeout "${arg_TIMEOUT}")
    set(args ${arg_ARGS})
    set(launcher "")
    if(sanitizer STREQUAL "plain")
      set(sanitizer "")
    else()
      peerless_sanitizer_usable(${sanitizer} suffix usable reason launcher)
      string(APPEND test ".${suffix}")
      string(PREPEND suffix "_")
      string(APPEND target "${suffix}")
      if(NOT usable)
        if(NOT arg_NO_TEST)
          peerless_add_skipped_test(${test} "${reason}" ${arg_LABELS})
        endif()
        continue()
      endif()
      if(NOT arg_NO_TEST)
        math(EXPR timeout "${arg_TIMEOUT} * 4")
      endif()
      if(DEFINED arg_SANITIZE_ARGS)
        set(args ${arg_SANITIZE_ARGS})
      endif()
    endif()

    add_executable(${target} ${arg_SOURCES})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    if(sources_cuda)
      target_link_libraries(${target} PRIVATE peerless::cuda)
    else()
      target_link_libraries(${target} PRIVATE peerless::core)
    endif()
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
    foreach(part IN LISTS arg_PARTS)
      peerless_link_test_part(${target} ${part} "${suffix}" "${sanitizer}")
    endforeach()
    if(NOT arg_NO_CATCH)
      peerless_test_main()
      target_link_libraries(${target} PRIVATE peerless_test_main)
    endif()
    peerless_warnings(${target})
    target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1;${arg_OPTIONS}>"
      "$<$<COMPILE_LANGUAGE:CUDA>:${arg_CUDA_OPTIONS}>")
    if(sanitizer)
      peerless_sanitize(${target} ${sanitizer})
      target_compile_definitions(${target} PRIVATE ${arg_SANITIZE_DEFINITIONS})
    endif()
    if(arg_NO_TEST)
      continue()
    endif()

    set(gate "")
    if("gpu2" IN_LIST arg_LABELS)
      set(gate $<TARGET_FILE:peerless_gpu_gate> 2)
    elseif("gpu1" IN_LIST arg_LABELS)
      set(gate $<TARGET_FILE:peerless_gpu_gate> 1)
    endif()
    if(gate AND NOT TARGET peerless_gpu_gate)
      peerless_add_skipped_test(${test} "built without a CUDA toolkit" ${arg_LABELS})
      continue()
    endif()
    add_test(NAME ${test} COMMAND ${launcher} ${gate} $<TARGET_FILE:${target}> ${args})
    set_tests_properties(${test} PROPERTIES TIMEOUT "${timeout}" SKIP_RETURN_CODE ${PEERLESS_SKIP_CODE}
      LABELS "${arg_LABELS}")
    set(environment ${arg_ENVIRONMENT})
    if(sanitizer)
      list(APPEND environment ${PEERLESS_SANITIZER_ENVIRONMENT})
    endif()
    if(environment)
      set_property(TEST ${test} PROPERTY ENVIRONMENT "${environment}")
    endif()
    if(arg_PROCESSORS)
      set_property(TEST ${test} PROPERTY PROCESSORS ${arg_PROCESSORS})
    endif()
    if(arg_RUN_SERIAL)
      set_property(TEST ${test} PROPERTY RUN_SERIAL ON)
    endif()
    if(gate)
      list(APPEND arg_RESOURCE_LOCK gpu)
    endif()
    if(arg_RESOURCE_LOCK)
      set_property(TEST ${test} PROPERTY RESOURCE_LOCK ${arg_RESOURCE_LOCK})
    endif()
  endforeach()
endfunction()
