# The warnings of our own binaries. Consumers never see them.
include_guard(GLOBAL)

set(PEERLESS_WARNING_FLAGS -Wall -Wextra -Wshadow -Wextra-semi -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align
  -Wformat=2 -Wundef -Wvla)

# peerless_warnings(<target>): -Wpedantic is left out, the host code that nvcc generates is not clean under it.
function(peerless_warnings target)
  set(cxx ${PEERLESS_WARNING_FLAGS})
  set(host -Wall -Wextra -Wshadow)
  set(cuda "")
  if(PEERLESS_WERROR)
    list(APPEND cxx -Werror)
    list(APPEND host -Werror)
    list(APPEND cuda "SHELL:-Werror all-warnings")
  endif()
  list(JOIN host "," host)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:${cxx}>"
    "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:${cuda};-Xcompiler=${host}>")
endfunction()
