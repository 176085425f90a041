"""Small models around any DWA module, for the tests."""

import torch
from torch import nn


def randomize(module):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return module


class Blocks(nn.Module):
    """A small model: `blocks` of tanh layers around any DWA module."""

    def __init__(self, dwa_modules, n_blocks, width=6):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(n_blocks)])
        self.dwa_modules = dwa_modules

    def forward(self, x):
        self.dwa_modules.init_accumulators(x)
        for i, block in enumerate(self.blocks):
            x = x + torch.tanh(block(x))
            x = self.dwa_modules(x, block_idx=i)
        return x


def run(model, x):
    """Output, gradient of the input, gradients of all parameters."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.float().pow(2).sum().backward()
    return y.detach(), x.grad, {n: p.grad for n, p in model.named_parameters()}
