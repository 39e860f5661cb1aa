# Headers, exported core, and what recreates the other targets on the consumer's machine.
include(CMakePackageConfigHelpers)

set(peerless_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/peerless")
install(TARGETS peerless_core EXPORT peerlessTargets FILE_SET HEADERS)
install(EXPORT peerlessTargets NAMESPACE peerless:: DESTINATION "${peerless_config_dir}")
configure_package_config_file(cmake/peerlessConfig.cmake.in peerlessConfig.cmake
  INSTALL_DESTINATION "${peerless_config_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break what compiled with the last.
write_basic_package_version_file(peerlessConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/peerlessConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/peerlessConfigVersion.cmake"
  cmake/PeerlessCuda.cmake cmake/FindNCCL.cmake DESTINATION "${peerless_config_dir}")
