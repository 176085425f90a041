"""Builds the operators with CMake against the PyTorch that is installed.

DENSEFORMER_PURE=1 leaves them out: everything then runs on plain operations.
"""

import os
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = "libdenseformer_torch.so"


def pure() -> bool:
    return os.environ.get("DENSEFORMER_PURE", "") not in ("", "0")


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not pure():
            self.build_operators(os.path.join(os.path.abspath(self.build_lib), "denseformer"))

    def build_operators(self, target: str) -> None:
        try:
            import torch
        except ImportError:
            sys.exit(
                "denseformer: PyTorch is not visible to the build: install it first and run "
                "pip install --no-build-isolation, or set DENSEFORMER_PURE=1 for plain operations"
            )
        build = os.path.join(os.path.abspath(self.build_lib), "..", "cmake-torch")
        package = os.path.dirname(os.path.abspath(torch.__file__))
        where = ["-DCMAKE_BUILD_TYPE=Release"]
        if os.path.isdir(os.path.join(package, "include")):
            where += [
                "-DDENSEFORMER_TORCH_PACKAGE=" + package,
                "-DDENSEFORMER_TORCH_VERSION=" + torch.__version__,
                "-DDENSEFORMER_TORCH_CXX11_ABI=%d" % torch._C._GLIBCXX_USE_CXX11_ABI,
            ]
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.check_call(["cmake", *generator, "-S", HERE, "-B", build, *where])
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        subprocess.check_call(["cmake", "--build", build, "-j", jobs])
        for name in (LIBRARY, "_build.py"):
            shutil.copy(os.path.join(build, "python", "denseformer", name), target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return not pure()


setup(cmdclass={"build_py": Build}, distclass=BinaryDistribution)
