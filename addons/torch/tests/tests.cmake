# C++ and Python tests, and the examples as tests.
if(DENSEFORMER_TESTS)
  add_executable(torch_addon_test tests/dwa_modules_test.cc)
  target_link_libraries(torch_addon_test PRIVATE denseformer_torch GTest::gtest GTest::gtest_main)
  target_compile_options(torch_addon_test PRIVATE -Wno-unused-parameter)
  add_test(NAME torch/cpp COMMAND torch_addon_test)

  add_executable(example_torch_gpt examples/gpt.cc)
  target_link_libraries(example_torch_gpt PRIVATE denseformer_torch)
  add_test(NAME examples/torch_gpt COMMAND example_torch_gpt)

  if(NOT DENSEFORMER_SANITIZE)
    add_test(NAME torch/install
      COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DCOMPILER=${CMAKE_CXX_COMPILER}
              -DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}/install
              -DCONSUMER=${CMAKE_CURRENT_SOURCE_DIR}/tests/consumer
              -P ${CMAKE_CURRENT_SOURCE_DIR}/tests/install_test.cmake)
    set_tests_properties(torch/install PROPERTIES TIMEOUT 600)
  endif()

  # The Python that has PyTorch: DENSEFORMER_PYTHON, or Debian's.
  set(df_interpreter /usr/bin/python3)
  if(DEFINED ENV{DENSEFORMER_PYTHON})
    set(df_interpreter $ENV{DENSEFORMER_PYTHON})
  endif()
  execute_process(COMMAND ${df_interpreter} -c "import torch" RESULT_VARIABLE df_no_torch
                  OUTPUT_QUIET ERROR_QUIET)
  if(df_no_torch STREQUAL "0")
    set(df_environment "PYTHONPATH=${df_python}" PYTHONDONTWRITEBYTECODE=1
                       "DENSEFORMER_PROGRAM=${CMAKE_BINARY_DIR}/denseformer")
    set(df_here ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME torch/dwa COMMAND ${df_interpreter} ${df_here}/tests/test_dwa.py -v)
    add_test(NAME torch/module COMMAND ${df_interpreter} ${df_here}/tests/test_module.py -v)
    add_test(NAME torch/mixer COMMAND ${df_interpreter} ${df_here}/tests/test_mixer.py -v)
    add_test(NAME torch/pattern COMMAND ${df_interpreter} ${df_here}/tests/test_pattern.py -v)
    add_test(NAME torch/export COMMAND ${df_interpreter} ${df_here}/tests/test_export.py -v)
    add_test(NAME examples/torch_gpt_python
             COMMAND ${df_interpreter} ${df_here}/examples/gpt.py --steps 20)
    # Needs the package `transformers`; without it there is nothing to convert.
    execute_process(COMMAND ${df_interpreter} -c "import transformers" RESULT_VARIABLE df_no_transformers
                    OUTPUT_QUIET ERROR_QUIET)
    if(df_no_transformers STREQUAL "0")
      add_test(NAME examples/torch_gpt2_huggingface
               COMMAND ${df_interpreter} ${df_here}/examples/gpt2_huggingface.py --period 2)
      set_tests_properties(examples/torch_gpt2_huggingface PROPERTIES
        ENVIRONMENT "${df_environment}" TIMEOUT 1200)
    else()
      message(STATUS "${df_interpreter} has no transformers: the example on GPT-2 is not tested")
    endif()
    set_tests_properties(torch/dwa torch/module torch/mixer torch/pattern torch/export
      examples/torch_gpt_python PROPERTIES ENVIRONMENT "${df_environment}" TIMEOUT 1200)
    # The package as it is without the compiled library.
    foreach(name dwa module mixer pattern)
      add_test(NAME torch/plain/${name} COMMAND ${df_interpreter} ${df_here}/tests/test_${name}.py -v)
      set_tests_properties(torch/plain/${name} PROPERTIES TIMEOUT 1200
        ENVIRONMENT "PYTHONPATH=${df_here}/python;PYTHONDONTWRITEBYTECODE=1")
    endforeach()
  else()
    message(STATUS "${df_interpreter} has no PyTorch: no Python tests of the add-on")
  endif()
endif()
