#!/usr/bin/env bash
# Runs the commands of docs/first-model.md (its blocks of sh), with fewer steps, on a text of its own.
#
#   tests/first_model_test.sh ROOT PROGRAM
set -euo pipefail

root=$1 program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$root/docs/first-model.md" >commands
[ "$(grep -c '^denseformer ' commands)" -ge 7 ] || { echo "too few commands in docs/first-model.md"; exit 1; }
grep -q -- '--steps 1000$' commands || { echo "the steps of docs/first-model.md are not as expected"; exit 1; }
sed -i 's/--steps 1000$/--steps 2 --threads 1/' commands

mkdir my-text bin
for n in $(seq 600); do echo "Once there were $n green bottles, and $((n * 7)) of them fell from the wall."; done >my-text/a.txt
for n in $(seq 300); do echo "{\"text\": \"Twice $n is $((2 * n)).\"}"; done | gzip >my-text/b.jsonl.gz
ln -s "$program" bin/denseformer
PATH=$scratch/bin:$PATH DENSEFORMER_THREADS=1 bash -euo pipefail commands >out 2>messages ||
  { echo "docs/first-model.md: a command failed"; tail -3 out messages; exit 1; }
for file in tokenizer.json data/val.bin runs/first/summary.json report.html hub/first/config.json; do
  [ -s "$file" ] || { echo "docs/first-model.md: no $file"; exit 1; }
done
