#!/usr/bin/env bash
# Checks the documents: every relative link leads somewhere, and every call of the program that they
# show names a command and options that exist.
#
#   tests/docs_test.sh ROOT PROGRAM    the Markdown files of ROOT, ROOT/docs and ROOT/experiments
#   tests/docs_test.sh --self-test     shows that it finds what is wrong
set -euo pipefail

failures=0
complain() {
  echo "$*"
  failures=$((failures + 1))
}

# Links and pictures, [text](target), outside of fenced code: file<TAB>target.
links() {
  awk '/^ *```/ { fenced = !fenced } fenced { next } {
    line = $0
    while (match(line, /\]\([^)]+\)/)) {
      print FILENAME "\t" substr(line, RSTART + 2, RLENGTH - 3)
      line = substr(line, RSTART + RLENGTH)
    }
  }' "$1"
}

# Calls of the program, from lines of fenced code and from `code` in the text, without comments,
# pipes and what follows them.
calls() {
  awk 'function show(call) {
      sub(/[ \t]#.*/, "", call)
      sub(/[ \t]*(\\?\||[>;&]).*/, "", call)
      print call
    }
    /^ *```/ { fenced = !fenced; next }
    fenced {
      line = rest $0
      rest = ""
      if (sub(/\\$/, "", line)) { rest = line; next }
      sub(/^[ \t]*(\$ )?(build\/release\/)?/, "", line)
      if (line ~ /^denseformer /) show(line)
      next
    }
    {
      line = $0
      while (match(line, /`denseformer [^`]+`/)) {
        show(substr(line, RSTART + 1, RLENGTH - 2))
        line = substr(line, RSTART + RLENGTH)
      }
    }' "$1"
}

# check_call FILE PROGRAM CALL
check_call() {
  local file=$1 program=$2 call=$3 words word help
  read -r -a words <<<"$call"
  local command=("${words[@]:1:2}")
  # COMMAND, RUN and [...] stand for something.
  [[ ${command[0]} =~ ^[A-Z\[] ]] && return
  [[ ${command[0]} == -* ]] && command=()
  [[ ${command[1]:-} =~ ^[a-z][a-z-]*$ ]] || command=("${command[@]:0:1}")
  # A second word is the name of a sub-command or an argument.
  help=$("$program" "${command[@]}" --help 2>/dev/null) ||
    help=$("$program" "${command[@]:0:1}" --help 2>/dev/null) ||
    { complain "$file: '$call': no command '${command[*]}'"; return; }
  for word in "${words[@]:1}"; do
    [[ $word =~ ^\[?(--?[a-z][a-z0-9-]*) ]] || continue
    word=${BASH_REMATCH[1]}
    [ "$word" = --help ] || grep -qE -- "(^|[ ,])$word([ ,=]|$)" <<<"$help" ||
      complain "$file: '$call': no option '$word'"
  done
}

# check ROOT PROGRAM
check() {
  local root=$1 program=$2 file target call
  while IFS= read -r file; do
    while IFS=$'\t' read -r _ target; do
      case $target in http://* | https://* | mailto:* | '#'*) continue ;; esac
      [ -e "$(dirname "$file")/${target%%#*}" ] || complain "$file: the link '$target' leads nowhere"
    done < <(links "$file")
    while IFS= read -r call; do
      check_call "$file" "$program" "$call"
    done < <(calls "$file")
  done < <(find "$root" "$root/docs" "$root/experiments" -maxdepth 1 -name '*.md' 2>/dev/null | sort -u)
}

# expect PATTERN TEXT: a document with this text gives a complaint like PATTERN, or with '' none.
expect() {
  local output
  printf '%s\n' "$2" >"$scratch/README.md"
  output=$(check "$scratch" "$scratch/program")
  if [ -z "$1" ] && [ -n "$output" ] || ! grep -q -- "$1" <<<"$output"; then
    echo "self test: '$2': expected '$1', got '$output'"
    exit 1
  fi
}

self_test() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  cat >"$scratch/program" <<'END'
#!/bin/sh
case "$*" in
  "--help") echo "  --version" ;;
  "train --help") echo "  --steps INT  -q,--quiet" ;;
  "data info --help") echo "  --json" ;;
  *) exit 2 ;;
esac
END
  chmod +x "$scratch/program"
  local fence='```'
  expect '' '[a](README.md) [b](README.md#part) [c](https://example.org/x) [d](#here)'
  expect "'missing.md' leads nowhere" 'see [a](README.md) and [b](missing.md)'
  expect "'x.svg' leads nowhere" '![picture](x.svg)'
  expect '' "$fence"$'\ndenseformer train --steps 5 --quiet # --bad\ndenseformer data info x --json | jq --bad\n'"$fence"
  expect '' '`denseformer COMMAND --whatever` `denseformer --version` `denseformer data info [x]`'
  expect "no option '--stps'" "$fence"$'\n$ build/release/denseformer train \\\n  --stps 5\n'"$fence"
  expect "no command 'trane'" 'call `denseformer trane --steps 5` now'
  expect "no option '--steps'" 'call `denseformer data info --steps=5` now'
  echo "self test passed"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
check "$1" "$2"
[ "$failures" = 0 ] || { echo "$failures mistakes in the documents"; exit 1; }
