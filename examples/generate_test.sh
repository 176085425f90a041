#!/usr/bin/env bash
# Makes a small run with PROGRAM and lets EXAMPLE continue a prompt with it.
#
#   examples/generate_test.sh PROGRAM EXAMPLE
set -euo pipefail

program=$1 example=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for i in {1..200}; do echo "$i green bottles hanging on the wall"; done >"$scratch/text.txt"
"$program" data prepare --quiet --tokenizer bytes --out "$scratch/data" "$scratch/text.txt" >/dev/null
"$program" train "$scratch/run" --quiet --preset test --data "$scratch/data" --steps 2 --threads 1 >/dev/null

output=$("$example" "$scratch/run" "10 green")
[[ $output == "10 green"?* ]] || { echo "no text behind the prompt: '$output'"; exit 1; }
if "$example" "$scratch/missing" a 2>"$scratch/error"; then echo "a missing run is no failure"; exit 1; fi
grep -q "^generate: .*missing: no such run" "$scratch/error"
