"""DepthMixer: averages over depth with weights that may depend on the token, for several streams."""

import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._library import has_kernels
from .dwa import _describe, _is_compiling
from .pattern import Pattern, pattern_sources

_MIXERS = ("static", "dynamic", "attention", "attnres")
_STREAMS = ("r", "rv", "rqkv")


class Streams(NamedTuple):
    """What the next block reads: its residual stream, and the inputs of q, k and v."""

    r: Tensor
    q: Tensor
    k: Tensor
    v: Tensor


def rms(x: Tensor) -> Tensor:
    """``x / sqrt(mean(x^2) + 1e-6)`` over the last dimension, without a scale."""
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return (wide * scale).to(x.dtype)


def mix(sources: Sequence[Tensor], weights: Tensor) -> Tensor:
    """``y[c, t] = sum over k of weights[t, k, c] * sources[k][t]`` in one pass over the sources.

    ``sources`` are n tensors ``[..., D]``; ``weights`` is ``[..., n, C]``; the result ``[C, ..., D]``.
    Differentiable; fp32 and bf16 on the CPU with 1, 2 or 4 sums run a fused kernel.
    """
    if has_kernels and not _is_compiling():
        return torch.ops.denseformer.mix(list(sources), weights)
    if not sources:
        raise RuntimeError("denseformer::mix: no sources")
    if weights.shape[:-1] != (*sources[0].shape[:-1], len(sources)):
        raise RuntimeError(
            f"denseformer::mix: weights {list(weights.shape)} for {len(sources)} sources "
            f"{list(sources[0].shape)}, expected [..., sources, streams]"
        )
    weights = weights.to(sources[0].dtype)
    streams = []
    for c in range(weights.shape[-1]):
        total = sources[0] * weights[..., 0, c, None]
        for k in range(1, len(sources)):
            total = total + sources[k] * weights[..., k, c, None]
        streams.append(total)
    return torch.stack(streams)


class _Weights(nn.Module):
    """The scalars of one module, ``[C, n]``; not an ``nn.Linear`` (see ``DWAModules``)."""

    def __init__(self, streams: int, sources: int, newest: float):
        super().__init__()
        self.newest = newest
        self.weight = nn.Parameter(torch.empty(streams, sources))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.zero_()
            self.weight[:, -1:].fill_(self.newest)


class _Matrix(nn.Module):
    """A matrix ``[out, in]`` without bias, normal with the given deviation."""

    def __init__(self, rows: int, columns: int, deviation: float):
        super().__init__()
        self.deviation = deviation
        self.weight = nn.Parameter(torch.empty(rows, columns))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            if self.deviation == 0:
                self.weight.zero_()
            else:
                self.weight.normal_(0, self.deviation)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.to(x.dtype))


