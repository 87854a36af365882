#!/usr/bin/env bash
# Puts together what the machines of `make cluster` download: programs and images, laid out as a mirror that an air-gapped user keeps
# (`software.baseURL`, `imageRepository`; tests/src/cluster/depot.rs serves it). Prints the mirror's folder.
#
#   tests/cluster/software.sh             builds what is missing: most of an hour on one processor, once
#   tests/cluster/software.sh --cached    only if it is there
#
# Everything is built from its Go module, whose sums Go checks against its own database, and kept by version outside the checkout, in
# $SLIPWAY_CACHE (~/.cache/slipway). Which versions: those that shared/render names, or the nearest that the module proxy lists. What is not
# upstream's own here: the CNI plugin of flannel (flannel-cni/), and the images, which are ours: the same programs, and Debian's iptables.
# JOBS bounds the processors. Status 3: it cannot be had here, which is said loudly.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slipway}
kubernetes=$(sed -n 's/^require k8s.io\/kubernetes v//p' "$root/tests/tools/kubernetes/go.mod")
agnhost=2.63.0 etcd=3.6.16 containerd=2.4.2 runc=1.5.2 plugins=1.9.1 coredns=1.14.6 flannel=0.28.10 cloud=1.36.2 pause=3.10.2
version=$kubernetes-$(cat "$here/software.sh" "$here/oci_image.py" "$here"/flannel-cni/* | sha256sum | cut -c1-12)
depot=$cache/depots/$version

absent() {
    echo "!!! NOT TESTED: a cluster on virtual machines: $1" >&2
    exit 3
}

if [ -e "$depot/.complete" ]; then echo "$depot" && exit 0; fi
if [ "${1-}" = --cached ]; then absent "its programs were not built here (tests/cluster/software.sh)"; fi
[ "$(id -u)" = 0 ] || absent "images are put together as root"
for program in go gcc mmdebstrap python3 pkg-config; do
    command -v "$program" >/dev/null || absent "there is no $program"
done
pkg-config --exists libseccomp || absent "there is no libseccomp for runc (apt-get install libseccomp-dev)"

mkdir -p "$cache/depots" "$cache/programs"
exec 9>"$cache/software.lock"
flock 9
if [ -e "$depot/.complete" ]; then echo "$depot" && exit 0; fi

jobs=${JOBS:-$(nproc)}
export GOTOOLCHAIN=local GOMAXPROCS=$jobs GOFLAGS="-p=$jobs -trimpath -buildvcs=false" CGO_ENABLED=0

# build NAME MODULE VERSION FLAGS PACKAGE...: its programs, in $cache/programs/NAME-VERSION.
build() {
    local home=$cache/programs/$1-$3 module=$2 version=$3 flags=$4 package
    if [ -e "$home/.complete" ]; then return; fi
    echo "building $1 $version (once)" >&2
    rm -rf "$home"
    mkdir -p "$home/source"
    (
        cd "$home/source"
        go mod init "slipway.test/$1"
        go get "$module@v$version"
        for package in "${@:5}"; do
            go get "$package"
            # shellcheck disable=SC2086
            nice go build $flags -ldflags '-s -w' -o "$home/" "$package"
        done
    ) >"$home/log" 2>&1 || absent "$1 $version cannot be built: $(tail -1 "$home/log")"
    rm -rf "$home/source"
    touch "$home/.complete"
}

of=github.com/containernetworking/plugins
build plugins $of "$plugins" "" $of/plugins/main/bridge $of/plugins/ipam/host-local $of/plugins/main/loopback $of/plugins/meta/portmap
build etcd go.etcd.io/etcd/server/v3 "$etcd" "" go.etcd.io/etcd/server/v3
build etcdctl go.etcd.io/etcd/etcdctl/v3 "$etcd" "" go.etcd.io/etcd/etcdctl/v3
build etcdutl go.etcd.io/etcd/etcdutl/v3 "$etcd" "" go.etcd.io/etcd/etcdutl/v3
of=github.com/containerd/containerd/v2
build containerd $of "$containerd" "" $of/cmd/containerd $of/cmd/containerd-shim-runc-v2 $of/cmd/ctr
CGO_ENABLED=1 build runc github.com/opencontainers/runc "$runc" -tags=seccomp github.com/opencontainers/runc
# flannel without two of its backends: Tencent's, whose SDK the module proxy does not list, and UDP, which needs cgo. Its own main.go but
# for their imports, with its own requirements and sums.
home=$cache/programs/flannel-$flannel
if [ ! -e "$home/.complete" ]; then
    echo "building flannel $flannel (once)" >&2
    rm -rf "$home"
    mkdir -p "$home/source"
    (
        cd "$home/source"
        module=github.com/flannel-io/flannel
        go mod init slipway.test/flannel
        go mod edit -require "$module@v$flannel"
        go mod download "$module"
        theirs=$(go list -m -f '{{.Dir}}' "$module")
        grep -v -e backend/tencentvpc -e backend/udp "$theirs/main.go" >main.go
        sed 's#^module .*#module slipway.test/flannel#' "$theirs/go.mod" >go.mod
        cp "$theirs/go.sum" go.sum
        chmod u+w go.mod go.sum main.go
        go mod edit -require "$module@v$flannel"
        go mod download "$module"
        nice go build -mod=mod -ldflags "-s -w -X $module/pkg/version.Version=v$flannel" -o "$home/flannel" .
    ) >"$home/log" 2>&1 || absent "flannel $flannel cannot be built: $(tail -1 "$home/log")"
    rm -rf "$home/source"
    touch "$home/.complete"
fi
build coredns github.com/coredns/coredns "$coredns" "" github.com/coredns/coredns
of=k8s.io/cloud-provider-aws
build cloud $of "$cloud" "" $of/cmd/aws-cloud-controller-manager

servers=$cache/programs/kubernetes-$kubernetes
if [ ! -e "$servers/.complete" ]; then
    built=$("$root/tests/scripts/kubernetes.sh") || exit $?
    mkdir -p "$servers"
    cp "$built"/kube* "$servers/"
    touch "$servers/.complete"
fi

# What Kubernetes' own tests put into pods: a server that is asked who it is, what it sees, and whom it reaches.
home=$cache/programs/agnhost-$kubernetes
if [ ! -e "$home/.complete" ]; then
    echo "building agnhost of Kubernetes $kubernetes (once)" >&2
    mkdir -p "$home"
    (cd "$root/tests/tools/kubernetes" && nice go build -mod=readonly -ldflags '-s -w' -o "$home/agnhost" k8s.io/kubernetes/test/images/agnhost) \
        >"$home/log" 2>&1 || absent "agnhost cannot be built: $(tail -1 "$home/log")"
    touch "$home/.complete"
fi

made=$cache/programs/ours-$version
rm -rf "$made"
mkdir -p "$made"
(cd "$here/flannel-cni" && go build -ldflags '-s -w' -o "$made/flannel" .) >&2
# Upstream's own source: k8s.io/kubernetes, build/pause.
source=$(cd "$root/tests/tools/kubernetes" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)/build/pause/linux/pause.c
gcc -Os -Wall -static -DVERSION="v$pause" -o "$made/pause" "$source" >&2
strip "$made/pause"

# What upstream's images have for kube-proxy and flannel: iptables and nft, of Debian. Extracted, not installed: the links are ours.
base=$cache/programs/base-bookworm
if [ ! -e "$base.complete" ]; then
    rm -rf "$base"
    mmdebstrap --quiet --variant=extract --include=iptables,nftables,conntrack,kmod,coreutils,libc6,base-files \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        bookworm "$base" >&2 || absent "mmdebstrap failed"
    for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
        ln -sf xtables-nft-multi "$base/usr/sbin/$name"
    done
    rm -rf "$base"/dev "$base"/proc "$base"/sys "$base"/run "$base"/tmp "$base"/var "$base"/boot "$base"/usr/share/doc
    mkdir -p "$base/run" "$base/tmp" "$base/var"
    touch "$base.complete"
fi

draft=$depot.draft
rm -rf "$draft"
mkdir -p "$draft/files"

# publish PATH < content, with its checksum where shared/render/src/software.rs looks for it.
publish() {
    mkdir -p "$draft/files/$(dirname "$1")"
    cat >"$draft/files/$1"
    (cd "$draft/files/$(dirname "$1")" && sha256sum "$(basename "$1")") >"$draft/files/${2:-$1.sha256}"
}
archive() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 -czf - "${@:2}"; }
publish "dl.k8s.io/release/v$kubernetes/bin/linux/amd64/kubelet" <"$servers/kubelet"
of=github.com/containernetworking/plugins/releases/download/v$plugins
archive "$cache/programs/plugins-$plugins" bridge host-local loopback portmap | publish "$of/cni-plugins-linux-amd64-v$plugins.tgz"
of=github.com/containerd/containerd/releases/download/v$containerd/containerd-$containerd-linux-amd64.tar.gz
archive "$cache/programs/containerd-$containerd" containerd containerd-shim-runc-v2 ctr | publish "$of" "$of.sha256sum"
of=github.com/opencontainers/runc/releases/download/v$runc
publish "$of/runc.amd64" "$of/runc.sha256sum" <"$cache/programs/runc-$runc/runc"
of=github.com/etcd-io/etcd/releases/download/v$etcd
both=$made/etcd
mkdir -p "$both"
cp "$cache/programs/etcd-$etcd/server" "$both/etcd"
cp "$cache/programs/etcdctl-$etcd/etcdctl" "$both/etcdctl"
cp "$cache/programs/etcdutl-$etcd/etcdutl" "$both/etcdutl"
archive "$both" etcd etcdctl etcdutl | publish "$of/etcd-v$etcd-linux-amd64.tar.gz" "$of/SHA256SUMS"

# image REFERENCE PROGRAM PATH ARGUMENTS...: the program at that path, over what else is given.
image() {
    local layer
    layer=$made/layer-$(basename "$2")
    rm -rf "$layer"
    mkdir -p "$layer/$(dirname "$3")"
    cp "$2" "$layer/$3"
    chmod 755 "$layer/$3"
    "$here/oci_image.py" "$draft" "$1" --entrypoint "/$3" "${@:4}" "$layer" >&2
}
for server in kube-apiserver kube-controller-manager kube-scheduler; do
    image "registry.k8s.io/$server:v$kubernetes" "$servers/$server" "usr/local/bin/$server"
done
image "registry.k8s.io/kube-proxy:v$kubernetes" "$servers/kube-proxy" usr/local/bin/kube-proxy "$base"
image "registry.k8s.io/pause:$pause" "$made/pause" pause --user 65535:65535
image "registry.k8s.io/coredns/coredns:v$coredns" "$cache/programs/coredns-$coredns/coredns" coredns
image "ghcr.io/flannel-io/flannel:v$flannel" "$cache/programs/flannel-$flannel/flannel" opt/bin/flanneld "$base"
image ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1 "$made/flannel" flannel "$base"
mkdir -p "$made/trust/etc/ssl/certs"
cat "$("$here/authority.sh")/authority.pem" >"$made/trust/etc/ssl/certs/ca-certificates.crt"
image "registry.k8s.io/provider-aws/cloud-controller-manager:v$cloud" "$cache/programs/cloud-$cloud/aws-cloud-controller-manager" \
    bin/aws-cloud-controller-manager "$made/trust"

image "registry.k8s.io/e2e-test-images/agnhost:$agnhost" "$home/agnhost" agnhost
cp "$servers/kubectl" "$draft/kubectl"

rm -rf "$depot"
mv "$draft" "$depot"
touch "$depot/.complete"
echo "$depot"
