# NCCL as NCCL::nccl. Its own CMake package first (it has one since 2.29.7, and only when CMake built it), then header
# and library. Hints: NCCL_ROOT (variable or environment), the CUDA toolkit. Python wheels hold libnccl.so.2 alone.
# Sets NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY.
if(NOT TARGET NCCL::nccl)
  find_package(NCCL ${NCCL_FIND_VERSION} CONFIG QUIET)
endif()
include(FindPackageHandleStandardArgs)
if(TARGET NCCL::nccl AND NCCL_CONFIG)
  find_package_handle_standard_args(NCCL CONFIG_MODE)
  return()
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
# Header and library of one installation: look beside the header first.
if(NCCL_INCLUDE_DIR)
  cmake_path(GET NCCL_INCLUDE_DIR PARENT_PATH nccl_prefix)
endif()
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${NCCL_ROOT} ENV NCCL_ROOT "${nccl_prefix}" ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" line REGEX "^#define NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" line "${line}")
    list(APPEND NCCL_VERSION "${line}")
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
