#!/usr/bin/env bash
# Exports small models of every topology for Hugging Face transformers, loads them there, compares tokens and
# log-probabilities with denseformer generate, and imports them back. Ends with 77 (skipped) where no Python here has
# transformers and a PyTorch that it works with.
#
#   tests/huggingface_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
for python in "${DENSEFORMER_PYTHON:-python3}" python3 /usr/bin/python3 none; do
  [ "$python" != none ] || { echo "SKIPPED: no Python with torch and transformers (DENSEFORMER_PYTHON chooses one)"; exit 77; }
  if "$python" -c 'from transformers import AutoModelForCausalLM, GenerationMixin, DynamicCache; import torch' 2>/dev/null; then break; fi
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export HF_HUB_OFFLINE=1 HF_HOME="$scratch/hub" TOKENIZERS_PARALLELISM=false

for n in $(seq 300); do echo "$n green bottles hanging on the wall, and $((n - 1)) on the floor, café."; done >text.txt
"$program" tokenizer train --vocab 300 --out tokenizer.json text.txt --quiet >/dev/null
head -30 text.txt >val.txt
"$program" data prepare text.txt --val val.txt --tokenizer tokenizer.json --out data --quiet >/dev/null
printf '11\n000\n1011\n10001\n' >mask.txt
for case in none:plain 2x1:plain 1x2:all grouped:2x2:plain last:2:plain final:all mask.txt:all; do
  dwa=${case%:*} options=()
  [ "${case##*:}" = plain ] || options=(--set model.gains=true --set model.bias=true)
  name=${dwa//[:.]/-}
  "$program" train "run-$name" --preset test --vocab-size 300 --dwa "$dwa" "${options[@]}" --data data --steps 30 \
    --lr 0.01 --threads 1 --quiet >/dev/null
  "$program" export "run-$name" --format huggingface -o "hub-$name" --quiet >/dev/null
  "$program" generate "run-$name" --prompt '7 green bottles' --temperature 0 --max-tokens 12 --logprobs 0 --seed 1 --json \
    --quiet --threads 1 >"hub-$name.json"
  # The way back: the same bytes of weights, the same topology.
  "$program" import "hub-$name" -o "back-$name" --quiet >/dev/null
  for run in run back; do "$program" export "$run-$name" -o "native-$run-$name" --quiet >/dev/null; done
  diff -r "native-run-$name" "native-back-$name" || { echo "$name: import changes the model"; exit 1; }
done
"$python" "$root/tests/python/huggingface_test.py" hub-*/ </dev/null
