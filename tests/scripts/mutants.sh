#!/usr/bin/env bash
# Plants mistakes in the source of the rollout engine (cargo-mutants), one at a time, and says which of them nobody sees. The engine's own
# unit tests judge first, in seconds; what they miss is judged by trials of the simulator, which takes a minute or two for each.
#
#   tests/scripts/mutants.sh CARGO_MUTANTS [cargo-mutants' own options: --shard 0/40, --file shared/rollout/src/nodes/danger.rs, ...]
#
# SEEDS=300 says how many trials judge, 0 that none do. A survivor that tests/mutants-accepted.txt does not list makes it fail.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
tool=$(realpath "$1")
shift
out=target/mutants
mkdir -p "$out"
rm -rf "$out/mutants.out"
export CARGO_PROFILE_DEV_DEBUG=0
# A mutant that loops for ever is seen, too: the unit tests take some seconds.
options=(--package slipway-rollout --output "$out" --jobs 1 --cap-lints true --colors never --no-times)

# 2: some were missed; 3: some took too long.
judge() {
    local status=0
    "$tool" mutants "${options[@]}" "$@" || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne 2 ] && [ "$status" -ne 3 ]; then
        echo "cargo-mutants ended with $status" >&2
        exit "$status"
    fi
}

judge --timeout 60 "$@" -- --locked --lib
missed=$out/mutants.out/missed.txt
seeds=${SEEDS:-300}
if [ -s "$missed" ] && [ "$seeds" -gt 0 ]; then
    cp "$missed" "$out/missed-by-unit-tests.txt"
    SLIPWAY_SEEDS=$seeds judge --iterate --baseline skip --timeout 900 --test-package slipway-sim --profile simulate "$@" -- \
        --locked --test simulating every_seed_ends_well
fi

# Lines move; what a mutant is called without them stays.
unplaced() { sed -E 's/^([^:]+):[0-9]+:[0-9]+: /\1: /' | sort -u; }
survivors=$(unplaced <"$missed" | comm -23 - <(grep -v '^#' tests/mutants-accepted.txt | cut -d'|' -f1 | sed 's/ *$//' | sort -u))
caught=$(cat "$out/mutants.out/caught.txt" "$out/mutants.out/timeout.txt" | wc -l)
echo "mutants: $caught caught, $(wc -l <"$missed") survive"
if [ -n "$survivors" ]; then
    echo "not in tests/mutants-accepted.txt:" >&2
    echo "$survivors" >&2
    exit 1
fi
