#!/usr/bin/env bash
# Makes a small run with PROGRAM, lets GENERATE continue a prompt with it and ENGINE three.
#
#   examples/generate_test.sh PROGRAM GENERATE ENGINE
set -euo pipefail

program=$1 example=$2 engine=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for i in {1..200}; do echo "$i green bottles hanging on the wall"; done >"$scratch/text.txt"
"$program" data prepare --quiet --tokenizer bytes --output "$scratch/data" "$scratch/text.txt" >/dev/null
"$program" train "$scratch/run" --quiet --preset test --data "$scratch/data" --steps 2 --threads 1 >/dev/null

output=$("$example" "$scratch/run" "10 green")
[[ $output == "10 green"?* ]] || { echo "no text behind the prompt: '$output'"; exit 1; }
if "$example" "$scratch/missing" a 2>"$scratch/error"; then echo "a missing run is no failure"; exit 1; fi
grep -q "^generate: .*missing: no such run" "$scratch/error"

# Three prompts side by side have the texts that they have alone.
together=$("$engine" "$scratch/run" "10 green" "11 gre" "12")
[ "$(wc -l <<<"$together")" -eq 3 ] || { echo "expected three texts: '$together'"; exit 1; }
for prompt in "10 green" "11 gre" "12"; do
  alone=$("$program" generate "$scratch/run" --quiet -p "$prompt" --echo -n 12 --temperature 0)
  grep -qF ": $alone" <<<"$together" || { echo "'$alone' is not among '$together'"; exit 1; }
done
if "$engine" "$scratch/run" 2>"$scratch/error"; then echo "missing prompts are no failure"; exit 1; fi
grep -q "^engine: expected RUN" "$scratch/error"
