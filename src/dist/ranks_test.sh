#!/usr/bin/env bash
# Runs dist_ranks_check on several ranks.
#
#   ranks_test.sh PROGRAM RANKS
set -uo pipefail
program=$1 ranks=$2
if ! command -v mpirun >/dev/null; then
  echo "skipped: no mpirun here (package openmpi-bin)"
  exit 77
fi

# run ARGUMENT...: the program on all ranks; sets status and output.
run() {
  output=$(timeout -k 5 100 mpirun --allow-run-as-root --oversubscribe --mca plm isolated -n "$ranks" \
    "$program" "$@" 2>&1)
  status=$?
}

# expect STATUS TEXT: how the last run ended, with exactly one line of the program itself.
expect() {
  local lines
  lines=$(grep -c '^error: ' <<<"$output")
  if [ "$status" != "$1" ] || { [ -n "$2" ] && { [ "$lines" != 1 ] || [[ $output != *"error: $2"* ]]; }; }; then
    printf '%s\nexpected status %s and one line "%s", got status %s\n' "$output" "$1" "$2" "$status"
    exit 1
  fi
}

last=$((ranks - 1))
run collectives
expect 0 ''
for rank in 0 $last; do
  prefix=
  [ "$rank" = 0 ] || prefix="rank $rank: "
  run fail "$rank"
  expect 2 "${prefix}told to fail"
done
run differ "$last"
expect 1 "options: rank $last has 'b = 3', rank 0 has 'b = 2'"
run hang "$last"
expect 1 "watchdog: rank $last hangs"
echo passed
