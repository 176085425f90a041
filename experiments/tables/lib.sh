# Functions for the scripts of this folder, each of which prints one table of the documents
# (scripts/figures). RESULTS is experiments/results.

# value FILE ROW KEY: the number KEY of the row named ROW (its "name" or "variant") in a result of
# `bench --json` or `compare_pytorch --json`; with ROW '' the first KEY of the file. Fails where there is none.
value() {
  awk -v row="$2" -v key="$3" '
    { text = $0; sub(/^ */, "", text); sub(/,$/, "", text) }
    text ~ /^"(name|variant)": / { current = text; sub(/^"[a-z]+": "/, "", current); sub(/"$/, "", current) }
    index(text, "\"" key "\": ") == 1 && (row == "" || current == row) {
      text = substr(text, length(key) + 5); gsub(/"/, "", text); print text; found = 1; exit
    }
    END { if (!found) { print "no " key " of \"" row "\" in " FILENAME > "/dev/stderr"; exit 1 } }
  ' "$RESULTS/$1"
}

# calc FORMAT EXPRESSION [NAME=VALUE...]: a number computed by awk.
calc() {
  local format=$1 expression=$2 set=()
  shift 2
  for pair in "$@"; do set+=(-v "$pair"); done
  LC_ALL=C awk "${set[@]}" "BEGIN { printf \"$format\", $expression }"
}

# speedup FILE VARIANT: "10.1x / 11.2x", of medians and of minima.
speedup() {
  calc '%.1fx / %.1fx' 'a, b' a="$(value "$1" "$2" speedup_of_medians)" b="$(value "$1" "$2" speedup_of_minima)"
}

# cost FILE ROW: "4.0 ± 1.8 % / 9.0 %", time above that of the baseline, of medians and of minima.
cost() {
  calc '%.1f ± %.1f %% / %.1f %%' '100 * (a - 1), 100 * e, 100 * (b - 1)' \
    a="$(value "$1" "$2" ratio_of_medians)" e="$(value "$1" "$2" ratio_error)" b="$(value "$1" "$2" ratio_of_minima)"
}

# ratio FILE ROW: "1.01x / 1.00x", time over that of the baseline.
ratio() {
  calc '%.2fx / %.2fx' 'a, b' a="$(value "$1" "$2" ratio_of_medians)" b="$(value "$1" "$2" ratio_of_minima)"
}

# share FILE ROW: "60 % / 64 %" of the limit's rate.
share() {
  calc '%.0f %% / %.0f %%' '100 * a, 100 * b' a="$(value "$1" "$2" share_of_limit)" b="$(value "$1" "$2" share_of_limit_minima)"
}

# over_limit FILE ROW: "1.24x / 1.22x", time over that of the limit.
over_limit() {
  calc '%.2fx / %.2fx' '1 / a, 1 / b' a="$(value "$1" "$2" share_of_limit)" b="$(value "$1" "$2" share_of_limit_minima)"
}

# gib BYTES: "8.65".
gib() { calc '%.2f' 'b / 2 ^ 30' b="$1"; }

# row CELL...: a line of a Markdown table.
row() { printf '|'; printf ' %s |' "$@"; printf '\n'; }

# header CELL...: the first two lines of one.
header() {
  row "$@"
  printf '|'
  for _ in "$@"; do printf ' --- |'; done
  printf '\n'
}

# decode_table DIRECTORY 'BATCH...' 'CONTEXT...': decoding by number of sequences and cached tokens, in
# bf16 and int8; without the rows that did not fit into memory.
decode_table() {
  local batch context p d name cells
  header "sequences x cached tokens" "tokens/s, bf16" "of each" "over reading once" "tokens/s, int8" "of each" "over reading once"
  for context in $3; do
    for batch in $2; do
      name="$batch x $context, none" cells=()
      for p in bf16 int8; do
        d=$1/decode-$p.json
        grep -q "\"name\": \"$name\"" "$RESULTS/$d" || continue 2
        cells+=("$(calc %.0f a a="$(value "$d" "$name" tokens_per_second)")"
          "$(calc %.0f a a="$(value "$d" "$name" tokens_per_second_per_sequence)")" "$(over_limit "$d" "$name")")
      done
      row "$batch x $context" "${cells[@]}"
    done
  done
}

# together FILE: "10.6x / 10.5x", tokens/s of 16 sequences over those of one, each after 32 tokens.
together() {
  local key cells=()
  for key in median_seconds minimum_seconds; do
    cells+=("$(calc '%.1fx' '16 * a / b' a="$(value "$1" "1 x 32, none" $key)" b="$(value "$1" "16 x 32, none" $key)")")
  done
  echo "${cells[0]} / ${cells[1]}"
}

# load_table DIRECTORY: loading paper-48 for inference against reading its file once.
load_table() {
  local variant
  header "time over reading the file once (of medians / of minima)" "bf16" "int8"
  for variant in "take as much memory" "check its hash" "load the model"; do
    row "$variant" "$(over_limit "$1/load-bf16.json" "$variant")" "$(over_limit "$1/load-int8.json" "$variant")"
  done
}

# engine_table DIRECTORY: decoding and prefill of paper-48 in bf16 and in int8 against their goals.
engine_table() {
  local directory=$1 attention cells
  header what goal bf16 int8
  # both FUNCTION NAME [ROW]: of the results NAME in bf16 and in int8.
  both() {
    local p
    cells=()
    for p in bf16 int8; do cells+=("$("$1" "$directory/$2-$p.json" "${@:3}")"); done
  }
  both over_limit decode "1 x 32, none"
  row "decoding one sequence after 32 tokens, over reading weights, keys and values" 1.1x "${cells[@]}"
  both over_limit decode "1 x 4096, none"
  row "the same after 4,096 tokens" "" "${cells[@]}"
  both together decode
  row "16 sequences after 32 tokens, total over that of one" 8x "${cells[@]}"
  both share prefill none
  row "prefill of 256 tokens, of the rate of bf16 GEMMs by oneDNN alone" "" "${cells[@]}"
  attention=$(share "$directory/decode-attention.json" "attention of one token")
  row "attention of one token to 4,096 cached ones, of the rate of reading them" "" "$attention" "$attention"
}

# llama_table DIRECTORY: decoding and prefill against llama.cpp.
llama_table() {
  local f=$1/llama-cpp.json version weights
  version=$(value "$f" '' llama_cpp)  # "COMMIT (NUMBER)"
  header "what" "goal" "weights of llama.cpp ${version%% *}" "ours" "tokens/s of llama.cpp" "ours" "llama.cpp's time over ours"
  compare() {
    local name="$1 $3"
    row "$2" "$4" "$3" "$(value "$f" "$name" precision)" \
      "$(calc '%.1f' a a="$(value "$f" "$name" llama_cpp_median_tokens_per_second)")" \
      "$(calc '%.1f' a a="$(value "$f" "$name" denseformer_median_tokens_per_second)")" \
      "$(calc '%.2fx / %.2fx' 'a, b' a="$(value "$f" "$name" speedup_of_medians)" b="$(value "$f" "$name" speedup_of_minima)")"
  }
  for weights in bf16 f16 q8_0; do compare decode "decoding one sequence" "$weights" 1.1x; done
  for weights in bf16 f16 q8_0; do compare prefill "prefill of $(value "$f" '' prompt) tokens" "$weights" 1.8x; done
}
