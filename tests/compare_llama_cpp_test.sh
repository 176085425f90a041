#!/usr/bin/env bash
# Runs bench/compare_llama_cpp on a model of milliseconds with a stand-in for llama-bench that reads the GGUF file it is
# given and prints chosen times in llama-bench's format: what is reported must follow from them.
#
#   tests/compare_llama_cpp_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONDONTWRITEBYTECODE=1

compare() { python3 "$root/bench/compare_llama_cpp" --program "$program" --preset test --threads 1 "$@"; }
fail() { echo "compare_llama_cpp_test: $*"; exit 1; }

# The stand-in parses the file by the specification of GGUF and checks it against what was asked for: each tensor lies
# within the file, none overlaps another, and the values are numbers of the right size.
cat >"$scratch/llama-bench" <<'END'
#!/usr/bin/env python3
import json, struct, sys

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert options["-o"] == "json" and options["-r"] == "1", options
data = open(options["-m"], "rb").read()
at = 0

def take(form):
    global at
    values = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return values[0] if len(values) == 1 else values

def string():
    global at
    size = take("Q")
    at += size
    return data[at - size:at].decode()

def value(kind):
    if kind == 8:
        return string()
    if kind == 9:
        element, count = take("IQ")
        return [value(element) for _ in range(count)]
    return take({4: "I", 5: "i", 6: "f"}[kind])

assert data[:4] == b"GGUF"
at = 4
version, tensor_count, entries = take("IQQ")
assert version == 3
keys = {}
for _ in range(entries):
    key = string()
    assert key not in keys, key
    keys[key] = value(take("I"))
tensors = {}
for _ in range(tensor_count):
    name = string()
    sizes = [take("Q") for _ in range(take("I"))]
    tensors[name] = (sizes, *take("IQ"))
begin = -(-at // keys["general.alignment"]) * keys["general.alignment"]

width, blocks = keys["gpt2.embedding_length"], keys["gpt2.block_count"]
vocabulary = len(keys["tokenizer.ggml.tokens"])
assert len(set(keys["tokenizer.ggml.tokens"])) == vocabulary == len(keys["tokenizer.ggml.token_type"])
assert keys["tokenizer.ggml.token_type"][keys["tokenizer.ggml.eos_token_id"]] == 3
assert keys["gpt2.context_length"] >= int(options["-p"]) and width % keys["gpt2.attention.head_count"] == 0
expected = {"token_embd.weight": [width, vocabulary], "position_embd.weight": [width, keys["gpt2.context_length"]],
            "output_norm.weight": [width], "output_norm.bias": [width]}
for n in range(blocks):
    for name, outputs, inputs in [("attn_qkv", 3 * width, width), ("attn_output", width, width),
                                  ("ffn_up", 4 * width, width), ("ffn_down", width, 4 * width)]:
        expected[f"blk.{n}.{name}.weight"] = [inputs, outputs]
        expected[f"blk.{n}.{name}.bias"] = [outputs]
    for name in ["attn_norm", "ffn_norm"]:
        expected[f"blk.{n}.{name}.weight"] = expected[f"blk.{n}.{name}.bias"] = [width]
assert {name: sizes for name, (sizes, _, _) in tensors.items()} == expected, tensors

def numbers(kind, raw):
    if kind == 0:
        return struct.unpack(f"<{len(raw) // 4}f", raw)
    if kind == 1:
        return struct.unpack(f"<{len(raw) // 2}e", raw)
    if kind == 30:
        halves = struct.unpack(f"<{len(raw) // 2}H", raw)
        return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves)))
    values = []
    for scale, *integers in struct.iter_unpack("<e32b", raw):
        values += [scale * integer for integer in integers]
    return values

