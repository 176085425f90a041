"""Writes a model trained in PyTorch as a directory that the program `denseformer` reads."""

import json
import os
import struct
from typing import Any, Dict, Mapping, Union

import torch
from torch import Tensor, nn

from .pattern import Pattern, pattern_spec

_EMBEDDING = "transformer.wte.weight"
_PARTS = ("transformer.wte.", "transformer.h.", "transformer.ln_f.", "dwa_modules.")


def _write_safetensors(path: str, tensors: Mapping[str, Tensor]) -> None:
    """fp32 tensors: u64 length of the header, JSON header padded to 8 bytes, data."""
    header: Dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(bytes(tensor.contiguous().view(-1).numpy().astype("<f4").data))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def export_run(
    model: Union[nn.Module, Mapping[str, Tensor]],
    directory: str,
    *,
    n_head: int,
    seq_len: int,
    dwa: Pattern,
    mixer: str = "static",
    streams: str = "r",
    mixer_norm: str = "none",
) -> None:
    """Writes ``config.json`` and ``model.safetensors`` to a new directory.

    ``model`` is a module or its state dict with the names of the paper's code: the embedding
    ``transformer.wte.weight`` (also the head), ``transformer.h.{i}.`` + ``ln_1``, ``attn.c_attn``,
    ``attn.c_proj``, ``ln_2``, ``mlp.c_fc``, ``mlp.c_proj``, ``transformer.ln_f`` and
    ``dwa_modules.alphas.{i}``. ``dwa`` is the pattern of the averages: "4x5", "none" or any other
    that ``DWAModules`` takes. With a ``DepthMixer`` also give its ``mixer``, ``streams`` and
    ``norm``, and norms ``ln_k`` and ``ln_v`` to the blocks that read streams of their own. The model
    must compute what ``denseformer`` does: rotary positions, GELU by erf, LayerNorm eps 1e-5.
    """
    state = model.state_dict() if isinstance(model, nn.Module) else model
    if _EMBEDDING not in state:
        raise ValueError(f"denseformer: {_EMBEDDING} is missing; got {sorted(state)[:5]} ...")
    tensors = {
        name: tensor.detach().to("cpu", torch.float32)
        for name, tensor in state.items()
        if name.startswith(_PARTS)
    }
    left = [name for name in state if name not in tensors]
    head = state.get("lm_head.weight")
    if head is not None and not torch.equal(head, state[_EMBEDDING]):
        raise ValueError("denseformer: lm_head.weight differs from the embedding, expected a tie")
    left = [name for name in left if name != "lm_head.weight"]
    if left:
        raise ValueError(f"denseformer: no place in a run for {', '.join(sorted(left))}")
    blocks = {int(name.split(".")[2]) for name in tensors if name.startswith("transformer.h.")}
    vocab_size, n_embd = tensors[_EMBEDDING].shape
    config = {
        "model_type": "denseformer",
        "n_layer": len(blocks),
        "n_head": n_head,
        "n_embd": n_embd,
        "vocab_size": vocab_size,
        "seq_len": seq_len,
        "bias": "transformer.ln_f.bias" in tensors,
        "gains": any(name.endswith("gain_attn") for name in tensors),
        "dwa": pattern_spec(len(blocks), dwa),
        "mixer": mixer,
        "streams": streams,
        "mixer_norm": mixer_norm,
    }
    os.makedirs(directory, exist_ok=False)
    _write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
