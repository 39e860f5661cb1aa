# peerless_create_cuda_targets(<cuda> <nccl>), both AUTO, ON or OFF: the targets that depend on what this machine has.
#   peerless::cuda      core, CUDA headers, the CUDA runtime; where there is a toolkit
#   peerless::nccl      cuda and NCCL; where there are both
#   peerless::peerless  core, and cuda where it exists
# Used by the checkout and by the installed package alike: they are made from the consumer's toolkit, never exported.
# No language is enabled, and the driver library is never linked: machines without a driver do not have it.
# Sets PEERLESS_CUDA_FOUND and PEERLESS_NCCL_FOUND for the caller.
include_guard(GLOBAL)

set(PEERLESS_MODULE_DIR "${CMAKE_CURRENT_LIST_DIR}" CACHE INTERNAL "where FindNCCL.cmake of peerless is")

# peerless_interface(<name>) in a checkout a target peerless_<name> and its alias, in a package an imported one.
macro(peerless_interface name)
  if(TARGET peerless_core)
    add_library(peerless_${name} INTERFACE)
    add_library(peerless::${name} ALIAS peerless_${name})
    set(target peerless_${name})
  else()
    add_library(peerless::${name} INTERFACE IMPORTED)
    set(target peerless::${name})
  endif()
endmacro()

function(peerless_create_cuda_targets cuda nccl)
  foreach(value IN ITEMS "${cuda}" "${nccl}")
    if(NOT value MATCHES "^(AUTO|ON|OFF)$")
      message(FATAL_ERROR "PEERLESS_CUDA and PEERLESS_NCCL are AUTO, ON or OFF, not '${value}'")
    endif()
  endforeach()

  if(NOT cuda STREQUAL "OFF" AND NOT TARGET peerless::cuda)
    find_package(CUDAToolkit QUIET)
    if(TARGET CUDA::cudart)
      peerless_interface(cuda)
      target_link_libraries(${target} INTERFACE peerless::core)
      target_include_directories(${target} SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
      # Shared and static runtime must not meet on one link line: follow what the consumer links anyway.
      set(runtime "$<UPPER_CASE:$<TARGET_PROPERTY:CUDA_RUNTIME_LIBRARY>>")
      if(TARGET CUDA::cudart_static)
        target_link_libraries(${target} INTERFACE
          "$<$<STREQUAL:${runtime},SHARED>:CUDA::cudart>"
          "$<$<OR:$<STREQUAL:${runtime},>,$<STREQUAL:${runtime},STATIC>>:CUDA::cudart_static>")
      else()
        target_link_libraries(${target} INTERFACE "$<$<NOT:$<STREQUAL:${runtime},NONE>>:CUDA::cudart>")
      endif()
      # As plain options: CMake 3.25 does not know C++20 for nvcc 13 (no cuda_std_20, no CUDA_STANDARD 20).
      target_compile_options(${target} INTERFACE
        "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20;--expt-relaxed-constexpr>")
    elseif(cuda STREQUAL "ON")
      message(FATAL_ERROR "PEERLESS_CUDA=ON, but there is no CUDA toolkit. Set CUDAToolkit_ROOT, or PEERLESS_CUDA=OFF")
    endif()
  endif()

  if(NOT nccl STREQUAL "OFF" AND TARGET peerless::cuda AND NOT TARGET peerless::nccl)
    list(PREPEND CMAKE_MODULE_PATH "${PEERLESS_MODULE_DIR}")
    find_package(NCCL QUIET MODULE)
    if(TARGET NCCL::nccl)
      peerless_interface(nccl)
      target_link_libraries(${target} INTERFACE peerless::cuda NCCL::nccl)
    endif()
  endif()
  if(nccl STREQUAL "ON" AND NOT TARGET peerless::nccl)
    message(FATAL_ERROR "PEERLESS_NCCL=ON, but there is no NCCL beside a CUDA toolkit. Set NCCL_ROOT, or PEERLESS_NCCL=OFF")
  endif()

  if(NOT TARGET peerless::peerless)
    peerless_interface(peerless)
    target_link_libraries(${target} INTERFACE peerless::core)
    if(TARGET peerless::cuda)
      target_link_libraries(${target} INTERFACE peerless::cuda)
    endif()
  endif()

  set(PEERLESS_CUDA_FOUND OFF)
  set(PEERLESS_NCCL_FOUND OFF)
  if(TARGET peerless::cuda)
    set(PEERLESS_CUDA_FOUND ON)
  endif()
  if(TARGET peerless::nccl)
    set(PEERLESS_NCCL_FOUND ON)
  endif()
  set(PEERLESS_CUDA_FOUND ${PEERLESS_CUDA_FOUND} PARENT_SCOPE)
  set(PEERLESS_NCCL_FOUND ${PEERLESS_NCCL_FOUND} PARENT_SCOPE)
endfunction()
