# Compares every #include of include/, src/, addons/, bench/, tests/ and examples/ with the layers of
# the project.
#
#   cmake -DROOT=. -P tests/include_rules.cmake
#
# The tables below are the rules; docs/architecture.md explains them.

cmake_minimum_required(VERSION 3.25)

# A folder may include itself, the folders named here, and whatever those may include.
set(MAY_base)
set(MAY_tensor base)
set(MAY_kernels tensor)
set(MAY_model kernels)
set(MAY_data base)
set(MAY_io model)
set(MAY_dist tensor)
set(MAY_train io data dist)
set(MAY_infer io data)
set(MAY_perf infer train chart)
set(MAY_chart base)
set(MAY_analysis perf chart)
set(MAY_serve infer)
set(MAY_sweep analysis train chart)
set(MAY_cluster train chart)
set(MAY_cli sweep analysis serve cluster)
set(MAY_addons kernels)
set(MAY_bench perf)
set(MAY_tests cli)
set(MAY_examples)  # public headers only
set(FOLDERS base tensor kernels model data io dist train infer perf chart analysis sweep cluster
  serve cli addons bench tests examples)

# Libraries with one user: header => files (as regular expressions) that may include it.
set(ONLY
  "^oneapi/|^dnnl" "^src/kernels/gemm"
  "^omp\\.h$"      "^src/base/parallel_openmp|^src/kernels/gemm"
  "^hwy/"          "^src/kernels/|^src/perf/memory_limit|^addons/"
  "^dlfcn\\.h$" "^src/analysis/spectra"
  "^mpi\\.h$"      "^src/dist/"
  "^CLI/"          "^src/cli/"
  "^boost/"        "^src/serve/"
  "^(torch|ATen|c10)/" "^addons/|^tests/|(_test|[/_]testing)\\.(cc|h)$"
  "^g(test|mock)/" "(_test|[/_]testing)\\.(cc|h)$")

set(FAILURES 0)
function(violation file text)
  message(NOTICE "${file}: ${text}")
  math(EXPR count "${FAILURES} + 1")
  set(FAILURES ${count} PARENT_SCOPE)
endfunction()

# The folders that `folder` may include, itself first.
function(closure folder result)
  set(all ${folder})
  foreach(next IN LISTS MAY_${folder})
    closure(${next} below)
    list(APPEND all ${below})
  endforeach()
  list(REMOVE_DUPLICATES all)
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# What is wrong with `#include <header>` or `#include "header"` in `file`, or "".
function(judge file folder quote header result)
  set(${result} "" PARENT_SCOPE)
  if(folder STREQUAL "include")
    if(quote STREQUAL "<" AND NOT header MATCHES "^[a-z_0-9]+$")
      set(${result} "a public header may include the standard library only, not <${header}>" PARENT_SCOPE)
    elseif(quote STREQUAL "\"" AND NOT EXISTS ${ROOT}/include/${header})
      set(${result} "a public header may include public headers only, not \"${header}\"" PARENT_SCOPE)
    endif()
    return()
  endif()
  set(rules ${ONLY})
  while(rules)
    list(POP_FRONT rules library users)
    if(header MATCHES "${library}" AND NOT file MATCHES "${users}")
      set(${result} "<${header}> may be included by ${users} only" PARENT_SCOPE)
      return()
    endif()
  endwhile()
  if(quote STREQUAL "<" OR header MATCHES "^hwy/" OR EXISTS ${ROOT}/include/${header})
    return()
  endif()
  # Outside of src/ a folder has headers of its own, named from the folder on or beside the file that
  # includes them.
  get_filename_component(here ${file} DIRECTORY)
  if(NOT file MATCHES "^src/" AND (EXISTS ${ROOT}/${here}/${header} OR EXISTS ${ROOT}/${folder}/${header}))
    return()
  endif()
  if(NOT EXISTS ${ROOT}/src/${header})
    set(${result} "no file src/${header} (name a header from src/ on)" PARENT_SCOPE)
    return()
  endif()
  string(REGEX REPLACE "/.*" "" target "${header}")
  closure(${folder} allowed)
  if(NOT target IN_LIST allowed)
    list(JOIN allowed ", " allowed)
    string(REGEX MATCH "^src/[^/]+|^[^/]+" from ${file})
    set(${result} "${from} may not include src/${target}, only ${allowed}" PARENT_SCOPE)
  endif()
endfunction()

get_filename_component(ROOT ${ROOT} ABSOLUTE)
file(GLOB_RECURSE files RELATIVE ${ROOT}
  ${ROOT}/include/*.h ${ROOT}/src/*.h ${ROOT}/src/*.cc ${ROOT}/addons/*.h ${ROOT}/addons/*.cc
  ${ROOT}/bench/*.h ${ROOT}/bench/*.cc ${ROOT}/tests/*.h ${ROOT}/tests/*.cc
  ${ROOT}/examples/*.h ${ROOT}/examples/*.cc)
set(includes 0)
foreach(file IN LISTS files)
  if(file MATCHES "^src/([^/]+)/")
    set(folder ${CMAKE_MATCH_1})
  else()
    string(REGEX REPLACE "/.*" "" folder ${file})
  endif()
  if(NOT folder STREQUAL "include" AND NOT folder IN_LIST FOLDERS)
    violation(${file} "the folder ${folder} is not in the table of tests/include_rules.cmake")
    continue()
  endif()
  file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "include[ \t]*([<\"])([^>\"]+)[>\"]")
      continue()
    endif()
    set(quote "${CMAKE_MATCH_1}")
    set(header "${CMAKE_MATCH_2}")
    math(EXPR includes "${includes} + 1")
    judge(${file} ${folder} "${quote}" "${header}" wrong)
    if(wrong)
      violation(${file} "${wrong}")
    endif()
  endforeach()
endforeach()
if(includes EQUAL 0)
  message(FATAL_ERROR "no #include found under ${ROOT}")
endif()
if(FAILURES GREATER 0)
  message(FATAL_ERROR "${FAILURES} of ${includes} includes break the rules")
endif()
message(STATUS "${includes} includes keep the rules")
