#!/usr/bin/env bash
# Shows that scripts/figures --check finds a document that differs from the stored results, a table without a script and
# one without an end, and that scripts/figures mends the first.
#
#   tests/figures_test.sh ROOT
set -euo pipefail

root=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/docs" "$scratch/experiments/tables" "$scratch/experiments/results"
cp "$root/experiments/tables/lib.sh" "$scratch/experiments/tables/"
printf '{\n  "rows": [\n    {\n      "name": "a",\n      "ratio_of_medians": 1.25,\n      "ratio_of_minima": 1.5\n    }\n  ]\n}\n' \
  >"$scratch/experiments/results/x.json"
printf 'header name ratio\nrow a "$(ratio x.json a)"\n' >"$scratch/experiments/tables/x"

figures() { FIGURES_ROOT=$scratch "$root/scripts/figures" "$@" 2>&1; }
fail() { echo "figures_test: $*"; exit 1; }
# expect PATTERN: --check fails and says so.
expect() {
  local output
  output=$(figures --check) && fail "no failure, expected '$1'"
  grep -q -- "$1" <<<"$output" || fail "expected '$1', got: $output"
}

printf 'no table\n' >"$scratch/docs/a.md"
expect "no table in the documents"
printf 'text\n<!-- table x -->\n| a | 1.24x / 1.50x |\n<!-- end of table x -->\nmore text\n' >"$scratch/docs/a.md"
expect "docs/a.md differs from experiments/results"
[ "$(figures)" = docs/a.md ] || fail "the document is not mended"
figures --check >/dev/null || fail "a mended document is refused"
printf 'text\n<!-- table x -->\n| name | ratio |\n| --- | --- |\n| a | 1.25x / 1.50x |\n<!-- end of table x -->\nmore text\n' |
  cmp - "$scratch/docs/a.md" || fail "the table is not the expected one"
sed -i 's/1.25/1.35/' "$scratch/experiments/results/x.json"
expect "a | 1.35x / 1.50x"
printf 'row "$(ratio x.json b)"\n' >"$scratch/experiments/tables/x"
expect 'no ratio_of_medians of "b" in'
printf '<!-- table y -->\n<!-- end of table y -->\n' >"$scratch/docs/a.md"
expect "no script experiments/tables/y"
printf '<!-- table x -->\n' >"$scratch/docs/a.md"
printf 'row a\n' >"$scratch/experiments/tables/x"
expect "no line '<!-- end of table x -->'"
echo "figures: passed"
