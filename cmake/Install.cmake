# Installs the library, its public headers, and what find_package(denseformer) and pkg-config read.
# The program installs itself in src/cli.
include(CMakePackageConfigHelpers)

install(TARGETS denseformer EXPORT denseformerTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/denseformer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

set(df_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/denseformer)
install(EXPORT denseformerTargets NAMESPACE denseformer:: DESTINATION ${df_package_dir})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/denseformerConfig.cmake.in
  ${CMAKE_BINARY_DIR}/denseformerConfig.cmake INSTALL_DESTINATION ${df_package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/denseformerConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/denseformerConfig.cmake
  ${CMAKE_BINARY_DIR}/denseformerConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/FindOneDnn.cmake
  ${CMAKE_SOURCE_DIR}/cmake/LinkDependencies.cmake
  DESTINATION ${df_package_dir})

# A static library needs its own libraries named at every link, a shared one knows them.
set(df_requires "fmt spdlog libhwy libzstd libxxhash zlib")
set(df_libs "-ldnnl -pthread")
if(DENSEFORMER_OPENMP)
  string(APPEND df_libs " ${OpenMP_CXX_FLAGS}")
endif()
if(DENSEFORMER_MPI)
  string(APPEND df_requires " ${MPI_MODULE_NAME}")
endif()
get_target_property(df_type denseformer TYPE)
if(df_type STREQUAL "STATIC_LIBRARY")
  set(df_pc "Requires: ${df_requires}\nLibs: -L\${libdir} -ldenseformer ${df_libs}")
else()
  set(df_pc "Requires.private: ${df_requires}\nLibs: -L\${libdir} -ldenseformer\nLibs.private: ${df_libs}")
endif()
# The prefix as seen from the file, so that the tree can be moved.
file(RELATIVE_PATH df_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/denseformer.pc.in ${CMAKE_BINARY_DIR}/denseformer.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/denseformer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
