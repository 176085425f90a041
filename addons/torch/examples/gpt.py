"""A small GPT turned into a DenseFormer: three changed lines, marked "step".

    python3 gpt.py [--steps N] [--dwa 2x1] [--text FILE] [--export DIRECTORY]

Trains on the bytes of a text. With --export it writes DIRECTORY/run for the program `denseformer`
and DIRECTORY/val.bin, and prints the loss on it, which
`denseformer eval DIRECTORY/run --data DIRECTORY/val.bin --precision fp32` gives too.
"""

import argparse
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional

from denseformer import DWAModules, export_run

WIDTH, HEADS, BLOCKS, LENGTH, VOCABULARY = 32, 4, 6, 32, 256


def norm():
    layer = nn.LayerNorm(WIDTH)
    layer.bias = None
    return layer


class Rotary(nn.Module):
    """Rotates adjacent pairs (2m, 2m + 1) at position t by t * 10000^(-2m / head size)."""

    def forward(self, x):
        length, size = x.shape[-2:]
        rate = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rotary = Rotary()

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=-1)
        )
        scores = self.rotary(q) @ self.rotary(k).transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = norm(), Attention(), norm(), Mlp()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class DenseFormer(nn.Module):
    def __init__(self, pattern):
        super().__init__()
        self.dwa_modules = DWAModules(BLOCKS, pattern=pattern)  # step 1: construct
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "h": nn.ModuleList([Block() for _ in range(BLOCKS)]),
                "ln_f": norm(),
            }
        )
        nn.init.normal_(self.transformer.wte.weight, std=0.02)

    def forward(self, ids):
        x = self.transformer.wte(ids)
        self.dwa_modules.init_accumulators(x)  # step 2: hand over the embedding
        for i, block in enumerate(self.transformer.h):
            x = block(x)
            x = self.dwa_modules(x, block_idx=i)  # step 3: after each block
        return self.transformer.ln_f(x) @ self.transformer.wte.weight.t()


def loss_of(model, windows):
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def export(model, data, pattern, directory):
    os.makedirs(directory, exist_ok=True)
    export_run(
        model, os.path.join(directory, "run"), n_head=HEADS, seq_len=LENGTH, dwa=pattern
    )
    count = (len(data) - 1) // LENGTH * LENGTH + 1  # whole windows
    data[:count].numpy().astype("<u2").tofile(os.path.join(directory, "val.bin"))
    windows = data[:count].unfold(0, LENGTH + 1, LENGTH)
    with torch.no_grad():
        print(f"exported loss {loss_of(model, windows).item():.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dwa", default="2x1", help="pattern of the averages")
    parser.add_argument("--text", help="a text file; default: this program")
    parser.add_argument("--export", help="directory for the run and its data")
    options = parser.parse_args()
    torch.manual_seed(1)
    with open(options.text or os.path.abspath(__file__), "rb") as file:
        data = torch.tensor(list(file.read()))
    model = DenseFormer(options.dwa)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(options.steps + 1):
        starts = torch.randint(len(data) - LENGTH - 1, (8,))
        loss = loss_of(model, torch.stack([data[s : s + LENGTH + 1] for s in starts]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", file=sys.stderr)
    if options.export:
        export(model, data, options.dwa, options.export)


if __name__ == "__main__":
    main()
