# What the tests of several ranks share: source it.

if ! command -v mpirun >/dev/null; then
  echo "skipped: no mpirun here (package openmpi-bin)"
  exit 77
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  printf 'failed: %s\n' "$*"
  exit 1
}

# make_tokens FILE COUNT: 16-bit tokens below 500, the next one from the last up to some noise.
make_tokens() {
  local token=0 text='' i
  RANDOM=$2
  for ((i = 0; i < $2; ++i)); do
    token=$(((token * 7 + 1 + RANDOM % 3) % 500))
    printf -v text '%s\\x%02x\\x%02x' "$text" $((token & 255)) $((token >> 8))
    if ((i % 1000 == 999)); then
      printf '%b' "$text"
      text=
    fi
  done >"$1"
}

mkdir "$scratch/data"
make_tokens "$scratch/data/train.bin" 20000
make_tokens "$scratch/data/val.bin" 1000

# Options of a small run, whatever else it has.
small=(--preset test --data "$scratch/data" --threads 1 --precision fp32 --quiet --eval-batches 2)

# on RANKS COMMAND...: under mpirun, at most 200 s.
on() {
  local ranks=$1
  shift
  timeout -k 5 200 mpirun --allow-run-as-root --oversubscribe --mca plm isolated "${mpirun_options[@]}" \
    -n "$ranks" "$@"
}
mpirun_options=()

# content RUN: what of its metrics does not depend on the clock, and the hashes of its last checkpoint.
content() {
  sed -E 's/,"(seconds|tokens_per_second|gemm_share)":[^,}]*//g' "$1/metrics.jsonl"
  (cd "$1" && cksum model.safetensors "$(ls -d checkpoints/step-* | tail -1)"/*.safetensors)
}

# close A B KEY: the values of KEY in the metrics of two runs, within 1e-6 of each other.
close() {
  local key='"'$3'":[^,}]*'
  paste -d' ' <(grep -oE "$key" "$1/metrics.jsonl" | cut -d: -f2) \
    <(grep -oE "$key" "$2/metrics.jsonl" | cut -d: -f2) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d <= 1e-6 * $2)) { print "line " NR ": " $0; bad = 1 } }
      END { exit bad || NR == 0 }'
}

# wait_for_steps RUN COUNT PID: until so many lines of metrics are there, or the process is gone.
wait_for_steps() {
  until [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -ge "$2" ]; do
    kill -0 "$3" 2>/dev/null || return 1
    sleep 0.02
  done
}

# mpirun_of PID: the mpirun below the `timeout` of an on() in the background.
mpirun_of() {
  pgrep -P "$1" -x mpirun || pgrep -P "$(pgrep -P "$1")" -x mpirun
}
