#!/usr/bin/env bash
# Opens the page of `denseformer serve` in Debian's chromium: streams a text, looks at alternatives and at the depth of a token by pointer and
# by keyboard, with no message in the console; wide and as narrow as a phone, light and dark.
#
#   tests/browser/serve_test.sh PROGRAM PROBE [PICTURES]     status 77 where there is no chromium; pictures go to the directory
set -euo pipefail

program=$1 probe=$(realpath "$2") pictures=${3:-}
if ! browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
  echo "SKIPPED: no chromium here, so the page is not opened (package chromium)"
  exit 77
fi
scratch=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
cd "$scratch"

for n in $(seq 100); do echo "the quick brown fox jumps over $n lazy dogs"; done >text.txt
"$program" data prepare text.txt --tokenizer bytes --output data --quiet >/dev/null
"$program" train run --preset test --dwa 1x1 --streams rv --data data --steps 40 --threads 1 --quiet >/dev/null

# The page as it is served, and as a file with the probe in it, which calls the server from another origin.
"$program" serve run --port 0 --cors-origin null --max-logprobs 5 --threads 1 2>log &
server=$!
for _ in $(seq 200); do
  grep -q ready log && break
  kill -0 "$server" || { cat log; exit 1; }
  sleep 0.1
done
url=$(grep -o 'http://[^ ]*' log)
fetch() { # PATH
  exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3
  sed '1,/^\r$/d' <&3
  exec 3<&-
}
{
  fetch / | sed "s|<html lang=\"en\">|<html lang=\"en\" data-api=\"$url\">|; /<link rel=\"stylesheet\"/d; /<script src/,\$d"
  echo '<style>'; fetch /page.css; echo '</style><script>'; fetch /page.js; echo '</script><script>'; cat "$probe"; echo '</script></body></html>'
} >probed.html

flags=(--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
  --disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr --v=0)
failures=0
# open PAGE WIDTH SCHEME FLAGS...: messages to messages.
open() {
  local page=$1 width=$2 scheme=$3
  shift 3
  rm -rf profile
  timeout 120 "$browser" "${flags[@]}" --user-data-dir="$scratch/profile" --window-size="$width",1400 \
    --blink-settings=preferredColorScheme="$scheme" --virtual-time-budget=2000000 "$@" "$page" 2>messages ||
    { echo "the browser ended with status $?"; tail -5 messages; exit 1; }
  if grep -E 'CONSOLE|Uncaught|ERROR:.*js' messages; then
    echo "$page, $width wide: the console has messages"
    failures=1
  fi
}
for setting in "1280 1 wide and light" "1280 0 wide and dark" "390 0 a phone, dark"; do
  read -r width scheme name <<<"$setting"
  open "file://$scratch/probed.html" "$width" "$scheme" --dump-dom >dom.html
  results=$(grep '^PROBE ' dom.html || true)
  [ "$(grep -c ': ok$' <<<"$results")" -ge 18 ] || { echo "$name: only these results: $results"; failures=1; }
  if grep -v ': ok$' <<<"$results"; then
    echo "$name: the lines above are wrong"
    failures=1
  fi
  if [ -n "$pictures" ]; then
    open "file://$scratch/probed.html" "$width" "$scheme" --screenshot="$pictures/page-$width-$scheme.png" >/dev/null
  fi
done
# As it is served, under its own policy.
open "$url/" 800 1 --dump-dom >dom.html
grep -q 'id="model" class="soft">run<' dom.html || { echo "the served page does not show the model"; failures=1; }
kill "$server"
wait "$server" || { echo "the server ended with status $?"; failures=1; }
server=
exit $failures
