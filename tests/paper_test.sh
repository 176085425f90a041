#!/usr/bin/env bash
# Makes docs/paper.md, docs/paper-{mini,medium,small}.md and docs/results.md again from the committed ledgers in an empty working
# directory and compares them byte for byte; of the drawings it compares the names, as their looks may
# change with the charts.
#
#   tests/paper_test.sh ROOT PROGRAM
set -euo pipefail
root=$1 program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DENSEFORMER_PROGRAM=$program WORK=$scratch/runs OUT=$scratch/docs "$root/experiments/paper/run" --scale micro --quiet >"$scratch/out"
failures=0
# A scale without runs has no drawings, and a clone no empty directory.
drawings() { (cd "$1" && find paper paper-mini paper-medium paper-small -name '*.svg' 2>/dev/null | sort); }
drawings "$root/docs" >"$scratch/drawings" || true
drawings "$scratch/docs" >"$scratch/docs/drawings" || true
for file in paper.md paper-mini.md paper-medium.md paper-small.md results.md drawings; do
  expected=$root/docs/$file
  [ "$file" != drawings ] || expected=$scratch/drawings
  diff "$expected" "$scratch/docs/$file" >"$scratch/difference" || {
    echo "docs/$file is not what experiments/paper/run --scale micro writes:"
    head -n 10 "$scratch/difference"
    failures=$((failures + 1))
  }
done
grep -q '<svg' "$scratch/runs/paper.html" || { echo "paper.html has no drawing"; failures=$((failures + 1)); }
grep -q '<h2.*<code>denseformer search</code>' "$scratch/runs/paper.html" ||
  { echo "paper.html shows the backquotes of a title"; failures=$((failures + 1)); }
for scale in micro mini medium small long paper; do
  DENSEFORMER_PROGRAM=$program WORK=$scratch/dry OUT=$scratch/dry "$root/experiments/paper/run" --scale $scale --dry-run --quiet |
    grep -q 'runs are missing' || { echo "run --scale $scale --dry-run prints no plan"; failures=$((failures + 1)); }
done
# Each file has its variables at every scale, whether or not the document of the scale has it.
for scale in micro mini medium small long paper; do
  for file in "$root"/experiments/paper/*.toml; do
    [ "${file##*/}" != scales.toml ] || continue
    "$program" sweep "$file" --scale $scale --ledger "$scratch/none.jsonl" --dry-run --quiet >"$scratch/plan" 2>&1 ||
      { echo "${file##*/} at $scale: $(tail -n 1 "$scratch/plan")"; failures=$((failures + 1)); }
  done
done
[ ! -e "$scratch/dry" ] || { echo "run --dry-run wrote something"; failures=$((failures + 1)); }
[ "$failures" = 0 ] || { echo "$failures differences; run experiments/paper/run --scale micro"; exit 1; }
echo "the documents are those of the ledgers"
