# Compiler flags of every target of this project.
add_compile_options(-Wall -Wextra -Wno-unused-parameter)
# GCC 12 warns falsely about std::string::insert and replace.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-restrict)
endif()
if(DENSEFORMER_WERROR)
  add_compile_options(-Werror)
endif()
if(DENSEFORMER_SANITIZE)
  add_compile_options(-fsanitize=${DENSEFORMER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # A third of the time to compile, for what the address sanitizer finds as well.
  add_compile_options(-fno-sanitize=null,vptr)
  add_link_options(-fsanitize=${DENSEFORMER_SANITIZE})
  # Instrumented code confuses GCC's flow analysis; the release build has this warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()
# Sanitized kernels without optimization are a hundred times slower; -O1 keeps the reports readable.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# The same sum in the same order everywhere: no contraction that depends on the target's FMA outside
# of explicit intrinsics.
add_compile_options(-ffp-contract=off)
