# Shows that include_rules.cmake finds each kind of violation, and passes a tree that keeps the rules.
#
#   cmake -DSCRATCH=dir -P tests/include_rules_test.cmake

cmake_minimum_required(VERSION 3.25)

# expect(RESULT FILE TEXT): a small tree with `TEXT` added in `FILE` gives `RESULT` (0, or a pattern
# of the complaint).
function(expect result file text)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/include/denseformer/model.h "#include <string>\n")
  file(WRITE ${SCRATCH}/src/base/error.h "#include \"denseformer/model.h\"\n")
  file(WRITE ${SCRATCH}/src/tensor/tensor.h "#include \"base/error.h\"\n")
  file(WRITE ${SCRATCH}/src/train/step.h "#include \"tensor/tensor.h\"\n")
  file(APPEND ${SCRATCH}/${file} "${text}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/include_rules.cmake
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result STREQUAL "0")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${file} with ${text}: expected no complaint, got ${output}")
    endif()
  elseif(status EQUAL 0 OR NOT output MATCHES "${result}")
    message(FATAL_ERROR "${file} with ${text}: expected a complaint like '${result}', got status ${status}: ${output}")
  endif()
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

expect(0 src/train/step.h "#include \"base/error.h\"")
expect(0 src/kernels/gemm/gemm.cc "#include <oneapi/dnnl/dnnl.hpp>")
expect(0 src/kernels/dwa/dwa.cc "#include \"hwy/highway.h\"")
expect(0 src/base/error_test.cc "#include <gtest/gtest.h>")
expect("src/base may not include src/tensor, only base" src/base/error.h "#include \"tensor/tensor.h\"")
expect("src/data may not include src/tensor, only data, base" src/data/corpus.cc " # include \"tensor/tensor.h\"")
expect("src/tensor may not include src/train" src/tensor/tensor.h "#include \"train/step.h\"")
expect("no file src/error.h" src/base/text.cc "#include \"error.h\"")
expect("may be included by" src/model/block.cc "#include <oneapi/dnnl/dnnl.hpp>")
expect("may be included by" src/model/block.cc "#include <dnnl.hpp>")
expect("may be included by" src/base/error.cc "#include <gtest/gtest.h>")
expect("may be included by" src/model/model.cc "#include <torch/torch.h>")
expect("standard library only" include/denseformer/model.h "#include <fmt/format.h>")
expect("standard library only" include/denseformer/model.h "#include <unistd.h>")
expect("public headers only" include/denseformer/model.h "#include \"base/error.h\"")
expect("not in the table" src/misc/x.cc "#include <string>")
