include(GoogleTest)

# Adds the sources of the current folder to the library.
function(df_sources)
  target_sources(denseformer PRIVATE ${ARGN})
endfunction()

# df_test(NAME [ALL_CPUS] [LIBS lib...] SOURCES file...)
# One test program a folder. With ALL_CPUS the whole program also runs once for each lower level of
# the CPU that the dispatcher knows (DENSEFORMER_CPU).
function(df_test NAME)
  if(NOT DENSEFORMER_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ALL_CPUS" "" "SOURCES;LIBS" ${ARGN})
  set(target ${NAME}_test)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE denseformer_internal ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE DENSEFORMER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${NAME}/"
                       PROPERTIES TIMEOUT 600)
  if(ARG_ALL_CPUS)
    foreach(level avx512 avx2 baseline)
      add_test(NAME ${NAME}@${level} COMMAND ${target} --gtest_brief=1)
      set_tests_properties(${NAME}@${level} PROPERTIES ENVIRONMENT DENSEFORMER_CPU=${level} TIMEOUT 1200)
    endforeach()
  endif()
endfunction()
