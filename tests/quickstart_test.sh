#!/usr/bin/env bash
# Runs scripts/quickstart on a small text for a few steps: what it shows, that a second run repeats
# nothing, that an interrupted one goes on, and what wrong calls get.
#
#   tests/quickstart_test.sh ROOT PROGRAM
set -euo pipefail

root=$1
export DENSEFORMER_PROGRAM=$2 DENSEFORMER_NO_INSTALL=1 DENSEFORMER_THREADS=1 DENSEFORMER_QUICKSTART_STEPS=2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export DENSEFORMER_QUICKSTART=$scratch/out
cd "$scratch"

fail() {
  echo "$1"
  cat output errors 2>/dev/null
  exit 1
}
quickstart() { "$root/scripts/quickstart" "$@" >output 2>errors; }

# 300 paragraphs of words that do not repeat too much.
awk 'BEGIN { srand(1); for (p = 0; p < 300; ++p) {
  for (w = 0; w < 120; ++w) {
    word = ""
    for (c = 0; c < 2 + rand() * 6; ++c) word = word sprintf("%c", 97 + int(26 * rand() * rand()))
    printf "%s%s", word, w % 12 == 11 ? "\n" : " "
  }
  print "" } }' >"a text.txt"

quickstart "a text.txt" || fail "it must succeed"
for word in Transformer "DenseFormer 1x1" "DenseFormer 4x5" perplexity tokens/s "Report: $scratch/out/report.html"; do
  grep -qF "$word" output || fail "the output must show '$word'"
done
[ "$(wc -l <output)" -lt 40 ] || fail "the output must be the result alone"
grep -q '</html>' out/report.html || fail "the report must be whole"
cp output first
cksum out/*/model.safetensors out/data/* >before

quickstart "a text.txt" || fail "a second run must succeed"
diff first output || fail "a second run must show the same"
cksum out/*/model.safetensors out/data/* | diff before - || fail "a second run must not train again"
! grep -qE 'Training|Learning|Turning' errors || fail "a second run must not say that it trains"

rm -r out/4x5/summary.json
quickstart "a text.txt" || fail "an interrupted run must go on"
grep -q "Going on with the model with DWA pattern 4x5" errors || fail "it must say that it goes on"

echo another >b.txt
! quickstart b.txt || fail "another text must be refused"
grep -q "was made from another text" errors || fail "it must say why"
! quickstart none.txt || fail "a missing file must be refused"
[ "$(cat errors)" = "quickstart: no file $scratch/none.txt" ] || fail "it must name the missing file"
! quickstart --wrong || fail "a wrong option must be refused"
