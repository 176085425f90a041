"""Writes PyTorch files and the values that they hold: make_pt_files.py DIRECTORY.

values.json lists the tensors of values.pt by name: shape and fp32 values.
"""
import argparse
import collections
import json
import random
import sys

import numpy
import torch


def tensors():
    torch.manual_seed(1)
    matrix = torch.randn(4, 6)
    named = collections.OrderedDict()
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        named[f"float.{dtype}"] = torch.randn(3, 5).to(dtype)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        named[f"int.{dtype}"] = torch.randint(0, 100, (7,)).to(dtype)
    named["bool"] = torch.tensor([True, False, True])
    named["scalar"] = torch.tensor(2.5)
    named["empty"] = torch.zeros(0, 3)
    named["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    named["shared.whole"] = matrix
    named["shared.transpose"] = matrix.t()
    named["shared.slice"] = matrix[1:3, 2:]
    named["shared.step"] = matrix[::2, ::3]
    named["expanded"] = torch.randn(1, 4).expand(3, 4)
    named["three"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    return named


def training_state():
    """All that a training script tends to save beside the weights."""
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, total_steps=10, cycle_momentum=False)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    return dict(
        optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict(), itr=41,
        cpu_rng_state=torch.get_rng_state(), numpy_rng_state=numpy.random.get_state(),
        py_rng_state=random.getstate(), best=numpy.float64(3.5), device=torch.device("cpu"),
        size=torch.Size([1, 2]), args=argparse.Namespace(lr=1e-3), dtype=torch.float32,
        names={"a", "b"}, blob=b"\0\1", huge=1 << 100, negative=-(1 << 40))


class Hostile:
    def __reduce__(self):
        import os
        return os.system, ("echo executed",)


def main(directory):
    named = tensors()
    values = {
        name: dict(shape=list(t.shape), values=t.detach().float().contiguous().view(-1).tolist())
        for name, t in named.items()
    }
    with open(f"{directory}/values.json", "w") as file:
        json.dump(values, file)
    torch.save(named, f"{directory}/values.pt")
    torch.save(dict(model=named, **training_state()), f"{directory}/nested.pt")
    torch.save(dict(training_state(), model=named), f"{directory}/protocol4.pt", pickle_protocol=4)
    torch.save(named, f"{directory}/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(dict(model=named, extra=Hostile()), f"{directory}/hostile.pt")
    torch.save([1, 2], f"{directory}/list.pt")
    torch.save(dict(a=1), f"{directory}/number.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), f"{directory}/script.pt")


if __name__ == "__main__":
    main(sys.argv[1])
