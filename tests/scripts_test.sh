#!/usr/bin/env bash
# Tests scripts/lib.sh with a fake dpkg-query, apt-get, id and sudo: what is installed, how, and what
# is said when that fails.
#
#   tests/scripts_test.sh ROOT
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$1/scripts" "$scratch/"
cd "$scratch"
mkdir bin
for tool in awk bash cat dirname env grep mkdir nproc rm tail; do
  ln -s "$(command -v "$tool")" "bin/$tool"
done

# fake NAME: a program of that name with the script on stdin.
fake() {
  { echo '#!/bin/bash'; cat; } >"bin/$1"
  chmod +x "bin/$1"
}

# INSTALLED names the packages that are there, FAIL the step of apt-get that fails, USER_ID the user.
fake dpkg-query <<'END'
for package; do :; done
[[ " $INSTALLED " == *" $package "* ]] && echo -n "installed " || exit 1
END
fake apt-get <<'END'
echo "apt-get $* frontend=$DEBIAN_FRONTEND" >>calls
[[ -n "${FAIL:-}" && " $* " == *" $FAIL "* ]] && { echo "noise"; echo "E: Unable to fetch something"; exit 100; }
exit 0
END
fake id <<<'echo "${USER_ID:-0}"'

# The group `test` is all there unless a case says otherwise.
all=$(awk '!/^#/ && $1 == "test" { printf "%s ", $2 }' scripts/packages)
[ -n "$all" ] || { echo "no packages in the group test"; exit 1; }

# run: install_packages test with the fakes; sets status, output and the calls of apt-get.
run() {
  rm -f calls
  status=0
  output=$(PATH=$scratch/bin bash -c 'set -euo pipefail; source scripts/lib.sh; install_packages test' test 2>&1) || status=$?
  calls=$(cat calls 2>/dev/null || true)
}

fail() {
  printf '%s\nstatus: %s\noutput: %s\ncalls: %s\n' "$1" "$status" "$output" "$calls"
  exit 1
}

CI=true
export CI INSTALLED FAIL USER_ID
INSTALLED=$all FAIL='' USER_ID=0 run
[ "$status" = 0 ] && [ -z "$output$calls" ] || fail "with all there it must be silent and do nothing"

INSTALLED=${all/libgtest-dev /} run
[ "$status" = 0 ] || fail "one package is missing: it must be installed"
[[ $output == *"Installing 1 Debian packages: libgtest-dev"* ]] || fail "it must say what it installs"
[[ $calls == *" update "*$'\n'*" install --no-install-recommends libgtest-dev frontend=noninteractive" ]] ||
  fail "update, then install without recommended packages and without questions"

INSTALLED='' FAIL=update run
[ "$status" = 1 ] && [[ ${output##*$'\n'} == "test: apt-get update failed: E: Unable to fetch something (log: build/install.log)" ]] ||
  fail "a failed update must end in one line with the reason"
INSTALLED='' FAIL=install run
[ "$status" = 1 ] && [[ ${output##*$'\n'} == "test: apt-get install failed: E: Unable to fetch something"* ]] ||
  fail "a failed installation must end in one line with the reason"

FAIL=''
INSTALLED='' USER_ID=1000 run
[ "$status" = 1 ] && [ -z "$calls" ] && [[ $output == *"run as root or install sudo" ]] ||
  fail "without root and sudo it must say so"
fake sudo <<<'echo "sudo $*" >>calls; [ "$1" = -n ] && shift; exec "$@"'
INSTALLED='' USER_ID=1000 run
[ "$status" = 0 ] && [[ $calls == "sudo -n env "*apt-get*install* ]] || fail "sudo must be used, and not ask in CI"

rm bin/apt-get
INSTALLED='' USER_ID=0 run
[ "$status" = 1 ] && [[ $output == "test: needs Debian 12"* ]] || fail "a system without apt-get must get one line"
DENSEFORMER_NO_INSTALL=1 run
[ "$status" = 0 ] && [ -z "$output" ] || fail "DENSEFORMER_NO_INSTALL must be honoured"

output=$(scripts/test nonsense 2>&1) && fail "an unknown stage must fail"
[ "$output" = "test: unknown stage 'nonsense', expected format, dev, tsan or release" ] || fail "unknown stage"
echo passed
