#!/usr/bin/env bash
# Pictures of every page, in both languages, both themes and both widths, of a fleet that
# is simulated for them.
#
#   test/browser/screenshots.sh DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${1:?usage: test/browser/screenshots.sh DIR}
mkdir -p "$dir"
data=$(mktemp -d)
pid=
finish() {
	if [[ -n $pid ]]; then
		kill "$pid" 2>/dev/null && wait "$pid" || true
	fi
	rm -rf "$data"
}
trap finish EXIT

bin/gpumeter simulate --data "$data" --instances 200 --history 960h --prices deploy/prices.example.yaml
bin/gpumeter up --data "$data" --simulate 2 --listen 127.0.0.1:0 >"$dir/gpumeter.log" 2>&1 &
pid=$!
until url=$(sed -n 's/^gpumeter is ready: *\([^ ]*\).*/\1/p' "$dir/gpumeter.log") && [[ -n $url ]]; do
	kill -0 "$pid" 2>/dev/null || { cat "$dir/gpumeter.log" >&2; exit 1; }
	sleep 0.2
done
CHROMIUM=$GPUMETER_CHROMIUM node web/ui/scripts/screenshots.mjs "$url" "$dir"
