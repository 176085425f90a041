"""Writes a plain Transformer with random weights as a GGUF file (version 3), for llama.cpp.

The architecture is llama.cpp's "gpt2": LayerNorm, one matrix for q, k and v, an MLP of four times the width with GELU,
and a head that is the embedding again. Its matrices have the shapes of denseformer's, so decoding reads as many
weights; it adds biases and learned positions (less than 0.2 % of the bytes at width 768), which the architecture requires.
The standard library is enough: the values are one random piece again and again, because no speed depends on them.
"""

import os
import random
import struct

UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # types of metadata values
ALIGNMENT = 32
BLOCK = 32  # elements that share a scale in q8_0
PIECE = 1 << 16  # elements of the random piece


def encode_f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def encode_f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def encode_bf16(values):
    bits = struct.unpack(f"<{len(values)}I", encode_f32(values))
    # Rounds to nearest even, as conversion in hardware does.
    return struct.pack(f"<{len(values)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))


def encode_q8_0(values):
    """Blocks of one f16 scale and 32 int8."""
    data = bytearray()
    for first in range(0, len(values), BLOCK):
        block = values[first:first + BLOCK]
        scale = max(abs(value) for value in block) / 127
        data += struct.pack("<e32b", scale, *(round(value / scale) if scale else 0 for value in block))
    return bytes(data)


# name: number of the type in a tensor, number of the file type, bytes of BLOCK elements, encoder
WEIGHTS = {
    "f32": (0, 0, 4 * BLOCK, encode_f32),
    "f16": (1, 1, 2 * BLOCK, encode_f16),
    "q8_0": (8, 7, BLOCK + 2, encode_q8_0),
    "bf16": (30, 32, 2 * BLOCK, encode_bf16),
}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    """One key of the metadata."""
    if kind == STRING:
        data = string(value)
    elif kind == ARRAY:
        element, values = value
        data = struct.pack("<IQ", element, len(values))
        data += b"".join(string(v) for v in values) if element == STRING else struct.pack(f"<{len(values)}i", *values)
    else:
        data = struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], value)
    return string(key) + struct.pack("<I", kind) + data


def byte_tokens():
    """The 256 bytes as GPT-2's vocabulary writes them: printable ones as themselves, others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(0x100 + n) for n in range(len(others))]


def metadata(config, weights):
    """A vocabulary belongs to a file that llama.cpp loads: the bytes, an end token, and names for the others."""
    vocabulary = config["vocab_size"]
    tokens = (byte_tokens() + ["<|endoftext|>"] + [f"token{n}" for n in range(vocabulary)])[:vocabulary]
    end = min(256, vocabulary - 1)
    kinds = [1] * vocabulary  # normal ...
    kinds[end] = 3  # ... and control
    return [
        entry("general.architecture", STRING, "gpt2"),
        entry("general.name", STRING, "random weights"),
        entry("general.alignment", UINT32, ALIGNMENT),
        entry("general.file_type", UINT32, WEIGHTS[weights][1]),
        entry("gpt2.block_count", UINT32, config["n_layer"]),
        entry("gpt2.context_length", UINT32, config["seq_len"]),
        entry("gpt2.embedding_length", UINT32, config["n_embd"]),
        entry("gpt2.feed_forward_length", UINT32, 4 * config["n_embd"]),
        entry("gpt2.attention.head_count", UINT32, config["n_head"]),
        entry("gpt2.attention.layer_norm_epsilon", FLOAT32, 1e-5),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        entry("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        entry("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        entry("tokenizer.ggml.merges", ARRAY, (STRING, [f"{tokens[0]} {tokens[1]}"])),
        entry("tokenizer.ggml.bos_token_id", UINT32, end),
        entry("tokenizer.ggml.eos_token_id", UINT32, end),
    ]


def tensors(config, weights):
    """(name, sizes with the innermost first, type, mean) of every tensor."""
    width = config["n_embd"]

    def matrix(name, outputs, inputs):
        yield f"{name}.weight", (inputs, outputs), weights, 0.0

    def vectors(name, size, kinds=(("weight", 1.0), ("bias", 0.0))):
        for kind, mean in kinds:
            yield f"{name}.{kind}", (size,), "f32", mean

    bias = (("bias", 0.0),)
    yield from matrix("token_embd", config["vocab_size"], width)
    yield "position_embd.weight", (width, config["seq_len"]), "f32", 0.0
    for block in range(config["n_layer"]):
        yield from vectors(f"blk.{block}.attn_norm", width)
        for name, outputs, inputs in (("attn_qkv", 3 * width, width), ("attn_output", width, width)):
            yield from matrix(f"blk.{block}.{name}", outputs, inputs)
            yield from vectors(f"blk.{block}.{name}", outputs, bias)
        yield from vectors(f"blk.{block}.ffn_norm", width)
        for name, outputs, inputs in (("ffn_up", 4 * width, width), ("ffn_down", width, 4 * width)):
            yield from matrix(f"blk.{block}.{name}", outputs, inputs)
            yield from vectors(f"blk.{block}.{name}", outputs, bias)
    yield from vectors("output_norm", width)


def tensor_bytes(sizes, kind):
    count = 1
    for size in sizes:
        count *= size
    return count * WEIGHTS[kind][2] // BLOCK


def padded(size):
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write_repeated(file, piece, size):
    """`size` bytes: the piece again and again."""
    while size >= len(piece):
        file.write(piece)
        size -= len(piece)
    file.write(piece[:size])


def write_gguf(path, config, weights):
    """`config` has n_layer, n_head, n_embd, vocab_size and seq_len; `weights` is a key of WEIGHTS. Returns the bytes of
    the weight matrices."""
    if config["n_embd"] % BLOCK:
        raise ValueError(f"width {config['n_embd']}: expected a multiple of {BLOCK}")
    listed = list(tensors(config, weights))
    values = metadata(config, weights)
    normal = random.Random(1)
    noise = [normal.gauss(0, 0.02) for _ in range(PIECE)]
    pieces = {(weights, 0.0): WEIGHTS[weights][3](noise)}
    for mean in (0.0, 1.0):
        pieces["f32", mean] = encode_f32([mean + value for value in noise])
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values)) + b"".join(values))
        offset = 0
        for name, sizes, kind, _ in listed:
            file.write(string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, WEIGHTS[kind][0], offset))
            offset += padded(tensor_bytes(sizes, kind))
        file.write(bytes(padded(file.tell()) - file.tell()))
        for _, sizes, kind, mean in listed:
            size = tensor_bytes(sizes, kind)
            write_repeated(file, pieces[kind, mean], size)
            file.write(bytes(padded(size) - size))
        file.flush()
        os.fsync(file.fileno())
    return sum(tensor_bytes(sizes, kind) for name, sizes, kind, _ in listed
               if len(sizes) == 2 and not name.startswith("position"))
