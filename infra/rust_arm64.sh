#!/bin/sh
# Prints a folder with a `rustc` that builds for arm64 on an x86-64 Debian whose own toolchain has no standard library for it: Debian's
# rustc-web, fetched with apt-get and unpacked into .tools/rust-arm64/, without root and without installing anything. The linker is
# cargo-lambda's zig.
#
#   infra/rust_arm64.sh
#
# Status 3: it cannot be had, because this is no Debian or nothing answers. Quick when done; safe when run twice at once.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
home=$root/.tools/rust-arm64

absent() {
    echo "package: Debian's rustc-web cannot be had: $1" >&2
    exit 3
}

finish() {
    "$home/bin/rustc" --version >/dev/null || absent "$home/bin/rustc does not run"
    echo "$home/bin"
    exit 0
}

if [ -e "$home/.complete" ]; then finish; fi
[ "$(uname -m)" = x86_64 ] || absent "this is no x86-64 machine"
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then absent "there is no apt-get here"; fi

mkdir -p "$root/.tools"
exec 9>"$root/.tools/rust-arm64.lock"
flock 9
if [ -e "$home/.complete" ]; then finish; fi

rm -rf "$home"
mkdir -p "$home/bin" "$home/fetched/lists/partial" "$home/fetched/archives/partial"
cd "$home/fetched"
echo "fetching rustc-web, and its standard library for arm64, out of Debian into .tools/rust-arm64 (once)" >&2
# Our own lists, beside the system's, which know no arm64.
own="-o Dir::State::Lists=$home/fetched/lists -o Dir::Cache=$home/fetched -o APT::Architectures::=amd64 -o APT::Architectures::=arm64"
# shellcheck disable=SC2086
{
    apt-get -qq $own update >log 2>&1 || absent "apt-get update: $(tail -1 log)"
    # What the compiler is linked against has the version in its package's name.
    needs() { apt-cache $own depends "$1" | sed -n 's/^ *Depends: \('"$2"'[-0-9.]*\)$/\1/p'; }
    std=$(needs libstd-rust-web-dev libstd-rust-web-)
    llvm=$(needs "$std" libllvm)
    apt-get -qq $own download rustc-web "$std" "$llvm" libstd-rust-web-dev libstd-rust-web-dev:arm64 >>log 2>&1 ||
        absent "apt-get download: $(tail -1 log)"
}
for package in ./*.deb; do dpkg-deb -x "$package" "$home"; done
cd "$home"
cat >"$home/bin/rustc" <<END
#!/bin/sh
export LD_LIBRARY_PATH=$home/usr/lib/x86_64-linux-gnu
exec $home/usr/bin/rustc --sysroot $home/usr "\$@"
END
chmod +x "$home/bin/rustc"
rm -rf "$home/fetched"
touch "$home/.complete"
finish
