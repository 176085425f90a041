#!/usr/bin/env bash
# Packs the build as a Debian package, unpacks it into an empty folder, and runs the program from there. Ends with 77
# (skipped) where there is no dpkg.
#
#   tests/package_test.sh BUILD
set -euo pipefail

build=$1
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: no $tool here"; exit 77; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

(cd "$build" && cpack -G DEB -B "$scratch/out" >"$scratch/log" 2>&1) || { cat "$scratch/log"; exit 1; }
packages=("$scratch"/out/*.deb)
[ ${#packages[@]} = 1 ] || { echo "expected one package: ${packages[*]}"; exit 1; }
deb=${packages[0]}
[ "$(dpkg-deb -f "$deb" Package)" = denseformer ] || { echo "wrong name"; dpkg-deb -I "$deb"; exit 1; }
for library in libdnnl libfmt libzstd; do
  dpkg-deb -f "$deb" Depends | grep -q "$library" || { echo "does not depend on $library"; dpkg-deb -I "$deb"; exit 1; }
done

prefix=$scratch/prefix
dpkg-deb -x "$deb" "$prefix"
for file in bin/denseformer share/man/man1/denseformer.1 share/bash-completion/completions/denseformer \
  share/zsh/site-functions/_denseformer; do
  [ -s "$prefix/usr/$file" ] || [ -s "$prefix/usr/$file.gz" ] || { echo "no usr/$file in the package"; dpkg-deb -c "$deb"; exit 1; }
done
if dpkg-deb -c "$deb" | grep -E '\.(h|a|cmake|pc)$'; then
  echo "files for developers in the package of the program"
  exit 1
fi

# The program from the package, with an empty environment, far from the sources.
cd "$prefix"
run() { env -i PATH=/usr/bin:/bin HOME="$prefix" "$prefix/usr/bin/denseformer" "$@"; }
run --version | grep -q '^denseformer [0-9]'
run info --preset test --json | grep -q '"parameters"'
seq 400 >text.txt
run tokenizer train --vocab 270 --output tokenizer.json text.txt --quiet >/dev/null
run data prepare text.txt --val text.txt --tokenizer tokenizer.json --output data --quiet >/dev/null
run train run --preset test --vocab-size 270 --data data --steps 2 --threads 1 --quiet >/dev/null
run generate run --prompt 1 --max-tokens 3 --threads 1 --quiet >/dev/null

# Completion as bash calls it.
source usr/share/bash-completion/completions/denseformer
complete_words() {
  COMP_WORDS=(denseformer "$@") COMP_CWORD=$# COMPREPLY=()
  _denseformer
  echo "${COMPREPLY[*]}"
}
expect() {
  local want=$1 got
  shift
  got=$(complete_words "$@")
  [ "$got" = "$want" ] || { echo "completion of '$*': got '$got', expected '$want'"; exit 1; }
}
expect "train" tr
expect "prepare" data prep
expect "--vocab-size" train run --vocab-si
expect "native" export run --format na
expect "fp32 bf16 int8" export run --dtype ""
expect "" train ""
expect "bash" completion ba
if command -v zsh >/dev/null; then zsh -n usr/share/zsh/site-functions/_denseformer; fi

# The manual page formats without a complaint and has every command.
page=$(ls usr/share/man/man1/denseformer.1*)
[[ $page != *.gz ]] || { gunzip "$page"; page=${page%.gz}; }
if command -v groff >/dev/null; then
  complaints=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null)
  [ -z "$complaints" ] || { echo "$complaints"; exit 1; }
fi
for command in $(run --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  grep -q "^.SS denseformer $command" "$page" || { echo "the manual page lacks $command"; exit 1; }
done
echo "$(basename "$deb"): installed and run"
