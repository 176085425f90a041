#!/usr/bin/env bash
# Random ranks are killed (kill -9) at random moments, while a run begins, trains, saves, validates or resumes.
# Each run is resumed until it has been killed 5 times, then brought to its end: metrics, weights and moments
# are those of a run on as many ranks that nobody killed.
#
#   kill_ranks_test.sh ROOT PROGRAM RANKS KILLS [STAGES]
set -uo pipefail
program=$2 ranks=$3 kills=$4 stages=${5:-1}
. "$1/tests/ranks.sh"
cd "$scratch" || exit 1
RANDOM=$kills

options=("${small[@]}" --dwa 2x1 --steps 60 --batch-size 8 --accumulate 2 --dropout 0.1 --eval-every 20 --save-every 3)
pipe=(--pipeline "$stages")
[ "$stages" = 1 ] || pipe+=(--cuts "$(seq -s, 1 $((stages - 1)))")
begin=$(date +%s%N)
on "$ranks" "$program" train whole "${options[@]}" "${pipe[@]}" >/dev/null 2>err || fail "$(cat err)"
milliseconds=$((($(date +%s%N) - begin) / 1000000))

# start RUN: in the background, from the newest checkpoint where there is one; its pid is $!.
start() {
  local how=("${options[@]}")
  ! ls "$1"/checkpoints/step-* >/dev/null 2>&1 || how=(--resume --threads 1 --quiet)
  on "$ranks" "$program" train "$1" "${how[@]}" "${pipe[@]}" >/dev/null 2>err &
}

killed=0 runs=0 by=()
while [ "$killed" -lt "$kills" ]; do
  runs=$((runs + 1))
  run=run-$runs
  for ((k = 0; k < 5 && killed < kills; ++k)); do
    start "$run"
    job=$!
    # At any time up to that of a third of a run.
    sleep "$(printf '%d.%03d' $((milliseconds / 3000 * RANDOM / 32768)) $((RANDOM % 1000)))"
    mapfile -t pids < <(pgrep -P "$(mpirun_of $job 2>/dev/null)" 2>/dev/null | sort -n)
    if [ ${#pids[@]} -gt 0 ]; then
      victim=$((RANDOM % ${#pids[@]}))
      if kill -9 "${pids[$victim]}" 2>/dev/null; then
        killed=$((killed + 1))
        by[$victim]=$((${by[$victim]:-0} + 1))
      fi
    fi
    wait $job && break  # at its end before it could be killed
  done
  start "$run"
  wait $! || fail "run $runs after $killed kills: $(cat err)"
  diff <(content whole) <(content "$run") || fail "run $runs differs after $killed kills"
  rm -rf "$run"
done
echo "passed: $killed kills (by rank: ${by[*]}), $runs runs"
