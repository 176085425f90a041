#!/usr/bin/env bash
# Runs bench/compare_pytorch on a model of milliseconds: what it reports must follow from what it measured, whatever the
# times are. Ends with 77 (skipped) where no Python here has PyTorch.
#
#   tests/compare_pytorch_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
for python in python3 /usr/bin/python3 none; do
  [ "$python" != none ] || { echo "skipped: no python3 with PyTorch (Debian: python3-torch)"; exit 77; }
  if "$python" -c 'import torch' 2>/dev/null; then break; fi
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compare() { "$python" "$root/bench/compare_pytorch" "$@"; }
fail() { echo "compare_pytorch_test: $*"; exit 1; }

# The models that are timed: both forms of the averages compute the same loss and the same gradients as each other, and
# at the identity those of the plain Transformer.
PYTHONPATH=$root/bench "$python" - <<'END' || fail "the models in PyTorch differ from each other"
import torch
from torch_model import DenseFormer

def result(pattern, form, weights, alphas=None):
    model = DenseFormer(4, 2, 32, 50, 16, pattern, form)
    model.load_state_dict(weights, strict=False)
    if alphas:
        for alpha in model.averages.alphas.values():
            torch.manual_seed(alpha.numel())
            torch.nn.init.normal_(alpha)
    loss = model(tokens, targets)
    loss.backward()
    return loss.item(), model.wte.weight.grad

torch.manual_seed(1)
tokens, targets = torch.randint(50, (2, 16)), torch.randint(50, (2, 16))
weights = DenseFormer(4, 2, 32, 50, 16).state_dict()
plain = result(None, "stacked", weights)
for pattern in [(1, 1), (2, 1), (2, 2)]:
    for form in ["stacked", "naive"]:
        loss, gradient = result(pattern, form, weights)
        assert abs(loss - plain[0]) < 1e-5 and torch.allclose(gradient, plain[1], atol=1e-5), (pattern, form, loss, plain[0])
    stacked, naive = (result(pattern, form, weights, alphas=True) for form in ["stacked", "naive"])
    assert abs(stacked[0] - naive[0]) < 1e-4 and torch.allclose(stacked[1], naive[1], atol=1e-4), (pattern, stacked[0], naive[0])
    assert abs(stacked[0] - plain[0]) > 1e-3, f"{pattern}: the averages change nothing"
END

# With the program itself: every variant, every round, ratios that follow from the times.
cat >"$scratch/check.py" <<'END'
import json, sys
result = json.load(sys.stdin)
mode, precision = sys.argv[1:3]
seconds = [float(word) for word in sys.argv[3:]]  # the times of a program that is not one
assert (result["mode"], result["precision"]) == (mode, precision), result
variants = [row["variant"] for row in result["rows"]]
assert variants == ["PyTorch none", "PyTorch 4x2 stacked", "PyTorch 4x2 naive"], variants
assert [row["pattern"] for row in result["rows"]] == ["none", "4x2", "4x2"], result
for row in result["rows"]:
    ours, theirs = row["denseformer"], row["pytorch"]
    assert ours["rounds"] == theirs["rounds"] == 2, row
    for kind, ratio in [("median_seconds", "speedup_of_medians"), ("minimum_seconds", "speedup_of_minima")]:
        assert ours[kind] > 0 and abs(row[ratio] * ours[kind] / theirs[kind] - 1) < 1e-9, row
    assert theirs["minimum_seconds"] <= theirs["median_seconds"], row
    if seconds:
        assert [ours["median_seconds"], ours["minimum_seconds"]] == seconds, row
        assert row["speedup_of_medians"] < 1, row
assert all(value > 1e6 for value in result["peak_memory_bytes"].values()), result
END
for call in "train fp32" "train bf16" "forward fp32" "forward bf16"; do
  read -r mode precision <<<"$call"
  compare --program "$program" --preset test --dwa none,4x2 --mode "$mode" --precision "$precision" --batch 2 --rounds 2 \
    --threads 1 --json 2>/dev/null | "$python" "$scratch/check.py" "$mode" "$precision" || fail "$call"
done

# With a stand-in that claims 1,000 s per pass: PyTorch must come out as the faster of the two.
cat >"$scratch/slow" <<END
#!/bin/sh
if [ "\$1" = info ]; then "$program" "\$@" | sed "s/\"parameters\": [0-9]*/&\$EXTRA/"; exit; fi
echo ready; read -r _; echo round; read -r _
row='"median_seconds": 1000, "minimum_seconds": 900, "rounds": 2'
echo '{"rows": [{"name": "none", '"\$row"'}, {"name": "4x2", '"\$row"'}], "peak_memory_bytes": 2e6}'
END
chmod +x "$scratch/slow"
EXTRA='' compare --program "$scratch/slow" --preset test --dwa none,4x2 --mode forward --precision fp32 --batch 2 --rounds 2 \
  --threads 1 --json 2>/dev/null | "$python" "$scratch/check.py" forward fp32 1000 900 || fail "a slow program is not reported as slow"

# expect PATTERN COMMAND...: it fails and says so.
expect() {
  local pattern=$1 output
  shift
  output=$("$@" 2>&1) && fail "no failure, expected '$pattern'"
  grep -q -- "$pattern" <<<"$output" || fail "expected '$pattern', got: $output"
}
export EXTRA=7
expect "parameters in PyTorch, .* in denseformer" compare --program "$scratch/slow" --preset test --dwa none --precision fp32
expect "/no/such/program" compare --program /no/such/program --precision fp32
expect "take fewer --forms" compare --program "$program" --depth 1000000 --precision fp32
