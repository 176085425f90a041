include(GoogleTest)

# Adds the sources of the current folder to the library.
function(df_sources)
  target_sources(denseformer PRIVATE ${ARGN})
endfunction()

# For code whose speed nobody notices, the tests and the command line: half of the time to compile.
function(df_compile_quickly target)
  target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
endfunction()

# What the sanitizers need to know about the libraries that this project uses. oneDNN's threads are
# OpenMP's, whose synchronization the thread sanitizer cannot see: there it gets one thread.
# Threads that wait must not spin: ctest runs more of them than there are cores.
set(DF_TEST_PROPERTIES ENVIRONMENT_MODIFICATION "OMP_WAIT_POLICY=set:passive")
if(DENSEFORMER_SANITIZE MATCHES "thread")
  set(DF_TEST_PROPERTIES
    ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp"
    ENVIRONMENT_MODIFICATION "OMP_THREAD_LIMIT=set:1")
elseif(DENSEFORMER_SANITIZE MATCHES "address")
  # A request for too much memory must fail as it does elsewhere.
  list(APPEND DF_TEST_PROPERTIES ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1")
endif()

# The sets of CPU features (DENSEFORMER_CPU, base/cpu.cc) below that of this CPU, which every test
# runs with anyway. Each is told by the first feature of the next one; the test itself skips what
# the CPU does not have.
set(DF_CPUS baseline)
# The sets above it that tests can emulate (kernels/emulation): those of a CPU with VNNI.
set(DF_EMULATED_CPUS)
foreach(step IN ITEMS avx512f:avx2 avx512_vnni:avx512-novnni avx512_bf16:avx512-nobf16 amx_int8:avx512)
  string(REPLACE ":" ";" step ${step})
  list(GET step 0 flag)
  list(GET step 1 cpu)
  file(STRINGS /proc/cpuinfo found_${flag} REGEX "^flags.* ${flag}( |$)" LIMIT_COUNT 1)
  if(found_${flag})
    list(PREPEND DF_CPUS ${cpu})
  endif()
endforeach()
if(found_avx512_vnni AND NOT found_avx512_bf16)
  list(APPEND DF_EMULATED_CPUS avx512)
endif()
if(found_avx512_vnni AND NOT found_amx_int8)
  list(APPEND DF_EMULATED_CPUS amx)
endif()

# Adds NAME@CPU: the tests of `filter` in the program with the CPU features of that name.
function(df_cpu_test NAME cpu filter)
  set(test ${NAME}@${cpu})
  add_test(NAME ${test} COMMAND ${NAME}_test --gtest_brief=1 --gtest_filter=${filter})
  set_tests_properties(${test} PROPERTIES
    TIMEOUT 1200 ${DF_TEST_PROPERTIES} SKIP_REGULAR_EXPRESSION "DENSEFORMER_CPU: got .* but this CPU has")
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT DENSEFORMER_CPU=${cpu} ${ARGN})
endfunction()

# df_test(NAME [KERNELS | ALL_CPUS] [THREADS] [EMULATED filter] [LIBS lib...] SOURCES file...)
# One test program per folder. With ALL_CPUS the whole program also runs once for each of DF_CPUS;
# KERNELS, whose memory accesses differ between them, also under the address sanitizer. EMULATED:
# the tests of a gtest filter also run once for each of DF_EMULATED_CPUS; each instruction that the
# CPU lacks takes microseconds. THREADS marks code with threads: only such tests are built for the
# thread sanitizer.
function(df_test NAME)
  cmake_parse_arguments(ARG "KERNELS;ALL_CPUS;THREADS" "EMULATED" "SOURCES;LIBS" ${ARGN})
  if(NOT DENSEFORMER_TESTS OR (DENSEFORMER_SANITIZE MATCHES "thread" AND NOT ARG_THREADS))
    return()
  endif()
  set(target ${NAME}_test)
  add_executable(${target} ${ARG_SOURCES})
  df_compile_quickly(${target})
  target_link_libraries(${target} PRIVATE denseformer_internal source_directory ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${NAME}/"
                       PROPERTIES TIMEOUT 600 ${DF_TEST_PROPERTIES})
  # The thread sanitizer looks at what threads share, which no CPU feature changes.
  if((ARG_KERNELS AND NOT DENSEFORMER_SANITIZE MATCHES "thread") OR (ARG_ALL_CPUS AND NOT DENSEFORMER_SANITIZE))
    foreach(cpu IN LISTS DF_CPUS)
      df_cpu_test(${NAME} ${cpu} *)
    endforeach()
    if(ARG_EMULATED AND TARGET cpu_emulation)
      target_link_libraries(${target} PRIVATE cpu_emulation)
      foreach(cpu IN LISTS DF_EMULATED_CPUS)
        df_cpu_test(${NAME} ${cpu} ${ARG_EMULATED} DENSEFORMER_EMULATE=1)
      endforeach()
    endif()
  endif()
endfunction()
