#!/usr/bin/env bash
# Opens a report in Debian's chromium: no message in the console, charts with their elements, values
# under the pointer, zoom, smoothing, axes, seeds, tabs and legend; wide and as narrow as a phone, light and dark.
#
#   tests/browser/browser_test.sh PROGRAM PROBE     status 77 where there is no chromium
set -euo pipefail

program=$1 probe=$2
if ! browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
  echo "SKIPPED: no chromium here, so the report is not opened (package chromium)"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# Three small runs with every analysis, two of them seeds of one configuration.
for n in $(seq 300); do echo "$n green bottles hanging on the wall, and $((n - 1)) on the floor."; done >text.txt
"$program" tokenizer train --vocab 300 --output tokenizer.json text.txt --quiet >/dev/null
head -30 text.txt >val.txt
"$program" data prepare text.txt --val val.txt --tokenizer tokenizer.json --output data --quiet >/dev/null
for run in plain:none:1 dense:1x1:1 dense2:1x1:2; do
  IFS=: read -r name dwa seed <<<"$run"
  "$program" train "$name" --preset test --vocab-size 300 --dwa "$dwa" --seed "$seed" --data data --steps 320 --log-every 1 \
    --eval-every 80 --eval-batches 1 --set log.alphas_every=80 --threads 1 --quiet >/dev/null
done
"$program" analyze plain dense dense2 --tokens 512 --threads 1 --quiet >/dev/null
"$program" report plain dense dense2 -o report.html --sample-tokens 8 --threads 1 --quiet >/dev/null

# The page as it is, and with the probe at its end.
sed '/<\/body>/,$d' report.html >probed.html
{ echo '<script>'; cat "$probe"; echo '</script></body></html>'; } >>probed.html

failures=0
# open PAGE WIDTH SCHEME: the DOM to dom.html, messages to messages.
open() {
  rm -rf profile
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
    --user-data-dir="$scratch/profile" --enable-logging=stderr --v=0 --window-size="$2",900 \
    --blink-settings=preferredColorScheme="$3" --dump-dom "file://$scratch/$1" >dom.html 2>messages ||
    { echo "the browser ended with status $?"; tail -5 messages; exit 1; }
}
for setting in "1280 1 wide and light" "1280 0 wide and dark" "390 1 narrow"; do
  read -r width scheme name <<<"$setting"
  open probed.html "$width" "$scheme"
  results=$(grep '^PROBE ' dom.html || true)
  [ "$(grep -c ': ok$' <<<"$results")" -ge 22 ] || { echo "$name: only these results: $results"; failures=1; }
  if grep -v ': ok$' <<<"$results"; then
    echo "$name: the lines above are wrong"
    failures=1
  fi
  if grep -E 'CONSOLE|Uncaught|ERROR:.*js' messages; then
    echo "$name: the console has messages"
    failures=1
  fi
done

# The test sees a message where there is one.
echo '<script>console.error("seen"); undefinedFunction();</script>' >broken.html
open broken.html 800 1
grep -q 'CONSOLE.*seen' messages && grep -q 'CONSOLE.*undefinedFunction' messages ||
  { echo "messages of the console are not seen"; cat messages; failures=1; }
exit $failures
