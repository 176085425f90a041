# Shared by the scripts of this folder: messages, and Debian's packages. Source it with bash after
# `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Says what happens next.
say() { printf '== %s\n' "$*" >&2; }

# Ends the script with one line that says what is wrong.
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# The packages of the named groups of scripts/packages.
packages() {
  awk -v groups=" $* " '!/^#/ && NF && index(groups, " " $1 " ") { print $2 }' "$root/scripts/packages"
}

# Those of the packages in the arguments that are not installed.
missing_packages() {
  local package state
  for package in "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null) || state=
    [[ " $state" == *" installed "* ]] || echo "$package"
  done
}

# Runs apt-get as root without questions; its output goes to the log named by $install_log.
apt() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
    # Without someone to type a password, sudo must not wait for one.
    if [ -n "${CI:-}" ] || ! { : </dev/tty; } 2>/dev/null; then as_root+=(-n); fi
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" >>"$install_log" 2>&1 </dev/null
}

# The last complaint of apt-get, for an error of one line.
apt_complaint() { grep -E '^(E|Err|sudo|dpkg: error)' "$install_log" | tail -n 1 || true; }

# install_packages GROUP...: installs what is missing of these groups; says and does nothing where
# all is there. DENSEFORMER_NO_INSTALL=1 trusts that the packages, or their equals, are there.
install_packages() {
  [ -z "${DENSEFORMER_NO_INSTALL:-}" ] || return 0
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "needs Debian 12 or newer (no apt-get here); with what scripts/packages lists installed by other means, set DENSEFORMER_NO_INSTALL=1"
  local wanted
  mapfile -t wanted < <(missing_packages $(packages "$@"))
  [ ${#wanted[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "missing packages: ${wanted[*]}; run as root or install sudo"

  mkdir -p "$root/build"
  install_log=$root/build/install.log
  : >"$install_log"
  say "Installing ${#wanted[@]} Debian packages: ${wanted[*]}"
  apt update || die "apt-get update failed: $(apt_complaint) (log: build/install.log)"
  apt install --no-install-recommends "${wanted[@]}" ||
    die "apt-get install failed: $(apt_complaint) (log: build/install.log)"
}

# The number of compilers to run side by side: one per core, as far as the memory allows (2 GB each).
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 2000000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# build PRESET [OPTION...]: configures with these options of cmake, and builds in build/PRESET.
build() {
  local log=$root/build/$1/configure.log
  mkdir -p "$root/build/$1"
  say "Building build/$1"
  (cd "$root" && cmake --preset "$@") >"$log" 2>&1 ||
    { cat "$log" >&2; die "configuring build/$1 failed (log: build/$1/configure.log)"; }
  (cd "$root" && cmake --build --preset "$1" --parallel "${DENSEFORMER_JOBS:-$(build_jobs)}") ||
    die "building build/$1 failed"
}

# json_value FILE KEY: the first number of that name in a JSON file with one value per line.
json_value() { sed -n "s/^ *\"$2\": \(-\{0,1\}[0-9.e+-]*\),\{0,1\}\$/\1/p" "$1" | head -n 1; }
