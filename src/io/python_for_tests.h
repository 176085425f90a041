// For tests: runs a script of tests/python with the Python that has PyTorch.
#ifndef DENSEFORMER_IO_PYTHON_FOR_TESTS_H_
#define DENSEFORMER_IO_PYTHON_FOR_TESTS_H_

#include <cstdlib>
#include <string>

#include "base/source_directory.h"

namespace denseformer {

// DENSEFORMER_PYTHON, or Debian's.
inline std::string Python() {
  const char* given = std::getenv("DENSEFORMER_PYTHON");
  return given != nullptr ? given : "/usr/bin/python3";
}

inline bool HavePytorch() {
  static const bool have =
      std::system((Python() + " -c 'import numpy, torch' >/dev/null 2>&1").c_str()) == 0;
  return have;
}

// Runs tests/python/SCRIPT with arguments that need no quotes; whether it succeeded.
inline bool RunPython(const std::string& script, const std::string& arguments) {
  const std::string line =
      Python() + " " + SourceDirectory() + "/tests/python/" + script + " " + arguments;
  return std::system(line.c_str()) == 0;
}

}  // namespace denseformer

#endif  // DENSEFORMER_IO_PYTHON_FOR_TESTS_H_
