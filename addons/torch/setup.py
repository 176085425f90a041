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


def progress():
    """Where people see the build, which takes minutes: pip shows its own output only in the end."""
    try:
        return open("/dev/tty", "w")
    except OSError:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w")


def run(command, out) -> None:
    try:
        subprocess.check_call(command, stdout=out, stderr=subprocess.STDOUT)
    except FileNotFoundError:
        sys.exit(f"denseformer: the build needs {command[0]}, which is not installed")


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
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        with progress() as out:
            print(f"denseformer: building the CPU kernels with {jobs} jobs", file=out, flush=True)
            run(["cmake", *generator, "-S", HERE, "-B", build, *where], out)
            run(["cmake", "--build", build, "-j", jobs], out)
        for name in (LIBRARY, "_build.py"):
            shutil.copy(os.path.join(build, "python", "denseformer", name), target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return not pure()


try:
    import setuptools.command.bdist_wheel  # noqa: F401, in setuptools since 70.1
except ImportError:
    try:
        import wheel  # noqa: F401
    except ImportError:
        sys.exit(
            "denseformer: this setuptools needs the package `wheel` to build: pip install wheel"
        )

setup(cmdclass={"build_py": Build}, distclass=BinaryDistribution)
