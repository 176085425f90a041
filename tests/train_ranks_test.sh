#!/usr/bin/env bash
# Training on several ranks under mpirun: as one process, repeatable, stopped, killed, resumed.
#
#   train_ranks_test.sh ROOT PROGRAM RANKS
set -uo pipefail
root=$1 program=$2 ranks=$3
. "$root/tests/ranks.sh"
cd "$scratch" || exit 1

options=("${small[@]}" --dwa 2x1 --steps 20 --batch-size 8 --accumulate 2 --dropout 0.1 --eval-every 10 --save-every 7)
"$program" train one "${options[@]}" >/dev/null || fail "one process"
for run in a b; do
  on "$ranks" "$program" train $run "${options[@]}" >$run.out 2>$run.err || fail "$(cat $run.err)"
done
for key in loss val_loss final_loss; do
  close a one $key || fail "$key on $ranks ranks and in one process"
done
diff <(content a) <(content b) || fail "two runs on $ranks ranks differ"
[ "$(wc -l <a.out)" = 2 ] || fail "printed more than once: $(cat a.out)"
grep -q "\"ranks\": $ranks" a/summary.json || fail "summary.json"

# What does not depend on the number of ranks is tested with one.
if [ "$ranks" != 3 ]; then
  echo passed
  exit 0
fi

# A rank is killed: the others end, and the run resumes to the same bits on as many ranks, and to
# the same curve in one process.
slow=("${options[@]}" --steps 40)
on "$ranks" "$program" train whole "${slow[@]}" >/dev/null 2>err || fail "$(cat err)"
on "$ranks" "$program" train killed "${slow[@]}" >/dev/null 2>err &
job=$!
wait_for_steps killed 12 $job || fail "ended before it was killed: $(cat err)"
mapfile -t pids < <(pgrep -P "$(mpirun_of $job)" | sort -n)
[ ${#pids[@]} = "$ranks" ] || fail "expected $ranks processes below mpirun, got ${#pids[@]}"
kill -9 "${pids[ranks - 1]}"
wait $job
[ $? != 0 ] || fail "mpirun returned 0 after a rank was killed"
cp -r killed alone
on "$ranks" "$program" train killed --resume --threads 1 --quiet >/dev/null 2>err || fail "$(cat err)"
diff <(content whole) <(content killed) || fail "a run that was killed differs"
"$program" train alone --resume --threads 1 --quiet >/dev/null || fail "resuming in one process"
for key in loss final_loss; do
  close alone whole $key || fail "$key resumed in one process"
done

# train-elastic starts it again by itself.
elastic=("$root/scripts/train-elastic" --ranks "$ranks" --program "$program" --wait 0
  -- --allow-run-as-root --oversubscribe --mca plm isolated --)
timeout -k 5 200 "${elastic[@]}" elastic "${slow[@]}" >/dev/null 2>err &
job=$!
wait_for_steps elastic 12 $job || fail "elastic: $(cat err)"
kill -9 "$(pgrep -P "$(mpirun_of "$(pgrep -P $job)")" | sort -n | head -1)"
wait $job || fail "elastic: $(cat err)"
grep -q 'starts again in 0 s from elastic/checkpoints/step-' err || fail "elastic: $(cat err)"
diff <(content whole) <(content elastic) || fail "a run that was started again differs"
timeout -k 5 200 "${elastic[@]}" elastic "${slow[@]}" --seed 9 >/dev/null 2>err
[ $? = 2 ] || fail "a wrong call under train-elastic: $(cat err)"
"$root/scripts/train-elastic" --rank 2 -- run 2>err && fail "an unknown option"
grep -qx "train-elastic: unknown option '--rank'; see --help" err || fail "$(cat err)"

# A signal to mpirun, or to one rank, saves at the same step on all. mpirun passes SIGUSR1 on at once;
# for SIGTERM it waits, sends it, waits again, and kills.
for target in mpirun passed rank; do
  mpirun_options=()
  steps=40
  if [ $target = mpirun ]; then
    mpirun_options=(--mca odls_base_sigkill_timeout 5)
    steps=100000
  fi
  on "$ranks" "$program" train $target "${slow[@]}" --steps $steps --save-every 1000 --eval-every 0 >/dev/null 2>err &
  job=$!
  wait_for_steps $target 5 $job || fail "ended before the signal: $(cat err)"
  pid=$(mpirun_of $job)
  [ $target != rank ] || pid=$(pgrep -P "$pid" | sort -n | tail -1)
  signal=TERM
  [ $target != passed ] || signal=USR1
  kill -$signal "$pid"
  wait $job
  status=$?
  [ $target = mpirun ] || [ $status = 130 ] || fail "status $status, expected 130: $(cat err)"
  [ $status != 0 ] || fail "status 0 after SIGTERM to mpirun"
  step=$(sed -nE 's/^error: train: stopped by a signal after step ([0-9]+) of [0-9]+; saved.*/\1/p' err)
  [ -n "$step" ] || fail "a signal to $target: $(cat err)"
  [ -d "$(printf '%s/checkpoints/step-%08d' $target "$step")" ] || fail "no checkpoint of step $step"
  [ "$(grep -c '^error: ' err)" = 1 ] || fail "more than one line: $(cat err)"
done
mpirun_options=()
on "$ranks" "$program" train rank --resume --eval-every 10 --threads 1 --quiet >/dev/null 2>err ||
  fail "$(cat err)"
close rank whole loss || fail "a run that was stopped differs"

# Errors that all ranks have, or one alone, are one line.
expect() {
  local status=$1 text=$2
  shift 2
  on "$ranks" "$@" >out 2>err
  got=$?
  if [ $got != "$status" ] || [ "$(grep -c '^error: ' err)" != 1 ] || ! grep -q "^error: $text" err; then
    fail "expected status $status and '$text', got $got: $(cat out err)"
  fi
}
expect 2 "unknown option '--sed'" "$program" train new "${options[@]}" --sed 1
expect 2 "train: a holds a run already" "$program" train a "${options[@]}"
expect 2 "train: 1 sequences per pass" "$program" train new "${options[@]}" --accumulate 8
expect 1 "train: no nowhere/train.bin" "$program" train new "${options[@]}" --data nowhere
expect 1 "train: nothing to resume at new" "$program" train new --resume
[ ! -e new ] || fail "a wrong call left a directory"
cat >seed.sh <<END
#!/bin/sh
exec "\$@" --seed \$OMPI_COMM_WORLD_RANK
END
chmod +x seed.sh
expect 1 "options: rank 1 has 'seed = 1', rank 0 has 'seed = 0'" ./seed.sh "$program" train new "${options[@]}"
echo passed
