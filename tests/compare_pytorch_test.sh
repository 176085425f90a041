#!/usr/bin/env bash
# Runs bench/compare_pytorch on a model of milliseconds, in both modes and precisions; looks at what it reports, never
# at the times. Ends with 77 (skipped) where no Python here has PyTorch.
#
#   tests/compare_pytorch_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
for python in python3 /usr/bin/python3 none; do
  [ "$python" != none ] || { echo "skipped: no python3 with PyTorch (Debian: python3-torch)"; exit 77; }
  if "$python" -c 'import torch' 2>/dev/null; then break; fi
done

for mode in train forward; do
  for precision in fp32 bf16; do
    "$python" "$root/bench/compare_pytorch" --program "$program" --preset test --dwa none,4x2 --mode "$mode" \
      --precision "$precision" --batch 2 --rounds 2 --threads 1 --json 2>/dev/null |
      "$python" -c '
import json, sys
result = json.load(sys.stdin)
assert (result["mode"], result["precision"]) == tuple(sys.argv[1:]), result
variants = [row["variant"] for row in result["rows"]]
assert variants == ["PyTorch none", "PyTorch 4x2 stacked", "PyTorch 4x2 naive"], variants
for row in result["rows"]:
    assert row["speedup_of_medians"] > 0 and row["denseformer"]["rounds"] == row["pytorch"]["rounds"] == 2, row
assert all(value > 1e6 for value in result["peak_memory_bytes"].values()), result
' "$mode" "$precision"
    echo "$mode $precision: right"
  done
done
output=$("$python" "$root/bench/compare_pytorch" --program /no/such/program --precision fp32 2>&1) &&
  { echo "a missing program is no failure"; exit 1; }
grep -q "/no/such/program" <<<"$output" || { echo "a missing program is not named: $output"; exit 1; }
output=$("$python" "$root/bench/compare_pytorch" --program "$program" --depth 1000000 --precision fp32 2>&1) &&
  { echo "models larger than the memory are no failure"; exit 1; }
grep -q "take fewer --forms" <<<"$output" || { echo "what the memory cannot hold is not refused: $output"; exit 1; }
