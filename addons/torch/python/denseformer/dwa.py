"""DWAModules: the depth-weighted averages of all blocks of a Transformer."""

import threading
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor, nn

from ._library import has_kernels
from .pattern import Pattern, Sources, dilated_sources, pattern_sources


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    if compiler is not None and hasattr(compiler, "is_compiling"):
        return bool(compiler.is_compiling())
    return False


def dwa(sources: Sequence[Tensor], alphas: Tensor) -> Tensor:
    """``sum(alpha * x for alpha, x in zip(alphas, sources))`` in one pass.

    ``sources`` have one shape, dtype and device; ``alphas`` has as many elements as there are
    sources. Differentiable; fp32 and bf16 on the CPU run a fused kernel.
    """
    if has_kernels:
        return torch.ops.denseformer.dwa(list(sources), alphas)
    return _weighted_sum(list(sources), alphas.reshape(-1))


def _weighted_sum(sources: List[Tensor], weights: Tensor) -> Tensor:
    weights = weights.to(sources[0].dtype)
    total = sources[0] * weights[0]
    for k in range(1, len(sources)):
        total = total + sources[k] * weights[k]
    return total


def _describe(x: Tensor) -> str:
    return f"{x.dtype} {list(x.shape)} on {x.device}"


class _PlainPass:
    """One pass on plain operations: what torch.compile traces, or without the library."""

    def __init__(self, sources: Sources, x: Tensor, weights: Tensor):
        self._sources = sources
        self._weights = weights
        self._outputs = [x]
        self._done = False

    def next(self, x: Tensor, block_idx: int) -> Tensor:
        first, depth, depths = self._outputs[0], block_idx + 1, len(self._sources)
        if not 1 <= depth < depths:
            raise RuntimeError(
                f"denseformer: block_idx {block_idx}, expected 0 to {depths - 2}"
            )
        if not self._done and depth != len(self._outputs):
            raise RuntimeError(
                f"denseformer: block_idx {block_idx} out of order, "
                f"expected {len(self._outputs) - 1}"
            )
        if x.shape != first.shape or x.dtype != first.dtype or x.device != first.device:
            raise RuntimeError(
                f"denseformer: block_idx {block_idx} gave {_describe(x)}, but init_accumulators "
                f"was given {_describe(first)}"
            )
        if not self._done:
            self._outputs.append(x)
            self._done = len(self._outputs) == depths
        row = self._sources[depth]
        if not row:
            return x
        begin = sum(len(r) for r in self._sources[:depth])
        terms = [x if j == depth else self._outputs[j] for j in row]
        return _weighted_sum(terms, self._weights[begin : begin + len(row)])

    def finished(self) -> bool:
        return self._done


Accumulators = Any
"""What ``DWAModules.init_accumulators`` returns: one pass through the depth."""


class _Alpha(nn.Module):
    """The weights of one module, ``[1, n]``.

    Not an ``nn.Linear``, so that initializers of every ``nn.Linear`` of a model pass it by.

    Frameworks build models without memory (the meta device) and put uninitialized memory in its
    place for what no checkpoint holds: ``to_empty``, and Hugging Face's ``from_pretrained``. Weights
    that get memory this way become the identity here.
    """

    def __init__(self, n: int):
        super().__init__()
        self._loading = False
        self.weight = nn.Parameter(torch.empty(1, n))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.zero_()
            self.weight[:, -1:].fill_(1.0)

    def __setattr__(self, name: str, value: Any) -> None:
        before = self._parameters.get("weight") if "_parameters" in self.__dict__ else None
        super().__setattr__(name, value)
        if name != "weight" or before is None or self._loading:
            return
        # Hugging Face marks what comes from the checkpoint.
        loaded = getattr(value, "_is_hf_initialized", False)
        if before.is_meta and not self.weight.is_meta and not loaded:
            self.reset_parameters()

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> "_Alpha":
        before = self.weight.detach()
        self._loading = True  # what `fn` gives is judged below, once
        try:
            super()._apply(fn, *args, **kwargs)
        finally:
            self._loading = False
        now = self.weight.detach()
        if now.is_meta:
            return self
        # A move or a change of dtype keeps the values; to_empty does not.
        if before.is_meta or not torch.allclose(
            before.to(now.device, now.dtype), now, rtol=0, atol=0, equal_nan=True
        ):
            self.reset_parameters()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._loading = True
        try:
            super()._load_from_state_dict(*args, **kwargs)
        finally:
            self._loading = False

    def extra_repr(self) -> str:
        return f"sources={self.weight.shape[1]}"


