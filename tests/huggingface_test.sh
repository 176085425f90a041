#!/usr/bin/env bash
# Exports small models of every topology and mixer for Hugging Face transformers, imports them back, loads them in
# transformers, and compares tokens and log-probabilities with denseformer generate. Ends with 77 (skipped) after the way
# back where no Python here has transformers and a PyTorch that it works with.
#
#   tests/huggingface_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export HF_HUB_OFFLINE=1 HF_HOME="$scratch/hub" TOKENIZERS_PARALLELISM=false

for n in $(seq 300); do echo "$n green bottles hanging on the wall, and $((n - 1)) on the floor, café."; done >text.txt
"$program" tokenizer train --vocab 300 --output tokenizer.json text.txt --quiet >/dev/null
head -30 text.txt >val.txt
"$program" data prepare text.txt --val val.txt --tokenizer tokenizer.json --output data --quiet >/dev/null
printf '11\n000\n1011\n10001\n' >mask.txt
# Topology, then further options.
while read -r dwa more <&3; do
  options=(--dwa "$dwa")
  for option in $more; do options+=("$option"); done
  name=$(echo "$dwa-$more" | tr -c 'a-z0-9\n' - | tr -s -)
  "$program" train "run-$name" --preset test --vocab-size 300 "${options[@]}" --data data --steps 10 \
    --lr 0.01 --threads 1 --quiet >/dev/null
  "$program" export "run-$name" --format huggingface -o "hub-$name" --quiet >/dev/null
  "$program" generate "run-$name" --prompt '7 green bottles' --temperature 0 --max-tokens 12 --logprobs 0 --seed 1 --precision fp32 --json \
    --quiet --threads 1 >"hub-$name.json"
  # The way back: the same bytes of weights, the same topology.
  "$program" import "hub-$name" -o "back-$name" --quiet >/dev/null
  for run in run back; do "$program" export "$run-$name" -o "native-$run-$name" --quiet >/dev/null; done
  diff -r "native-run-$name" "native-back-$name" || { echo "$name: import changes the model"; exit 1; }
done 3<<'CASES'
none
2x1
1x2 --set model.gains=true --set model.bias=true
grouped:2x2
last:2
final --set model.gains=true --set model.bias=true
mask.txt --set model.gains=true --set model.bias=true
1x1 --mixer static --streams rqkv
1x2 --mixer dynamic --streams rv --set model.bias=true
2x1 --mixer dynamic --mixer-norm prepost
1x1 --mixer attention --streams rqkv --set model.bias=true
last:2 --mixer attnres --streams rv
CASES
for python in "${DENSEFORMER_PYTHON:-python3}" python3 /usr/bin/python3 none; do
  [ "$python" != none ] || { echo "SKIPPED: no Python with torch 2 and transformers 4.48 or newer (DENSEFORMER_PYTHON chooses one)"; exit 77; }
  if "$python" - 2>/dev/null <<'CHECK'
import torch, transformers
def version(package): return tuple(int(part) for part in package.__version__.split(".")[:2])
assert version(torch) >= (2, 0) and version(transformers) >= (4, 48)
CHECK
  then break; fi
done
"$python" "$root/tests/python/huggingface_test.py" hub-*/ </dev/null
