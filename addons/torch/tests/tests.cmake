# C++ and Python tests, and the examples as tests.
if(DENSEFORMER_TESTS)
  add_executable(torch_addon_test tests/dwa_modules_test.cc)
  target_link_libraries(torch_addon_test PRIVATE denseformer_torch GTest::gtest GTest::gtest_main)
  target_compile_options(torch_addon_test PRIVATE -Wno-unused-parameter)
  add_test(NAME torch/cpp COMMAND torch_addon_test)

  add_executable(example_torch_gpt examples/gpt.cc)
  target_link_libraries(example_torch_gpt PRIVATE denseformer_torch)
  add_test(NAME examples/torch_gpt COMMAND example_torch_gpt)

  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import torch; print(torch.__version__)"
                    RESULT_VARIABLE df_no_torch OUTPUT_QUIET ERROR_QUIET)
    if(df_no_torch EQUAL 0)
      add_test(NAME torch/python
               COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/test_dwa.py -v)
      add_test(NAME examples/torch_gpt_python
               COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/examples/gpt.py --steps 20)
      add_test(NAME torch/export
               COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/test_export.py -v)
      set_tests_properties(torch/export PROPERTIES ENVIRONMENT
        "DENSEFORMER_PROGRAM=${CMAKE_BINARY_DIR}/denseformer;PYTHONPATH=${df_python};PYTHONDONTWRITEBYTECODE=1"
        TIMEOUT 600)
      set_tests_properties(torch/python examples/torch_gpt_python PROPERTIES
        ENVIRONMENT "PYTHONPATH=${df_python};PYTHONDONTWRITEBYTECODE=1" TIMEOUT 1200)
    else()
      message(STATUS "python3-torch not found: no Python tests of the add-on")
    endif()
  endif()
endif()
