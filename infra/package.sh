#!/usr/bin/env bash
# Builds the functions for AWS Lambda and packs each into dist/ARCHITECTURE/NAME.zip, as `provided.al2023` wants it,
# beside a copy of the template that names the zips, and the node agent as dist/ARCHITECTURE/slipway-node:
#
#   infra/package.sh [arm64|x86_64] [--plain] [--agent]
#   sam deploy --guided --template-file dist/ARCHITECTURE/template.yaml --capabilities CAPABILITY_IAM
#   slipway publish-agent dist/ARCHITECTURE/slipway-node
#
# arm64 is the default, as in infra/template.yaml. With --plain, for x86_64 on an x86-64 Linux alone, it is built by
# cargo without cargo-lambda and zig; that binary needs the glibc symbols of this machine, which is checked.
# With --agent the agent alone, and nothing of the functions.
# The same sources and tools give the same zip: names sorted, times fixed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
functions=(slipway-render slipway-rollout slipway-scan)
agent=slipway-node
# Every new node fetches the agent before it does anything else.
agent_at_most=$((12 * 1024 * 1024))

architecture=arm64 plain= only_agent=
for argument in "$@"; do
    case $argument in
        arm64 | x86_64) architecture=$argument ;;
        --plain) plain=yes ;;
        --agent) only_agent=yes ;;
        *) sed -n '2,13p' "$0" >&2; exit 2 ;;
    esac
done
case $architecture in
    arm64) triple=aarch64-unknown-linux-gnu flag=--arm64 ;;
    x86_64) triple=x86_64-unknown-linux-gnu flag=--x86-64 ;;
esac

# cargo-lambda asks rustup, if it finds one, to install a missing target. What is installed is for a person to decide:
# the toolchain's own directory takes the place of rustup's.
cd "$root"
if command -v rustup >/dev/null; then
    toolchain=$(dirname "$(rustup which cargo)")
    path=$toolchain
    IFS=: read -ra directories <<<"$PATH"
    for directory in "${directories[@]}"; do
        [ -x "$directory/rustup" ] || path=$path:$directory
    done
    PATH=$path
fi
has_library() { [ -d "$(rustc --print target-libdir --target "$triple")" ]; }
if ! has_library && [ "$architecture" = arm64 ] && debian=$(infra/rust_arm64.sh); then
    PATH=$debian:$PATH
fi
if ! has_library; then
    echo "package: this toolchain has no standard library for $triple" >&2
    echo "         rustup target add $triple, or package for this machine's processor: infra/package.sh x86_64" >&2
    exit 1
fi

target=${CARGO_TARGET_DIR:-$root/target}
[ -z "$only_agent" ] || functions=()
packages=()
for function in "${functions[@]}"; do packages+=(--package "$function-function"); done
packages+=(--package "$agent")
if [ -n "$plain" ]; then
    if [ "$architecture" != x86_64 ] || [ "$(uname -sm)" != "Linux x86_64" ]; then
        echo "package: --plain builds for x86_64 on an x86-64 Linux alone" >&2
        exit 2
    fi
    cargo build --release --locked "${packages[@]}"
    binary() { echo "$target/release/$1"; }
else
    venv=$root/.tools/package
    if ! cmp -s infra/requirements-package.txt "$venv/installed.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r infra/requirements-package.txt
        cp infra/requirements-package.txt "$venv/installed.txt"
    fi
    PATH=$venv/bin:$PATH cargo lambda build --release --locked "$flag" "${packages[@]}"
    binary() { echo "$target/lambda/$1/bootstrap"; }
fi

mkdir -p "dist/$architecture"
for function in "${functions[@]}"; do
    # Amazon Linux 2023 has glibc 2.34.
    tests/scripts/glibc_ceiling.sh "$(binary "$function")" 2.34
    python3 - "$(binary "$function")" "dist/$architecture/$function.zip" <<'PYTHON'
import sys
import zipfile

source, path = sys.argv[1:]
entry = zipfile.ZipInfo("bootstrap", (1980, 1, 1, 0, 0, 0))
entry.compress_type = zipfile.ZIP_DEFLATED
entry.create_system = 3  # Unix, so that the mode counts.
entry.external_attr = 0o100755 << 16
with open(source, "rb") as file, zipfile.ZipFile(path, "w", compresslevel=9) as archive:
    archive.writestr(entry, file.read())
PYTHON
    printf '%s %9d bytes, zipped %8d\n' "dist/$architecture/$function.zip" \
        "$(stat -c %s "$(binary "$function")")" "$(stat -c %s "dist/$architecture/$function.zip")"
done

# Nodes run on images as old as that, too.
tests/scripts/glibc_ceiling.sh "$(binary "$agent")" 2.34
install -m 0755 "$(binary "$agent")" "dist/$architecture/$agent"
size=$(stat -c %s "dist/$architecture/$agent")
printf '%s %9d bytes\n' "dist/$architecture/$agent" "$size"
if [ "$size" -gt "$agent_at_most" ]; then
    echo "package: $agent has $size bytes, and may have $agent_at_most" >&2
    exit 1
fi
[ -z "$only_agent" ] || exit 0

# As cli/build.rs finds it.
commit=${SLIPWAY_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
sed -e 's#CodeUri: \.\./functions/\([a-z]*\)#CodeUri: slipway-\1.zip#' \
    -e "s#^    Default: arm64#    Default: $architecture#" \
    -e "s#(commit unknown)#(commit $commit)#" infra/template.yaml >"dist/$architecture/template.yaml"
for function in "${functions[@]}"; do
    grep -q "CodeUri: $function.zip" "dist/$architecture/template.yaml" ||
        { echo "package: infra/template.yaml names no $function" >&2; exit 1; }
done
grep -q "(commit $commit)" "dist/$architecture/template.yaml" ||
    { echo "package: infra/template.yaml has no place for the commit" >&2; exit 1; }
echo "dist/$architecture/template.yaml"
