# Each header alone in a generated unit, included twice, under -Werror: `.hpp` with g++ and clang++ (whichever are here),
# `.cuh` with nvcc. One target a compiler, remembered by depfiles and built by a test of its own: a header that does
# not stand alone fails that test, not the build.
file(GLOB_RECURSE hpp_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
  "${PROJECT_SOURCE_DIR}/include/peerless/*.hpp")
file(GLOB_RECURSE cuh_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
  "${PROJECT_SOURCE_DIR}/include/peerless/*.cuh")

# check_headers(<name> <extension of units> HEADERS <header>... COMMAND <compiler> <flag>...)
function(check_headers name extension)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;COMMAND")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/headers/${name}")
  file(MAKE_DIRECTORY "${folder}")
  set(stamps "")
  foreach(header IN LISTS arg_HEADERS)
    string(REPLACE "/" "." unit "${header}")
    set(source "${folder}/${unit}.${extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <${header}>\n#include <${header}>\n")
    add_custom_command(OUTPUT "${source}.stamp"
      COMMAND ${arg_COMMAND} "-I${PROJECT_SOURCE_DIR}/include" -MMD -MF "${source}.d" -MT "${source}.stamp" "${source}"
      COMMAND ${CMAKE_COMMAND} -E touch "${source}.stamp"
      DEPENDS "${source}" "${PROJECT_SOURCE_DIR}/include/${header}"
      DEPFILE "${source}.d"
      COMMENT "${name}: ${header} alone" VERBATIM)
    list(APPEND stamps "${source}.stamp")
  endforeach()
  add_custom_target(peerless_headers_${name} DEPENDS ${stamps})
  add_test(NAME build.headers_${name}
    COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target peerless_headers_${name} --parallel 2
      ${keep_going})
  set_tests_properties(build.headers_${name} PROPERTIES LABELS cpu TIMEOUT 600 PROCESSORS 2 RESOURCE_LOCK build_tree)
endfunction()

# All that fail, not the first alone.
set(keep_going "")
if(CMAKE_GENERATOR MATCHES "Ninja")
  set(keep_going -- -k 0)
elseif(CMAKE_GENERATOR MATCHES "Makefiles")
  set(keep_going -- -k)
endif()

set(flags ${PEERLESS_WARNING_FLAGS} -Werror -std=c++20 -fsyntax-only)
set(gxx "${CMAKE_CXX_COMPILER}")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_program(PEERLESS_GXX g++)
  set(gxx "${PEERLESS_GXX}")
endif()
set(clangxx "${CMAKE_CXX_COMPILER}")
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  find_program(PEERLESS_CLANGXX clang++)
  set(clangxx "${PEERLESS_CLANGXX}")
endif()
if(gxx)
  check_headers(gxx cpp HEADERS ${hpp_headers} COMMAND "${gxx}" ${flags})
else()
  peerless_add_skipped_test(build.headers_gxx "no g++ here" cpu)
endif()
if(clangxx)
  check_headers(clangxx cpp HEADERS ${hpp_headers} COMMAND "${clangxx}" ${flags})
else()
  peerless_add_skipped_test(build.headers_clangxx "no clang++ here" cpu)
endif()
if(NOT PEERLESS_CUDA_LANGUAGE)
  peerless_add_skipped_test(build.headers_nvcc "built without a CUDA toolkit" cpu)
elseif(cuh_headers)
  # The oldest architecture of CUDA 13; the test programs are for a newer one.
  set(nvcc "${CMAKE_CUDA_COMPILER}" -std=c++20 --expt-relaxed-constexpr -arch=sm_75 -Wno-deprecated-gpu-targets -Werror
    all-warnings -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror -c -o /dev/null)
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND nvcc "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  if(TARGET peerless::nccl)
    get_target_property(nccl_include NCCL::nccl INTERFACE_INCLUDE_DIRECTORIES)
    list(APPEND nvcc -isystem "${nccl_include}")
  endif()
  check_headers(nvcc cu HEADERS ${cuh_headers} COMMAND ${nvcc})
endif()

# All headers in one, for the tests beside this one: in the order of their names, which is nobody's natural order.
set(all "// Generated: every header that needs no nvcc.\n#pragma once\n")
foreach(header IN LISTS hpp_headers)
  string(APPEND all "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.hpp" CONTENT "${all}")
set(all "// Generated: every header.\n#pragma once\n#include \"all_headers.hpp\"\n")
foreach(header IN LISTS cuh_headers)
  string(APPEND all "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.cuh" CONTENT "${all}")
set(core_headers "${hpp_headers}")
list(FILTER core_headers INCLUDE REGEX "^peerless/(core/|config)")
set(all "// Generated: the headers of core.\n#pragma once\n")
foreach(header IN LISTS core_headers)
  string(APPEND all "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/core_headers.hpp" CONTENT "${all}")
set(PEERLESS_GENERATED_HEADERS "${CMAKE_CURRENT_BINARY_DIR}/generated")
