"""Loads the compiled operators, which stand beside this file where they were built."""

import os

import torch

_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libdenseformer_torch.so")


def _release(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _load() -> bool:
    if not os.path.exists(_PATH):
        return False
    from ._build import TORCH_VERSION

    if _release(TORCH_VERSION) != _release(torch.__version__):
        raise ImportError(
            f"denseformer was built for PyTorch {TORCH_VERSION}, but PyTorch {torch.__version__} "
            "is running: install denseformer again with this Python"
        )
    torch.ops.load_library(_PATH)
    return True


has_kernels: bool = _load()
"""Whether the fused CPU kernels are there; without them everything runs on plain operations."""
