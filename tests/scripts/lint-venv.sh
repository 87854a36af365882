#!/usr/bin/env bash
# Makes .tools/lint, the venv of tests/requirements-lint.txt, unless it stands already. About half a minute, once.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/.tools/lint
wanted=$root/tests/requirements-lint.txt

mkdir -p "$root/.tools"
exec 9>"$root/.tools/lint.lock"
flock 9
if ! cmp -s "$wanted" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    # Last, so that an interrupted installation is begun anew.
    cp "$wanted" "$venv/installed.txt"
fi
