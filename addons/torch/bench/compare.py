"""Forward and backward of the averages alone, against the paper's two implementations.

    python3 compare.py [--blocks 12 24 48] [--patterns 1x1 4x1 4x5] [--rows 256] [--rounds 5] [--threads 2] [--json]

The blocks do nothing (x * 1), so that the time is that of the averages. The implementations run in
turn in one process; the table shows ratios of medians and of minima to the faster of the paper's.
--memory measures the peak of each implementation in a process of its own instead.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))

from denseformer import DWAModules
from reference import AccumulatorDWA, NaiveDWA

IMPLEMENTATIONS = {"naive loop": NaiveDWA, "accumulators": AccumulatorDWA, "denseformer": DWAModules}


def make(name, blocks, pattern, dtype):
    dilation, period = (int(part) for part in pattern.split("x"))
    torch.manual_seed(0)
    module = IMPLEMENTATIONS[name](blocks, dilation, period)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(std=0.2)
    return module.to(dtype)


def step(module, blocks, x, backward):
    with torch.set_grad_enabled(backward):
        y = x * 1
        module.init_accumulators(y)
        for i in range(blocks):
            y = module(y * 1, i)
    if backward:
        module.zero_grad()
        y.backward(x.detach())
    module.outputs = module.accumulators = None  # what the paper's leave behind


def timed(modules, blocks, x, rounds, backward):
    times = {name: [] for name in modules}
    for n in range(rounds + 1):
        for name, module in modules.items():
            start = time.perf_counter()
            step(module, blocks, x, backward)
            if n > 0:
                times[name].append(time.perf_counter() - start)
    return times


def median(values):
    return sorted(values)[len(values) // 2]


def compare(options):
    dtype = getattr(torch, options.dtype)
    results = []
    for blocks in options.blocks:
        for pattern in options.patterns:
            modules = {name: make(name, blocks, pattern, dtype) for name in IMPLEMENTATIONS}
            x = torch.randn(options.rows, options.width).to(dtype).requires_grad_()
            for what, backward in [("forward", False), ("forward+backward", True)]:
                times = timed(modules, blocks, x, options.rounds, backward)
                best = min(("naive loop", "accumulators"), key=lambda name: median(times[name]))
                row = {"name": f"{blocks} {pattern} {what}", "paper": best}
                row["ratio_of_medians"] = median(times["denseformer"]) / median(times[best])
                row["ratio_of_minima"] = min(times["denseformer"]) / min(times[best])
                row["median_seconds"] = {name: median(times[name]) for name in times}
                results.append(row)
                if not options.json:
                    print(
                        f"{blocks:3} {pattern:5} {what:17} "
                        + " ".join(f"{name} {1e3 * t:8.1f} ms " for name, t in row["median_seconds"].items())
                        + f"ratio {row['ratio_of_medians']:.3f} (min {row['ratio_of_minima']:.3f})",
                        flush=True,
                    )
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key in ("rows", "width", "rounds", "dtype")}
        settings |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
        print(json.dumps({"settings": settings, "rows": results}, indent=2))


def peak(options, name):
    """Peak memory of two steps in a process of its own, above that before them."""
    x = torch.randn(options.rows, options.width, requires_grad=True)
    module = make(name, options.blocks[0], options.patterns[0], torch.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        step(module, options.blocks[0], x, True)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def memory(options):
    for blocks in options.blocks:
        for pattern in options.patterns:
            row = []
            for name in IMPLEMENTATIONS:
                out = subprocess.run(
                    [sys.executable, __file__, "--peak", name, "--blocks", str(blocks)]
                    + ["--patterns", pattern, "--rows", str(options.rows)]
                    + ["--width", str(options.width)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                row.append(f"{name} {float(out.stdout):7.0f} MiB")
            print(f"{blocks:3} {pattern:5} " + "  ".join(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[12, 24, 48])
    parser.add_argument("--patterns", nargs="+", default=["1x1", "4x1", "4x5"])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, help="of PyTorch and the kernels; default: PyTorch's")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", choices=list(IMPLEMENTATIONS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.peak:
        peak(options, options.peak)
    elif options.memory:
        memory(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
