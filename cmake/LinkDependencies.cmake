# The libraries that a program with libdenseformer.a has to be linked with: used by the build, and
# installed for find_package(denseformer). DF_REQUIRED is REQUIRED or QUIET; DF_OPENMP says whether
# the library was built on OpenMP, DF_MPI the same of MPI (which the build does without if it is missing). What is only included, never linked, stands in Dependencies.cmake.
find_package(Threads ${DF_REQUIRED})
find_package(fmt ${DF_REQUIRED})
find_package(spdlog ${DF_REQUIRED})
find_package(ZLIB ${DF_REQUIRED})
find_package(OneDnn ${DF_REQUIRED})
if(DF_OPENMP)
  find_package(OpenMP ${DF_REQUIRED} COMPONENTS CXX)
endif()
find_package(PkgConfig ${DF_REQUIRED})
pkg_check_modules(HWY ${DF_REQUIRED} IMPORTED_TARGET libhwy)
pkg_check_modules(ZSTD ${DF_REQUIRED} IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH ${DF_REQUIRED} IMPORTED_TARGET libxxhash)
if(DF_MPI)
  # Debian's name for whichever MPI is the machine's choice, then the libraries' own.
  pkg_search_module(MPI QUIET IMPORTED_TARGET mpi-c ompi-c mpich)
endif()
