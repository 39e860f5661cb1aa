# Sanitizers as extra targets of the same build: a header-only library needs no second configuration for them.
include_guard(GLOBAL)
include(CheckCXXSourceCompiles)

set(PEERLESS_SANITIZER_ENVIRONMENT
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:history_size=4"
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1")

function(peerless_sanitizer_flags sanitizer out)
  if(sanitizer STREQUAL "thread")
    set(${out} -fsanitize=thread PARENT_SCOPE)
  elseif(sanitizer STREQUAL "address")
    set(${out} -fsanitize=address,undefined -fno-sanitize-recover=all PARENT_SCOPE)
  elseif(sanitizer STREQUAL "undefined")
    set(${out} -fsanitize=undefined -fno-sanitize-recover=all PARENT_SCOPE)
  else()
    message(FATAL_ERROR "sanitizer ${sanitizer} is none of thread, address, undefined")
  endif()
endfunction()

# peerless_sanitize(<target> <sanitizer>): compiles and links the target with it, with frames and lines for reports (more
# debug information than lines doubles the time).
function(peerless_sanitize target sanitizer)
  peerless_sanitizer_flags(${sanitizer} flags)
  # g++ finds "maybe uninitialized" in code that it instruments itself.
  target_compile_options(${target} PRIVATE ${flags} -O1 -g1 -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(${target} PRIVATE ${flags})
endfunction()

# peerless_sanitizer_usable(<sanitizer> <suffix> <usable> <reason> <launcher>): whether this compiler links it (checked
# once a build folder), else the reason. Runtimes of this age abort at random where the kernel randomises more than 28
# address bits: tests are then started without that, through the launcher.
function(peerless_sanitizer_usable sanitizer out_suffix out_usable out_reason out_launcher)
  set(suffix_thread tsan)
  set(suffix_address asan)
  set(suffix_undefined ubsan)
  peerless_sanitizer_flags(${sanitizer} flags)
  list(JOIN flags " " CMAKE_REQUIRED_FLAGS)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("int main() { return 0; }" PEERLESS_HAS_SANITIZER_${sanitizer})

  if(NOT DEFINED PEERLESS_SANITIZER_LAUNCHER)
    set(launcher "")
    set(bits 0)
    if(EXISTS /proc/sys/vm/mmap_rnd_bits)
      execute_process(COMMAND cat /proc/sys/vm/mmap_rnd_bits OUTPUT_VARIABLE bits OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_QUIET)
    endif()
    find_program(PEERLESS_SETARCH setarch)
    mark_as_advanced(PEERLESS_SETARCH)
    if(bits GREATER 28 AND PEERLESS_SETARCH)
      execute_process(COMMAND ${PEERLESS_SETARCH} -R true RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed)
        set(launcher ${PEERLESS_SETARCH} -R)
      endif()
    endif()
    set(PEERLESS_SANITIZER_LAUNCHER "${launcher}" CACHE INTERNAL "command that starts sanitized tests")
  endif()

  set(${out_suffix} ${suffix_${sanitizer}} PARENT_SCOPE)
  set(${out_usable} "${PEERLESS_HAS_SANITIZER_${sanitizer}}" PARENT_SCOPE)
  set(${out_reason} "${CMAKE_CXX_COMPILER_ID} cannot link -fsanitize=${sanitizer} here" PARENT_SCOPE)
  set(${out_launcher} "${PEERLESS_SANITIZER_LAUNCHER}" PARENT_SCOPE)
endfunction()