class DWAModules(nn.Module):
    """Depth-weighted averages after the blocks of a Transformer.

    After block ``i`` (from 1; ``block_idx`` is ``i - 1``) the average of the outputs so far,
    ``Y_i = sum_j alpha_ij X_j``, takes the place of ``X_i``; ``X_0`` is the embedding. At first
    ``alpha_ii = 1`` and all others are 0, so that the model computes what it did before.

    Args:
        n_blocks: blocks of the model.
        dilation: the average reads every ``dilation``-th output, from the newest back.
        period: there is an average after every ``period``-th block.
        pattern: instead of dilation and period: ``"4x5"``, ``"last:4"``, ``"final"``,
            ``"grouped:2x4"``, a mask (``"mask:11/101"``, or the path of a mask file), or for each
            block the list of outputs that its average reads.

    The weights are ``alphas[block_idx].weight`` of shape ``[1, n]``, oldest source first;
    ``alphas[block_idx]`` is ``None`` where there is no average.

    Dense fp32 and bf16 tensors on the CPU run fused kernels on the model's own tensors: the
    outputs must not be modified in place while the pass needs them (an error says so). Everything
    else, and ``torch.compile``, runs on plain operations.

    A pass belongs to the thread that began it and leaves nothing on the module when the last block
    is done. Where several passes interleave on one thread, and inside an activation checkpoint,
    hand over what ``init_accumulators`` returned.
    """

    def __init__(
        self,
        n_blocks: int,
        dilation: int = 1,
        period: int = 1,
        *,
        pattern: Optional[Pattern] = None,
    ):
        super().__init__()
        self.n_blocks = n_blocks
        self.dilation = dilation
        self.period = period
        self.sources = pattern_sources(
            n_blocks, dilated_sources(n_blocks, dilation, period) if pattern is None else pattern
        )
        self.alphas = nn.ModuleList(
            [_Alpha(len(row)) if row else None for row in self.sources[1:]]  # type: ignore
        )
        self._passes: Dict[int, Accumulators] = {}
        self._checked = False

    def reset_parameters(self) -> None:
        """Sets every average back to the newest output alone."""
        for alpha in self.alphas:
            if alpha is not None:
                alpha.reset_parameters()

    def _check_once(self) -> None:
        """Before the first pass: weights that no initializer has reached are rarely numbers."""
        if self._checked:
            return
        for i, alpha in enumerate(self.alphas):
            if alpha is None:
                continue
            weight = alpha.weight.detach()
            if weight.is_meta or not bool(torch.isfinite(weight).all()) or not bool(weight.any()):
                raise RuntimeError(
                    f"denseformer: the weights of the average after block {i + 1} are not "
                    "initialized: call reset_parameters() on DWAModules, or load them, first"
                )
        self._checked = True

    def init_accumulators(self, x: Tensor) -> Accumulators:
        """Begins a pass with the embedding ``x``; returns the pass."""
        if not _is_compiling():
            self._check_once()
        rows = [alpha.weight.view(-1) for alpha in self.alphas if alpha is not None]
        weights = torch.cat(rows) if rows else x.new_empty(0)
        if _is_compiling():
            self._passes[0] = accumulators = _PlainPass(self.sources, x, weights)
            return accumulators
        if has_kernels:
            accumulators = torch.classes.denseformer.DepthPass(self.sources, x, weights)
        else:
            accumulators = _PlainPass(self.sources, x, weights)
        self._passes[threading.get_ident()] = accumulators
        return accumulators

    def forward(
        self, x: Tensor, block_idx: int, accumulators: Optional[Accumulators] = None
    ) -> Tensor:
        """What block ``block_idx + 1`` reads, from the output ``x`` of block ``block_idx``."""
        key = 0 if _is_compiling() else threading.get_ident()
        if accumulators is None:
            if key not in self._passes:
                raise RuntimeError(
                    f"denseformer: block_idx {block_idx} without a pass: call "
                    "init_accumulators(x) first, on the same thread (inside an activation "
                    "checkpoint hand its result over as `accumulators`)"
                )
            accumulators = self._passes[key]
        y = accumulators.next(x, block_idx)
        if accumulators.finished() and self._passes.get(key) is accumulators:
            del self._passes[key]
        return y

    def extra_repr(self) -> str:
        averages = sum(1 for row in self.sources if row)
        return f"n_blocks={self.n_blocks}, averages={averages}"

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state["_passes"] = {}
        state["_checked"] = False
        return state
