#!/usr/bin/env bash
# Makes the root file system that all machines of the tests boot from, into .tools/machines/: Debian's minbase with systemd,
# cloud-init and etcd. Needs root and mmdebstrap; half a minute, once. Prints its path.
#
# Status 3: it cannot be made here, which is said loudly.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
release=bookworm
home=$root/.tools/machines
tree=$home/$release

absent() {
    echo "!!! NOT TESTED: machines: $1" >&2
    exit 3
}

[ "$(id -u)" = 0 ] || absent "they need root"
for program in mmdebstrap systemd-nspawn unshare ip script; do
    command -v "$program" >/dev/null || absent "there is no $program (apt-get install mmdebstrap systemd-container iproute2)"
done
mkdir -p "$home"
exec 9>"$home/lock"
flock 9
if [ ! -e "$tree.complete" ]; then
    rm -rf "$tree"
    echo "making ${tree#"$root"/} (once)" >&2
    # e2fsprogs and iproute2: what every image of AWS has, and minbase has not.
    mmdebstrap --quiet --variant=minbase \
        --include=systemd,systemd-sysv,dbus,cloud-init,etcd-server,curl,ca-certificates,e2fsprogs,iproute2 \
        "$release" "$tree" >&2 || absent "mmdebstrap failed"
    touch "$tree.complete"
fi
echo "$tree"
