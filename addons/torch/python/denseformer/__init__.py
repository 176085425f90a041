"""Depth-weighted averages (DWA): any PyTorch Transformer becomes a DenseFormer in three steps.

    self.dwa_modules = DWAModules(n_blocks, dilation=4, period=5)   # step 1: construct
    ...
    self.dwa_modules.init_accumulators(x)                           # step 2: the embedding
    for i, block in enumerate(self.blocks):
        x = block(x)
        x = self.dwa_modules(x, block_idx=i)                        # step 3: after each block
"""

from ._library import has_kernels
from .dwa import Accumulators, DWAModules, dwa
from .export import export_run
from .mixer import DepthMixer, Streams, mix


__all__ = [
    "Accumulators",
    "DWAModules",
    "DepthMixer",
    "Streams",
    "dwa",
    "export_run",
    "has_kernels",
    "mix",
]