class _Scale(nn.Module):
    def __init__(self, streams: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(streams, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.fill_(1e-3)


class _Dynamic(nn.Module):
    def __init__(self, streams: int, sources: int, width: int, prepost: bool):
        super().__init__()
        count = streams * sources
        self.w1 = _Matrix(count, width, width**-0.5)
        self.w2 = _Matrix(count, count, 0)
        if prepost:
            self.post = _Scale(streams, width)

    def reset_parameters(self) -> None:
        for child in self.children():
            child.reset_parameters()  # type: ignore


class _Attention(nn.Module):
    def __init__(self, streams: int, width: int, gated: bool):
        super().__init__()
        self.query = nn.Parameter(torch.empty(streams, width))
        if gated:
            self.gate = nn.Parameter(torch.empty(streams))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()


def _version(x: Tensor) -> int:
    """Changes when a tensor is modified in place, where it is counted."""
    return 0 if _is_compiling() or x.is_inference() else x._version


class _Source(NamedTuple):
    """What modules read of one output, made once per pass."""

    term: Tensor  # what they sum: X_j, rms(X_j) or V_j = X_j - Y_{j-1}
    normalized: Tensor  # rms(V_j); the term itself where no scores are made of it
    version: int  # of the term


class _MixerPass:
    """One pass through the depth. Keeps tensors of the model as they are, so none may be modified in
    place before it has been read for the last time."""

    def __init__(self, mixer: "DepthMixer", x: Tensor):
        self._mixer = mixer
        self._first = x
        self._grad_enabled = torch.is_grad_enabled()
        self._sources = [mixer._source(0, x, x)]  # None where no module reads it
        self._residual = [(x, _version(x))]  # Y of the residual stream, for mixers of increments

    def _check(self, x: Tensor, block_idx: int) -> None:
        first, next_idx, n_blocks = self._first, len(self._sources) - 1, self._mixer.n_blocks
        if not 0 <= block_idx < n_blocks:
            raise RuntimeError(f"denseformer: block_idx {block_idx}, expected 0 to {n_blocks - 1}")
        if not self.finished() and block_idx != next_idx:
            raise RuntimeError(
                f"denseformer: block_idx {block_idx} out of order, expected {next_idx}"
            )
        if x.shape != first.shape or x.dtype != first.dtype or x.device != first.device:
            raise RuntimeError(
                f"denseformer: block_idx {block_idx} gave {_describe(x)}, but init_accumulators "
                f"was given {_describe(first)}"
            )
        if torch.is_grad_enabled() != self._grad_enabled:
            raise RuntimeError(
                f"denseformer: gradients were switched {'off' if self._grad_enabled else 'on'} "
                f"between init_accumulators and block_idx {block_idx}; a checkpoint around "
                "DepthMixer must be one with use_reentrant=False"
            )

    def next(self, x: Tensor, block_idx: int) -> List[Tensor]:
        """The streams after the next block; of a finished pass those after any block again, which
        an activation checkpoint recomputes."""
        self._check(x, block_idx)
        mixer, depth, again = self._mixer, block_idx + 1, self.finished()
        newest = mixer._source(depth, x, self._before(block_idx) if mixer.increments else x)
        streams = [x]
        if mixer.sources[depth]:
            older = [self._read(j, block_idx) for j in mixer.sources[depth][:-1]]
            streams = mixer._mix(depth, x, [*older, newest])  # type: ignore
        if not again:
            self._sources.append(newest)
            if mixer.increments:
                self._residual.append((streams[0], _version(streams[0])))
        return streams

    def _read(self, j: int, block_idx: int) -> _Source:
        source: _Source = self._sources[j]  # type: ignore
        if _version(source.term) != source.version:
            what = f"the output of block_idx {j - 1}" if j > 0 else "the embedding"
            raise RuntimeError(
                f"denseformer: {what} was modified in place before block_idx {block_idx} read it"
            )
        return source

    def _before(self, block_idx: int) -> Tensor:
        y, version = self._residual[block_idx]
        if _version(y) != version:
            raise RuntimeError(
                f"denseformer: the residual stream that block_idx {block_idx} was given was "
                f"modified in place; mixer {self._mixer.mixer!r} needs what the block added to it"
            )
        return y

    def finished(self) -> bool:
        return len(self._sources) == self._mixer.n_blocks + 1


class DepthMixer(nn.Module):
    """Averages over depth after the blocks of a Transformer, with any of the mixers of the engine.

    After block ``i`` (from 1; ``block_idx`` is ``i - 1``) a module gives, for each stream and
    token, ``Y = sum over j of a_j X_j``; ``X_0`` is the embedding.

    Args:
        n_blocks: blocks of the model.
        topology: which outputs a module reads: ``"1x1"``, ``"4x5"``, ``"last:4"``, ..., a mask, or
            for each block the list of outputs (the ``pattern`` of ``DWAModules``).
        mixer: ``"static"`` (one scalar per source, as ``DWAModules``), ``"dynamic"`` (the scalar
            plus a function of the newest output), ``"attention"`` (X_i plus a gate times a softmax
            over what the blocks added) or ``"attnres"`` (the softmax alone, which does not start as
            the model without it).
        streams: ``"r"`` (one average for all of the next block), ``"rv"`` (another one for v) or
            ``"rqkv"`` (for each of q, k and v). Give the streams of q, k and v norms of their own.
        width: of the model; not needed by ``"static"``.
        norm: ``"prepost"`` normalizes the sources and the sum of ``"dynamic"``.

    Used like ``DWAModules``: ``init_accumulators`` takes the embedding, ``forward`` the output of
    each block in turn. With ``"r"`` it returns a tensor, else ``Streams`` (r, q, k, v); streams that
    a module does not have are those of its residual stream. Names of the state dict are those of the
    engine: ``alphas.{block_idx}.weight``, ``mixers.{block_idx}.w1.weight``, ``.query``, ``.gate``.

    All devices and dtypes; on the CPU the sums of fp32 and bf16 run fused kernels.
    """

    def __init__(
        self,
        n_blocks: int,
        topology: Pattern = "1x1",
        mixer: str = "static",
        streams: str = "r",
        *,
        width: Optional[int] = None,
        norm: str = "none",
    ):
        super().__init__()
        for name, value, known in (
            ("mixer", mixer, _MIXERS),
            ("streams", streams, _STREAMS),
            ("norm", norm, ("none", "prepost")),
        ):
            if value not in known:
                raise ValueError(
                    f"denseformer: {name} is {value!r}, expected {', '.join(known[:-1])} or {known[-1]}"
                )
        if norm == "prepost" and mixer != "dynamic":
            raise ValueError(f"denseformer: norm 'prepost' goes with mixer 'dynamic', got {mixer!r}")
        if mixer != "static" and (width is None or width < 1):
            raise ValueError(f"denseformer: mixer {mixer!r} needs the width of the model, got {width}")
        self.n_blocks, self.mixer, self.streams, self.norm = n_blocks, mixer, streams, norm
        self.increments = mixer in ("attention", "attnres")
        self.sources = pattern_sources(n_blocks, topology)
        read = {j for row in self.sources for j in row}
        self._read = [j in read for j in range(n_blocks + 1)]
        alphas: List[Optional[nn.Module]] = []
        mixers: List[Optional[nn.Module]] = []
        for depth in range(1, n_blocks + 1):
            n, count = len(self.sources[depth]), self._stream_count(depth)
            alphas.append(None)
            mixers.append(None)
            if n == 0:
                continue
            if mixer in ("static", "dynamic"):
                alphas[-1] = _Weights(count, n, 0.0 if norm == "prepost" else 1.0)
            if mixer == "dynamic":
                mixers[-1] = _Dynamic(count, n, width or 0, norm == "prepost")
            elif mixer != "static":
                mixers[-1] = _Attention(count, width or 0, mixer == "attention")
        self.alphas = nn.ModuleList(alphas)  # type: ignore
        self.mixers = nn.ModuleList(mixers)  # type: ignore
        self._passes: Dict[int, _MixerPass] = {}

    def _stream_count(self, depth: int) -> int:
        return 1 if depth == self.n_blocks else len(self.streams)

    def has_module(self, block_idx: int) -> bool:
        """Whether an average follows that block."""
        return bool(self.sources[block_idx + 1])

    def reset_parameters(self) -> None:
        """The initial weights: those of the model without averages, but for ``attnres``."""
        for part in list(self.alphas) + list(self.mixers):
            if part is not None:
                part.reset_parameters()  # type: ignore

    def init_accumulators(self, x: Tensor) -> _MixerPass:
        """Begins a pass with the embedding ``x``; returns the pass."""
        self._passes[self._key()] = accumulators = _MixerPass(self, x)
        return accumulators

    def forward(
        self, x: Tensor, block_idx: int, accumulators: Optional[_MixerPass] = None
    ) -> Union[Tensor, Streams]:
        """What block ``block_idx + 1`` reads, from the output ``x`` of block ``block_idx``."""
        key = self._key()
        if accumulators is None:
            if key not in self._passes:
                raise RuntimeError(
                    f"denseformer: block_idx {block_idx} without a pass: call "
                    "init_accumulators(x) first, on the same thread"
                )
            accumulators = self._passes[key]
        y = accumulators.next(x, block_idx)
        if accumulators.finished() and self._passes.get(key) is accumulators:
            del self._passes[key]
        if self.streams == "r":
            return y[0]
        if len(y) == 4:
            return Streams(*y)
        return Streams(y[0], y[0], y[0], y[-1])

    @staticmethod
    def _key() -> int:
        return 0 if _is_compiling() else threading.get_ident()

    def _source(self, depth: int, x: Tensor, before: Tensor) -> Optional[_Source]:
        """What modules read of ``x``, X of that depth; ``before`` is Y of the depth before."""
        if not self._read[depth]:
            return None
        if self.increments:
            added = x if depth == 0 else x - before  # to the residual stream
            return _Source(added, rms(added), _version(added))
        term = rms(x) if self.norm == "prepost" else x
        return _Source(term, term, _version(term))

    def _mix(self, depth: int, x: Tensor, read: List[_Source]) -> List[Tensor]:
        """The streams of the module after ``x``, X of that depth."""
        own = self.mixers[depth - 1]
        terms = [source.term for source in read]
        if isinstance(own, _Attention):
            query = own.query.to(x.dtype)
            scores = [functional.linear(source.normalized, query) for source in read]
            weights = torch.stack(scores, -2).softmax(-2)  # [..., n, C]
            if self.mixer == "attnres":
                return list(mix(terms, weights))
            sums = mix(terms, weights * own.gate.to(weights.dtype))
            return [x + total for total in sums]
        b = self.alphas[depth - 1].weight  # type: ignore  # [C, n]
        if own is None:
            shape = (*x.shape[:-1], *b.t().shape)
            return list(mix(terms, b.t().to(x.dtype).expand(shape)))
        prepost = self.norm == "prepost"
        z = own.w2(functional.gelu(own.w1(terms[-1] if prepost else rms(x))))  # type: ignore
        weights = (z.reshape(*z.shape[:-1], *b.shape) + b.to(z.dtype)).transpose(-1, -2)
        sums = mix(terms, weights)
        if not prepost:
            return list(sums)
        post = own.post.weight  # type: ignore
        return [x + post[c].to(total.dtype) * rms(total) for c, total in enumerate(sums)]

    def extra_repr(self) -> str:
        averages = sum(1 for row in self.sources if row)
        return (
            f"n_blocks={self.n_blocks}, averages={averages}, mixer={self.mixer}, "
            f"streams={self.streams}"
        )

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state["_passes"] = {}
        return state
