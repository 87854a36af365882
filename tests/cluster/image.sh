#!/usr/bin/env bash
# Makes the image that all virtual machines of `make cluster` boot from: Debian 12 with what Debian's own image for EC2 has of use to us,
# as one ext4 file system, with its kernel and initrd beside it. Prints its folder: root.ext4 (never written to again), vmlinuz, initrd.
#
#   tests/cluster/image.sh             makes what is missing: three minutes, once
#   tests/cluster/image.sh --cached    only if it is there
#
# It is kept outside the checkout, in $SLIPWAY_CACHE (~/.cache/slipway), by the digest of what it is made by.
# Status 3: it cannot be made here, which is said loudly.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
release=bookworm
version=$release-$(cat "$here/image.sh" "$here/authority.sh" "$here"/image/* | sha256sum | cut -c1-12)
home=$cache/images/$version

absent() {
    echo "!!! NOT TESTED: virtual machines: $1" >&2
    exit 3
}

if [ -e "$home/.complete" ]; then echo "$home" && exit 0; fi
if [ "${1-}" = --cached ]; then absent "their image was not made here (tests/cluster/image.sh)"; fi
[ "$(id -u)" = 0 ] || absent "their image is made as root"
for program in mmdebstrap mke2fs openssl; do
    command -v "$program" >/dev/null || absent "there is no $program (apt-get install mmdebstrap e2fsprogs openssl)"
done
authority=$("$here/authority.sh")

mkdir -p "$cache/images"
exec 9>"$home.lock"
flock 9
if [ -e "$home/.complete" ]; then echo "$home" && exit 0; fi
echo "making the virtual machines' image (once, three minutes)" >&2
rm -rf "$home"
mkdir -p "$home"
# One that was interrupted may still be at work in its own.
tree=$(mktemp -d --tmpdir="$home" --suffix=.tree)
chmod 755 "$tree"

# As Debian's own: github.com/debian-cloud-images, config_space/bookworm/package_config (base, cloud and EC2), without what only people use.
# No SSM agent is in Debian, nor in its image; ours stands in for it: image/ssm-agent.py.
packages=(
    linux-image-cloud-amd64 initramfs-tools systemd systemd-sysv systemd-resolved systemd-timesyncd libpam-systemd libnss-resolve dbus udev kmod
    cloud-init cloud-guest-utils isc-dhcp-client netplan.io e2fsprogs fdisk
    openssh-server locales ca-certificates curl openssl iproute2 iputils-ping procps nftables iptables ethtool conntrack socat less mdadm xfsprogs
)
include=$(
    IFS=,
    echo "${packages[*]}"
)
mmdebstrap --quiet --variant=minbase --include="$include" \
    --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --customize-hook="$here/image/customize.sh \"\$1\" $authority/authority.pem" \
    "$release" "$tree" >&2 || absent "mmdebstrap failed"

mv "$tree"/boot/vmlinuz-* "$home/vmlinuz"
mv "$tree"/boot/initrd.img-* "$home/initrd"
# With a tenth to spare: each machine's own disk is as large as its template says, and cloud-init grows the file system.
size=$(du -sm "$tree" | cut -f1)
mke2fs -q -t ext4 -L root -d "$tree" -E lazy_itable_init=1 "$home/root.ext4" "$((size * 13 / 10 + 200))M" >&2
rm -rf "$tree"
chmod a-w "$home/root.ext4"
touch "$home/.complete"
echo "$home"
