"""The DenseFormer of the paper in PyTorch, for comparisons of speed.

Written after the paper: pre-LN blocks without biases, rotary positions on adjacent pairs, GELU, tied head. The
depth-weighted averages come in two forms: `naive` loops over the past outputs; `stacked` keeps them in accumulators
that are filled in place and takes one tensordot per module, as the paper's package does.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def sources(i, dilation):
    """S_i = { j <= i : j = i mod K }."""
    return list(range(i % dilation, i + 1, dilation))


class SetSlice(torch.autograd.Function):
    """Writes x into accumulator[index] and gives back the filled part, which autograd then follows."""

    @staticmethod
    def forward(ctx, accumulator, filled, index, x):
        accumulator[index] = x
        ctx.index = index
        view = torch.empty(0, dtype=accumulator.dtype, device=accumulator.device)
        view.set_(accumulator[: index + 1])
        return view

    @staticmethod
    def backward(ctx, gradient):
        older = gradient[: ctx.index] if ctx.index > 0 else None
        return None, older, None, gradient[ctx.index]


class Averages(nn.Module):
    """All depth-weighted averages of a model; `form` is 'naive' or 'stacked'."""

    def __init__(self, depth, dilation, period, form):
        super().__init__()
        self.depth, self.dilation, self.period, self.form = depth, dilation, period, form
        self.alphas = nn.ParameterDict()
        for i in range(period, depth + 1, period):
            weight = torch.zeros(len(sources(i, dilation)))
            weight[-1] = 1.0
            self.alphas[str(i)] = nn.Parameter(weight)

    def start(self, x):
        if self.form == "naive":
            self.past = [x]
            return
        self.groups = []
        for residue in range(self.dilation):
            size = len(range(residue, self.depth + 1, self.dilation))
            self.groups.append([torch.zeros((size, *x.shape), dtype=x.dtype), None])
        self._add(0, x)

    def _add(self, i, x):
        group = self.groups[i % self.dilation]
        group[1] = SetSlice.apply(group[0], group[1], i // self.dilation, x)

    def forward(self, i, x):
        if self.form == "naive":
            self.past.append(x)
            if str(i) not in self.alphas:
                return x
            alpha = self.alphas[str(i)]
            return sum(alpha[n] * self.past[j] for n, j in enumerate(sources(i, self.dilation)))
        self._add(i, x)
        if str(i) not in self.alphas:
            return x
        return torch.tensordot(self.alphas[str(i)], self.groups[i % self.dilation][1], dims=1)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        # In fp32 as autocast does it elsewhere: an average under autocast is bf16, and PyTorch 1.13 on CPUs takes
        # no bf16 input beside an fp32 weight.
        return F.layer_norm(x.float(), self.weight.shape, self.weight, None, 1e-5)


def rotate(x, cosine, sine):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cosine - b * sine, b * cosine + a * sine), dim=-1).flatten(-2).type_as(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def attention(self, x, cosine, sine):
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(D, dim=2))
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(T, T, dtype=torch.bool).triu(1)
            y = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, D))

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.ln_1(x), cosine, sine)
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class DenseFormer(nn.Module):
    def __init__(self, depth, heads, width, vocabulary, length, dwa=None, form="stacked"):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.ln_f = Norm(width)
        self.averages = Averages(depth, *dwa, form) if dwa else None
        size = width // heads
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        T = tokens.shape[1]
        if self.averages:
            self.averages.start(x)
        for i, block in enumerate(self.blocks, 1):
            x = block(x, self.cosine[:T], self.sine[:T])
            if self.averages:
                x = self.averages(i, x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))
