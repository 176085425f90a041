# Installs the build into a folder of its own, moves it, and builds and runs a small consumer against
# it: once with find_package, once with pkg-config.
#
#   cmake -DBUILD=dir -DSOURCE=dir -DSCRATCH=dir -DCOMPILER=g++ -P tests/install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/staged)
# A package that names the place where it was built or installed breaks here.
file(RENAME ${SCRATCH}/staged ${SCRATCH}/prefix)
set(prefix ${SCRATCH}/prefix)
file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.pc ${prefix}/*.h)
foreach(text IN LISTS texts)
  file(READ ${text} content)
  string(FIND "${content}" "${SOURCE}/" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${text} names ${SOURCE}")
  endif()
endforeach()

file(GLOB headers RELATIVE ${SOURCE}/include/denseformer ${SOURCE}/include/denseformer/*.h)
foreach(header IN LISTS headers)
  if(NOT EXISTS ${prefix}/include/denseformer/${header})
    message(FATAL_ERROR "denseformer/${header} is not installed")
  endif()
endforeach()

message(STATUS "find_package")
list(JOIN headers "\\;" header_list)
run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/tests/consumer -B ${SCRATCH}/consumer -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DHEADERS=${header_list})
run(${CMAKE_COMMAND} --build ${SCRATCH}/consumer)
run(${SCRATCH}/consumer/consumer)
message(STATUS "${output}")

message(STATUS "pkg-config")
file(GLOB_RECURSE pc ${prefix}/*/denseformer.pc)
get_filename_component(pc_dir ${pc} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pc_dir})
run(pkg-config --cflags --libs denseformer)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${COMPILER} -std=c++20 ${SOURCE}/tests/consumer/main.cc -o ${SCRATCH}/with_pkg_config ${flags})
run(${SCRATCH}/with_pkg_config)

if(EXISTS ${prefix}/bin/denseformer)
  message(STATUS "program")
  run(${prefix}/bin/denseformer --help)
endif()
file(REMOVE_RECURSE ${SCRATCH})
