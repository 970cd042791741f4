#!/usr/bin/env bash
# Runs the lines of the README in a new venv with nothing but the wheel: fresh.sh WHEEL
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheel=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
cp "$wheel" .
"${PYTHON:-python3}" -m venv venv
"${PYTHON:-python3}" "$here/traffic.py" capture.pcap 5000

# The blocks of one language.
block() {
    awk -v kind="$1" '/^```/ { inside = ($0 == "```" kind) && !inside; next } inside' "$here/../README.md"
}

[[ $(cat <(block sh) <(block python) | grep -c .) == 10 ]] || { echo "the README has not ten lines" >&2; exit 1; }
# shellcheck source=/dev/null
source venv/bin/activate
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 MPLBACKEND=svg
block sh | bash -euo pipefail
block python | python -
grep -q '<svg' ratio.svg
echo "fresh: the lines of the README made a plot"
