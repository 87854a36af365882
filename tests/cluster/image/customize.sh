#!/bin/sh
# What Debian's image for EC2 has beyond its packages, and what stands in for AWS' own: run by mmdebstrap on the tree.
set -eu
tree=$1
authority=$2
here=$(cd "$(dirname "$0")" && pwd)

cp "$authority" "$tree/usr/local/share/ca-certificates/slipway-tests.crt"
chroot "$tree" update-ca-certificates >/dev/null

echo '/dev/vda / ext4 rw,discard,errors=remount-ro,x-systemd.growfs 0 1' >"$tree/etc/fstab"
echo localhost >"$tree/etc/hostname"
: >"$tree/etc/machine-id"
# Each machine makes its own.
rm -f "$tree"/etc/ssh/ssh_host_*
ln -sf /run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
chroot "$tree" systemctl --quiet enable systemd-networkd systemd-resolved
# As Debian's image: the one source of data is EC2's.
echo 'datasource_list: [ Ec2 ]' >"$tree/etc/cloud/cloud.cfg.d/99_ec2.cfg"
# EC2's disks call themselves by this name; QEMU's do not let themselves be renamed.
cp "$here/99-ebs.rules" "$tree/etc/udev/rules.d/"
install -m 755 "$here/ssm-agent.py" "$tree/usr/local/sbin/amazon-ssm-agent"
cp "$here/amazon-ssm-agent.service" "$tree/etc/systemd/system/"
chroot "$tree" systemctl --quiet enable amazon-ssm-agent.service
# Nobody installs anything here, and nobody logs in; the journal is what a machine is asked for afterwards.
chroot "$tree" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer \
    getty@tty1.service
mkdir -p "$tree/var/log/journal" "$tree/etc/systemd/journald.conf.d"
# The console is what a machine is asked for that tells nothing else. What programs say on their standard streams is not on it: a kubelet
# that waits for its API says so eight times a second, and a serial line without KVM is slow.
cat >"$tree/etc/systemd/journald.conf.d/console.conf" <<'CONSOLE'
[Journal]
ForwardToConsole=yes
MaxLevelConsole=notice
TTYPath=/dev/ttyS0
CONSOLE
rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/*
