#!/usr/bin/env python3
"""Prints rates of PyTorch's OneCycleLR: shape, steps, warm-up, peak, start and end share, step, rate.

python3 src/train/testdata/one_cycle.py > src/train/testdata/one_cycle.tsv
"""
import torch

CASES = [
    # steps, warm-up, peak, start share, end share
    (10, 0.3, 1e-3, 0.01, 0.1),
    (37, 0.05, 1e-3, 0.01, 0.1),
    (100, 0.05, 1e-3, 0.01, 0.1),
    (1000, 0.05, 6e-4, 0.01, 0.1),
    (1234, 0.021, 3e-3, 0.04, 0.0001),
    (40000, 0.05, 1e-3, 0.01, 0.1),
    (15, 0.05, 1e-3, 0.01, 0.1),  # the warm-up is shorter than a step
]

print("# PyTorch", torch.__version__)
for shape in ("cos", "linear"):
    for steps, warmup, peak, start, end in CASES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=peak, total_steps=steps, pct_start=warmup, anneal_strategy=shape,
            cycle_momentum=False, div_factor=1 / start, final_div_factor=start / end)
        rates = []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if len(rates) < steps:
                scheduler.step()
        top = int(warmup * steps)
        wanted = {0, 1, 2, steps // 3, steps // 2, steps - 2, steps - 1}
        wanted |= {s for s in range(top - 2, top + 3) if 0 <= s < steps}
        for step in sorted(wanted):
            print(shape, steps, warmup, peak, start, end, step, repr(rates[step]), sep="\t")
