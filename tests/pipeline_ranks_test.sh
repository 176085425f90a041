#!/usr/bin/env bash
# Pipelines under mpirun: the curve of one process, bits that repeat, resuming with other shapes, a
# killed rank, a signal, and what the planner says of them.
#
#   pipeline_ranks_test.sh ROOT PROGRAM RANKS
set -uo pipefail
program=$2 ranks=$3
. "$1/tests/ranks.sh"
cd "$scratch" || exit 1

options=("${small[@]}" --dwa 1x1 --steps 12 --batch-size 8 --accumulate 4 --dropout 0.1 --eval-every 6 --save-every 5)
stages=$ranks
[ "$ranks" != 4 ] || stages=2  # two copies of two stages
cuts=1,2
[ $stages = 3 ] || cuts=2
"$program" train one "${options[@]}" >/dev/null || fail "one process"
for run in a b; do
  on "$ranks" "$program" train $run "${options[@]}" --pipeline $stages --cuts $cuts >$run.out 2>$run.err ||
    fail "$(cat $run.err)"
done
for key in loss val_loss final_loss; do
  close a one $key || fail "$key in $stages stages on $ranks ranks and in one process"
done
diff <(content a) <(content b) || fail "two runs on $ranks ranks differ"
grep -q "\"stages\": $stages" a/summary.json || fail "summary.json"

# What does not depend on the shape is tested with one.
if [ "$ranks" != 2 ]; then
  echo passed
  exit 0
fi

# A rank is killed: the run resumes to the same bits on the same stages, and to the same curve in one
# process.
slow=("${options[@]}" --steps 30)
pipe=(--pipeline 2 --cuts 2)
on 2 "$program" train whole "${slow[@]}" "${pipe[@]}" >/dev/null 2>err || fail "$(cat err)"
on 2 "$program" train killed "${slow[@]}" "${pipe[@]}" >/dev/null 2>err &
job=$!
wait_for_steps killed 8 $job || fail "ended before it was killed: $(cat err)"
mapfile -t pids < <(pgrep -P "$(mpirun_of $job)" | sort -n)
kill -9 "${pids[1]}"
wait $job
[ $? != 0 ] || fail "mpirun returned 0 after a rank was killed"
cp -r killed alone
on 2 "$program" train killed --resume --threads 1 --quiet "${pipe[@]}" >/dev/null 2>err || fail "$(cat err)"
diff <(content whole) <(content killed) || fail "a run that was killed differs"
"$program" train alone --resume --threads 1 --quiet >/dev/null || fail "resuming in one process"
close alone whole loss || fail "resumed in one process"

# Errors are one line.
on 2 "$program" train new "${options[@]}" --pipeline 3 >out 2>err
[ $? = 2 ] && grep -qE '^error: (rank 1: )?train: --pipeline 3 on 2 ranks, expected a multiple of 3' err || fail "$(cat err)"
on 2 "$program" train new "${options[@]}" --pipeline 2 --mixer dynamic >out 2>err
[ $? != 0 ] && grep -qE '^error: (rank 1: )?pipeline: partial sums cross the cuts' err || fail "$(cat err)"
[ ! -e new ] || fail "a wrong call left a directory"
echo passed
