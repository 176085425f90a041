#!/usr/bin/env bash
# denseformer sweep on the preset `test`: kill -9 of the runner and of a run, diverged and failed runs,
# statistics against constants that were computed apart from the program.
#
#   tests/sweep_test.sh PROGRAM
set -euo pipefail
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
fail() {
  echo "sweep_test: $*"
  exit 1
}

seq 1 4000 | awk '{ print "line " $1 * 7 % 97 " of " $1 % 13 }' >text
head -n 200 text >val
"$program" tokenizer train --vocab 300 --output tokenizer.json text --quiet >/dev/null
"$program" data prepare --tokenizer tokenizer.json --output data text --val val --quiet >/dev/null
cat >grid.toml <<'END'
data = "d"
seeds = [1, 2, 3]
baseline = "none"
[options]
preset = "test"
steps = 30
"eval.batches" = 2
"save.every" = 5
[[grid]]
name = "{dwa}"
axes = { dwa = ["none", "1x1"] }
[[claim]]
text = "averages help"
less = ["1x1", "none"]
END

# sweep NAME [OPTION...]: with a ledger and a directory of runs of that name.
sweep() {
  local name=$1
  shift
  "$program" sweep grid.toml --ledger "$name.jsonl" --runs "$name" --data d=data --threads 1 --nice 0 --quiet "$@"
}
# key and loss of each run
losses() { sed 's/.*"key":"\([0-9a-f]*\)".*"status":"finished".*"loss":\([0-9.]*\),"perplexity".*/\1 \2/' "$1.jsonl" | sort; }
# The first run below $1 that has recorded a step and is not finished.
running() {
  local metrics
  for metrics in "$1"/*/metrics.jsonl; do
    if [ -s "$metrics" ] && [ ! -e "${metrics%/*}/summary.json" ]; then echo "${metrics%/*}"; return; fi
  done
}

# The processes whose parent is $1.
children() { grep -lE "^[0-9]+ \(.*\) . $1 " /proc/[0-9]*/stat 2>/dev/null | sed 's|/proc/||; s|/stat||'; }

sweep whole >whole.txt
[ "$(wc -l <whole.jsonl)" = 6 ] || fail "expected 6 rows, got $(wc -l <whole.jsonl)"
cp whole.jsonl before.jsonl
sweep whole | diff - whole.txt || fail "a second call prints something else"
cmp whole.jsonl before.jsonl || fail "a second call changed the ledger"

# kill -9 of a run, then of the runner, each in the middle of a run.
"$program" sweep grid.toml --ledger killed.jsonl --runs killed --data d=data --threads 1 --nice 0 --quiet >/dev/null 2>&1 &
runner=$!
child=
until { [ -n "$(running killed)" ] && child=$(children $runner) && [ -n "$child" ]; } || ! kill -0 $runner 2>/dev/null; do sleep 0.05; done
[ -n "$child" ] || fail "no run could be killed"
kill -9 $child || fail "the run $child had ended before it was killed"
until { [ -s killed.jsonl ] && [ -n "$(running killed)" ]; } || ! kill -0 $runner 2>/dev/null; do sleep 0.05; done
kill -9 $runner 2>/dev/null || true
wait $runner 2>/dev/null || true
cp killed.jsonl before.jsonl
sweep killed >/dev/null
head -c "$(stat -c %s before.jsonl)" killed.jsonl | cmp - before.jsonl || fail "a row was lost or written again"
diff <(losses killed) <(losses whole) || fail "runs that were killed have other results"

# The statistics of made-up losses; the constants come from numerical integration of Student's density.
awk 'BEGIN { split("5.2016 5.7015 5.4", a); split("5.7427 5.8925 5.8", b) }
  { match($0, /"seed":[0-9]+/); seed = substr($0, RSTART + 7, RLENGTH - 7)
    sub(/"loss":[0-9.]+/, "\"loss\":" ($0 ~ /"model.dwa":"1x1"/ ? a[seed] : b[seed])); print }' whole.jsonl >made.jsonl
"$program" sweep grid.toml --ledger made.jsonl --no-run --json --quiet >made.json
# near KEY VALUE: the first number of that name after "claims".
near() {
  sed -n '/"claims"/,$p' made.json | awk -v key="\"$1\":" -v wanted="$2" '
    $1 == key { sub(/,$/, "", $2); d = $2 - wanted; exit }
    END { exit !(d < 1e-9 && d > -1e-9 && $1 == key) }' || fail "$1: expected $2, got $(grep "\"$1\"" made.json | tail -n 1)"
}
near pairs 3
near mean -0.37736666666666646
near standard_error 0.10169677696192962
near low -0.814932581685091
near high 0.06019924835175805
near p 0.06556353863317388
near holm_p 0.06556353863317388
near correlation 0.9998667161011286
grep -q '"verdict": "not resolved"' made.json || fail "expected the verdict not resolved"
"$program" sweep grid.toml --ledger made.jsonl --no-run --quiet --findings made.md >/dev/null
grep -qxF -- '- averages help -0.377 [-0.815, +0.060], p 0.066, 3 seeds; the mean is on its side.' made.md ||
  fail "the findings lack the claim: $(cat made.md)"
grep -qF 'Of 1 claims 1 are not resolved.' made.md || fail "the findings count wrongly: $(cat made.md)"

# A run whose studies fail keeps its directory with --remove-runs, also where it was trained before.
sed -i '/^seeds/s/.*/seeds = [1]/; /^baseline/d; /^\[\[claim/,$d' grid.toml
sweep studied >/dev/null
run=$(ls -d studied/grid-1x1-*/)
find "$run" -name '*.safetensors' -delete
sed -i '1i studies = ["cosine"]' grid.toml
sweep studied --remove-runs >/dev/null 2>studied.txt
grep -q 'the studies failed' studied.txt || fail "the studies of a run without weights did not fail: $(cat studied.txt)"
[ -d "$run" ] || fail "the directory of a run whose studies failed was removed"
[ ! -d "$(ls -d studied/grid-none-*/ 2>/dev/null || echo none)" ] || fail "the directory of a run with its studies was kept"
[ "$(wc -l <studied.jsonl)" = 3 ] || fail "expected a line for the studies of one run: $(cat studied.jsonl)"

# Divergence and failure are rows.
cat >grid.toml <<'END'
data = "d"
seeds = [1]
options = { preset = "test", steps = 10, max_bad_steps = 2, dwa = "none" }
[[row]]
name = "diverges"
options = { lr = 1e6, warmup = 0.0, schedule = "constant" }
[[row]]
name = "fails"
options = { vocab_size = 64 }
END
sweep bad >bad.txt 2>/dev/null || fail "a failed run ended the sweep"
grep -q '1 diverged' bad.txt || fail "no diverged run: $(cat bad.txt)"
grep -q '1 failed' bad.txt || fail "no failed run: $(cat bad.txt)"
sweep bad --dry-run | grep -q '0 of 2 runs are missing' || fail "failed runs are tried again"
echo "sweep_test: passed"
