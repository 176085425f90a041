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

# The example of README.md, word for word: a program and two lines of CMake.
message(STATUS "README")
file(READ ${SOURCE}/README.md readme)
function(readme_block language result)
  string(FIND "${readme}" "\n## Using the library" section)
  string(SUBSTRING "${readme}" ${section} -1 rest)
  string(FIND "${rest}" "\n```${language}\n" begin)
  if(section EQUAL -1 OR begin EQUAL -1)
    message(FATAL_ERROR "README.md: no block of ${language} under 'Using the library'")
  endif()
  string(LENGTH "\n```${language}\n" fence)
  math(EXPR begin "${begin} + ${fence}")
  string(SUBSTRING "${rest}" ${begin} -1 rest)
  string(FIND "${rest}" "\n```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  set(${result} "${block}\n" PARENT_SCOPE)
endfunction()
readme_block(cpp program)
readme_block(cmake lines)
file(WRITE ${SCRATCH}/app/app.cc "${program}")
file(WRITE ${SCRATCH}/app/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(app LANGUAGES CXX)\nadd_executable(app app.cc)\n${lines}")
run(${CMAKE_COMMAND} -G Ninja -S ${SCRATCH}/app -B ${SCRATCH}/app/build -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/app/build)

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
