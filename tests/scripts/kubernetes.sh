#!/bin/sh
# Prints the folder that has a real Kubernetes: kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet and kube-proxy.
# Built from the modules' own sources by Go, once, into .tools/kubernetes/<version>.
#
#   tests/scripts/kubernetes.sh             builds what is missing: half an hour on one processor
#   tests/scripts/kubernetes.sh --cached    only if it is there
#
# Which release: tests/tools/kubernetes/go.mod, with the sums of all that goes into it. The newest that the module proxy has whole.
# JOBS bounds the processors (all), PATIENCE the seconds (no end); what was compiled is kept, so the next run goes on from there.
# Status 3: it cannot be had, or not in that time; said loudly, since what needs it is then not tested. Safe when run twice at once.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
module=$root/tests/tools/kubernetes
kubernetes=$(sed -n 's/^require k8s.io\/kubernetes v//p' "$module/go.mod")
home=$root/.tools/kubernetes/$kubernetes

absent() {
    echo "!!! NOT TESTED: whatever needs a real Kubernetes $kubernetes: $1" >&2
    echo "!!! help: $2" >&2
    exit 3
}
finish() {
    echo "$home"
    exit 0
}
programs="kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy"
is_complete() {
    for program in $programs; do [ -e "$home/$program" ] || return 1; done
}

if is_complete; then finish; fi
if [ "${1-}" = --cached ]; then absent "it was not built here" "make kubernetes, half an hour, once"; fi
command -v go >/dev/null || absent "there is no Go here to build it" "install Go, as new as tests/tools/kubernetes/go.mod asks for"

mkdir -p "$home"
exec 9>"$home.lock"
flock 9
if is_complete; then finish; fi

jobs=${JOBS:-$(nproc)}
GOMAXPROCS=$jobs
GOFLAGS="-p=$jobs -mod=readonly -trimpath -buildvcs=false"
GOTOOLCHAIN=local
CGO_ENABLED=0
export GOMAXPROCS GOFLAGS GOTOOLCHAIN CGO_ENABLED
deadline=$(($(date +%s) + ${PATIENCE:-86400}))

# What the release's own build writes into it: it goes by its version in much.
version=k8s.io/component-base/version
minor=${kubernetes#*.}
flags="-X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} -X $version.gitTreeState=clean"

build() {
    program=$1
    if [ -e "$home/$program" ]; then return; fi
    left=$((deadline - $(date +%s)))
    [ "$left" -gt 0 ] || absent "the time is up before $program" "run it again: it goes on from here"
    echo "building $program" >&2
    status=0
    (cd "$module" && nice timeout "$left" go build -ldflags "-s -w $flags" -o "$home/.$program" "k8s.io/kubernetes/cmd/$program") >&2 || status=$?
    case $status in
    0) mv "$home/.$program" "$home/$program" ;;
    124) absent "the time is up in the middle of $program" "run it again: it goes on from here" ;;
    *) absent "go build of $program failed, see above" "if the module proxy cannot be reached, set GOPROXY" ;;
    esac
}

for program in $programs; do build "$program"; done
finish
