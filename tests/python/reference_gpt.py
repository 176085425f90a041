"""A small reference of the models in plain PyTorch, with the parameter names of the DenseFormer
authors' script and of their Python package.

reference_gpt.py DIRECTORY writes, for each of CASES, DIRECTORY/NAME/ckpt.pt and summary.json as
the script does, and expected.json: the tokens, the logits, and every parameter.
"""
import json
import math
import os
import sys

import torch
from torch import nn

VOCAB, WIDTH, HEADS, LENGTH = 48, 16, 2, 12

# name -> (model, blocks, K, P)
CASES = {
    "base": ("base", 3, 1, 1),
    "gains": ("basewgains", 3, 1, 1),
    "dense-1x1": ("denseformer", 4, 1, 1),
    "dense-2x3": ("denseformer", 6, 2, 3),
    "last": ("connecttolast", 4, 1, 1),
    "last-2": ("connecttolast", 6, 1, 2),
    "package-2x2": ("package", 5, 2, 2),
}


def rotate(x):
    """Rotary positions on [batch, heads, time, size]: pairs (2m, 2m + 1) turn by t 10000^(-2m/size)."""
    time, size = x.shape[-2], x.shape[-1]
    rate = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(time, dtype=torch.float64)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(WIDTH))

    def forward(self, x):
        return nn.functional.layer_norm(x, (WIDTH,), self.weight, None, 1e-5)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH))[None, None])

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = (part.view(batch, time, HEADS, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(WIDTH, dim=2))
        scores = rotate(q) @ rotate(k).transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(self.bias[:, :, :time, :time] == 0, float("-inf"))
        y = scores.softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, gains):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = Norm(), Attention(), Norm(), Mlp()
        self.gains = gains
        if gains:
            self.gain_attn = nn.Parameter(1 + 0.1 * torch.randn(1))
            self.gain_mlp = nn.Parameter(1 + 0.1 * torch.randn(1))

    def forward(self, x):
        x = (self.gain_attn * x if self.gains else x) + self.attn(self.ln_1(x))
        return (self.gain_mlp * x if self.gains else x) + self.mlp(self.ln_2(x))


class Weights(nn.Module):
    """The weights of one average: [1, n]."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(1, n))
        with torch.no_grad():
            self.weight[0, -1] += 1


class Holder(nn.Module):
    pass


class Gpt(nn.Module):
    def __init__(self, model, blocks, dilation, period):
        super().__init__()
        self.model, self.blocks, self.dilation, self.period = model, blocks, dilation, period
        made = [Block(model == "basewgains") for _ in range(blocks)]
        self.in_order = [made]  # hidden from nn.Module, which would name them twice
        nested = model in ("denseformer", "connecttolast")
        groups = [nn.ModuleList(made[i:i + period]) for i in range(0, blocks, period)]
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(VOCAB, WIDTH), wpe=Holder(),
            h=nn.ModuleList(groups if nested else made), ln_f=Norm()))
        self.transformer.wpe.register_buffer("freqs", torch.ones(4))
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        if model == "denseformer":
            self.weights = nn.ModuleList(
                Weights(len(self.sources((r + 1) * period))) for r in range(blocks // period))
        elif model == "connecttolast":
            self.mixer = Holder()
            self.mixer.weight = nn.ParameterList(
                nn.Parameter(0.3 * torch.randn(1)) for _ in self.sources(blocks))
        elif model == "package":
            self.dwa_modules = Holder()
            self.dwa_modules.alphas = nn.ModuleList(
                Weights(len(self.sources(i))) if self.sources(i) else None
                for i in range(1, blocks + 1))

    def sources(self, i):
        """S_i, oldest first; empty where there is no average after block i."""
        k, p = self.dilation, self.period
        if self.model == "denseformer" and i % p == 0:
            return [q * p for q in range(i // p + 1) if (i // p - q) % k == 0]
        if self.model == "package" and i % p == 0:
            return [j for j in range(i + 1) if (i - j) % k == 0]
        if self.model == "connecttolast" and i == self.blocks:
            return list(range(0, i + 1, p))
        return []

    def alphas(self, i):
        if self.model == "denseformer":
            return self.weights[i // self.period - 1].weight[0]
        if self.model == "package":
            return self.dwa_modules.alphas[i - 1].weight[0]
        return torch.cat(list(self.mixer.weight))

    def forward(self, tokens):
        y = self.transformer.wte(tokens)
        outputs = [y]
        for i, block in enumerate(self.in_order[0], start=1):
            y = block(y)
            outputs.append(y)
            if self.sources(i):
                y = sum(a * outputs[j] for a, j in zip(self.alphas(i), self.sources(i)))
        return self.lm_head(self.transformer.ln_f(y))


def write_case(directory, name):
    model_name, blocks, dilation, period = CASES[name]
    model = Gpt(model_name, blocks, dilation, period)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, total_steps=10, pct_start=0.05, cycle_momentum=False)
    tokens = torch.randint(0, VOCAB, (2, LENGTH))
    model(tokens).square().mean().backward()
    optimizer.step()
    scheduler.step()
    os.makedirs(f"{directory}/{name}")
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(),
                    scheduler=scheduler.state_dict(), itr=1), f"{directory}/{name}/ckpt.pt")
    args = dict(n_layer=blocks, n_head=HEADS, n_embd=WIDTH, vocab_size=VOCAB,
                sequence_length=LENGTH, lr=1e-3, dataset="none")
    if model_name != "package":
        args.update(model=model_name, increase_T_every=period, dilation_factor=dilation)
    with open(f"{directory}/{name}/summary.json", "w") as file:
        json.dump(dict(args=args, train_loss=1.0), file)
    with torch.no_grad():
        expected = dict(tokens=tokens.view(-1).tolist(), logits=model(tokens).view(-1).tolist(),
                        parameters={key: value.view(-1).tolist()
                                    for key, value in model.state_dict().items()})
    with open(f"{directory}/{name}/expected.json", "w") as file:
        json.dump(expected, file)


if __name__ == "__main__":
    torch.manual_seed(5)
    for case in CASES:
        write_case(sys.argv[1], case)
