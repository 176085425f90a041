"""What the tests and the benchmark compare with: the two implementations that the paper describes,
written independently: a loop over a list of outputs, and in-place writes into preallocated accumulators."""

import torch
from torch import nn


def formula(sources, outputs, weights):
    """Y of one module: outputs X_0.., weights in the order of sources."""
    return sum(weights[k] * outputs[j] for k, j in enumerate(sources))


class NaiveDWA(nn.Module):
    """A list of all outputs, and a loop of multiply-adds over it."""

    def __init__(self, n_blocks, dilation=1, period=1):
        super().__init__()
        self.dilation, self.period = dilation, period
        self.alphas = nn.ParameterList()
        for i in range(1, n_blocks + 1):
            weights = torch.zeros(1 + i // dilation)
            weights[-1] = 1
            self.alphas.append(nn.Parameter(weights))

    def init_accumulators(self, x):
        self.outputs = [x]

    def forward(self, x, block_idx):
        self.outputs.append(x)
        i = block_idx + 1
        if i % self.period != 0:
            return x
        mine = self.outputs[i % self.dilation :: self.dilation]
        weights = self.alphas[block_idx]
        total = mine[0] * weights[0]
        for k in range(1, len(mine)):
            total = total + weights[k] * mine[k]
        return total


class _SetSlice(torch.autograd.Function):
    """Writes one output into the accumulator and gives back the filled part of it."""

    @staticmethod
    def forward(ctx, whole, filled, index, value):
        whole[index] = value
        ctx.index = index
        part = torch.Tensor().to(whole.device).to(whole.dtype)
        part.set_(whole[: index + 1])
        return part

    @staticmethod
    def backward(ctx, grad):
        before = grad[: ctx.index] if ctx.index > 0 else None
        return None, before, None, grad[ctx.index]


class AccumulatorDWA(nn.Module):
    """One preallocated accumulator for each residue of the dilation; averages by tensordot."""

    def __init__(self, n_blocks, dilation=1, period=1):
        super().__init__()
        self.n_blocks, self.dilation, self.period = n_blocks, dilation, period
        self.alphas = nn.ModuleList(
            [
                nn.Linear(1 + i // dilation, 1, bias=False) if i % period == 0 else None
                for i in range(1, n_blocks + 1)
            ]
        )
        for alpha in self.alphas:
            if alpha is not None:
                alpha.weight.data.zero_()
                alpha.weight.data[0, -1] = 1.0

    def init_accumulators(self, x):
        self.accumulators = []
        for group in range(self.dilation):
            size = len(range(group, self.n_blocks + 1, self.dilation))
            whole = torch.zeros((size, *x.shape), dtype=x.dtype, device=x.device)
            self.accumulators.append((whole, None))
        self._write(0, x)

    def _write(self, depth, x):
        group, index = depth % self.dilation, depth // self.dilation
        whole, filled = self.accumulators[group]
        self.accumulators[group] = (whole, _SetSlice.apply(whole, filled, index, x))

    def forward(self, x, block_idx):
        i = block_idx + 1
        self._write(i, x)
        if i % self.period != 0:
            return x
        weights = self.alphas[block_idx].weight.view(-1)
        return torch.tensordot(weights, self.accumulators[i % self.dilation][1], dims=1)