end, model_size = 0, 0
for name, (sizes, kind, offset) in tensors.items():
    count = 1
    for size in sizes:
        count *= size
    size = {0: 4 * count, 1: 2 * count, 30: 2 * count, 8: count // 32 * 34}[kind]
    assert offset % keys["general.alignment"] == 0 and offset >= end, name
    end = offset + size
    model_size += size
    raw = data[begin + offset:begin + end]
    assert len(raw) == size, name
    values = numbers(kind, raw)
    mean = sum(values) / count
    assert abs(mean - ("norm.weight" in name)) < 0.02, (name, mean)
    if len(sizes) == 2:
        spread = (sum(v * v for v in values) / count) ** 0.5
        assert 0.015 < spread < 0.025, (name, spread)
    if len(sizes) == 2 and not name.startswith("position"):
        assert {0: 0, 1: 1, 8: 7, 30: 32}[kind] == keys["general.file_type"], name
assert begin + end <= len(data) <= begin + end + 31

# 1,000 s per token of the prefill, 2,000 s per token decoded.
common = {"build_commit": "0123abc", "build_number": 7, "cpu_info": "a CPU", "model_size": model_size}
def test(prompt, generated, seconds):
    ns = int(seconds * (prompt + generated) * 1e9)
    return dict(common, n_prompt=prompt, n_gen=generated, avg_ns=ns, samples_ns=[ns], samples_ts=[1 / seconds])
print(json.dumps([test(int(options["-p"]), 0, 1000), test(0, int(options["-n"]), 2000)]))
END
chmod +x "$scratch/llama-bench"

compare --llama-bench "$scratch/llama-bench" --weights bf16,f16 --prompt 40 --tokens 3 --rounds 2 --directory "$scratch" \
  --json >"$scratch/result.json" 2>"$scratch/log" || fail "$(cat "$scratch/log")"
python3 - "$scratch/result.json" <<'END' || fail "the result is wrong"
import json, sys
result = json.load(open(sys.argv[1]))
assert (result["llama_cpp"], result["rounds"], result["prompt"], result["tokens"]) == ("0123abc (7)", 2, 40, 3), result
rows = {row["name"]: row for row in result["rows"]}
assert list(rows) == ["decode bf16", "decode f16", "prefill bf16", "prefill f16"], list(rows)
for name, row in rows.items():
    seconds = 1000 if name.startswith("prefill") else 2000
    for kind, speedup in [("median", "speedup_of_medians"), ("best", "speedup_of_minima")]:
        assert abs(row[f"llama_cpp_{kind}_tokens_per_second"] * seconds - 1) < 1e-6, row
        ours = row[f"denseformer_{kind}_tokens_per_second"]
        assert ours > 1 and abs(row[speedup] / (ours * seconds) - 1) < 1e-6, row
    # Everything but the matrices is small.
    assert row["matrix_bytes"] < row["llama_cpp_model_bytes"], row
    assert abs(row["matrix_bytes"] / 2 / result["parameters"] - 1) < 0.05, row
END
compare --llama-bench "$scratch/llama-bench" --rounds 1 --tokens 1 --prompt 2 2>/dev/null >"$scratch/text"
grep -q "prefill f16 .*denseformer is .*x as fast (medians)" "$scratch/text" || fail "$(cat "$scratch/text")"
[ -z "$(find "$scratch" -name '*.gguf')" ] || fail "a model was left behind"

# q8_0 has the same structure; the program itself need not know int8 for that.
PYTHONPATH=$root/bench python3 -c "
from gguf_model import write_gguf
config = dict(n_layer=2, n_head=2, n_embd=64, vocab_size=300, seq_len=64)
assert write_gguf('$scratch/q8.gguf', config, 'q8_0') == (300 * 64 + 2 * 12 * 64 * 64) // 32 * 34"
"$scratch/llama-bench" -m "$scratch/q8.gguf" -p 8 -n 1 -t 1 -r 1 -o json >/dev/null || fail "q8_0: wrong file"

# expect PATTERN COMMAND...: it fails and says so in one line.
expect() {
  local pattern=$1 output
  shift
  output=$("$@" 2>&1) && fail "no failure, expected '$pattern'"
  grep -q -- "$pattern" <<<"$output" || fail "expected '$pattern', got: $output"
  ! grep -q Traceback <<<"$output" || fail "$output"
}
expect "no program '/no/such/llama-bench'" compare --llama-bench /no/such/llama-bench
expect "got 'q3', expected some of bf16, f16, q8_0" compare --llama-bench true --weights q3
expect "invalid positive value: '0'" compare --llama-bench true --rounds 0
expect "its output is not that of llama-bench -o json" compare --llama-bench true --rounds 1
expect "ended with 1" compare --llama-bench false --rounds 1
expect "preset: got 'nope'" compare --llama-bench true --preset nope
