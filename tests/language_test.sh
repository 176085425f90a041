#!/usr/bin/env bash
# Finds words that the project does not use: British spellings, and private words where the field has a standard one.
#
#   tests/language_test.sh ROOT          sources, documents and scripts of ROOT; the table below says what to write instead
#   tests/language_test.sh --self-test   shows that it finds each of them
set -euo pipefail

# pattern (extended regular expression, whole words, any case) <TAB> what to write
words=$(sed 's/ *=> */\t/' <<'END'
optimis(e|ed|es|er|ers|ing|ation|ations)      => optimiz-
initialis(e|ed|es|er|ers|ing|ation)           => initializ-
normalis(e|ed|es|er|ing|ation)                => normaliz-
synchronis(e|ed|es|ing|ation)                 => synchroniz-
serialis(e|ed|es|er|ing|ation)                => serializ-
recognis(e|ed|es|ing)                         => recogniz-
organis(e|ed|es|ing|ation)                    => organiz-
quantis(e|ed|es|ing|ation)                    => quantiz-
minimis(e|ed|es|ing)                          => minimiz-
maximis(e|ed|es|ing)                          => maximiz-
generalis(e|ed|es|ing|ation)                  => generaliz-
analys(e|ed|ing)                              => analyz-
(re)?colou(r|rs|red|ring)                     => color
behaviou(r|rs)                                => behavior
neighbou(r|rs|ring)                           => neighbor
favou(r|rs|red|rite)                          => favor
labell(ed|ing)                                => labeled, labeling
modell(ed|ing)                                => modeled, modeling
anew                                          => again, from scratch, re-encoded
past the cache                                => with non-temporal stores, bypassing the cache
behind each other                             => contiguous
restless                                      => noisy
bad hour                                      => noisy period
kind to the limit                             => optimistic
once an epoch                                 => once per epoch
no run to go on with                          => nothing to resume
a sitting                                     => an interactive session
END
)
folders=(src include docs bench scripts addons experiments examples cmake)

# check ROOT: prints what it finds.
check() {
  local root=$1 pattern instead present=() folder
  for folder in "${folders[@]}"; do
    if [ -d "$root/$folder" ]; then present+=("$folder"); fi
  done
  while IFS=$'\t' read -r pattern instead; do
    (cd "$root" && grep -rInwiE --exclude-dir=testdata --exclude-dir=build -e "$pattern" "${present[@]}" ./*.md ./CMakeLists.txt 2>/dev/null) |
      sed "s|^\./||; s|\$|    <- write: $instead|" || true
  done <<<"$words"
}

if [ "${1:-}" = --self-test ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch/src"
  count=0
  # The first alternative of each pattern is a word that must be found.
  while IFS=$'\t' read -r pattern _; do
    word=$(sed -E 's/\(re\)\?//; s/\(([^|)]*)[^)]*\)/\1/g' <<<"$pattern")
    printf '// A line with %s in it.\n' "${word^}" >"$scratch/src/a.cc"
    check "$scratch" | grep -q "src/a.cc:1:.*$word" -i || { echo "self test: '$word' is not found"; exit 1; }
    count=$((count + 1))
  done <<<"$words"
  printf '// The optimizer colors its neighbors; janewho, analysis, organism, favorite.\n' >"$scratch/src/a.cc"
  found=$(check "$scratch")
  [ -z "$found" ] || { echo "self test: found in a clean file: $found"; exit 1; }
  echo "self test passed: $count patterns"
  exit
fi
found=$(check "$1")
[ -z "$found" ] || { printf '%s\n' "$found"; echo "$(wc -l <<<"$found") lines with words that the project does not use"; exit 1; }
