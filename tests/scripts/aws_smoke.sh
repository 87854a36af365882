#!/usr/bin/env bash
# Launches a small cluster, checks it, upgrades it, renews a certificate, and destroys it, by the verbs of `slipway` alone. It says the cost
# before anything is made, and writes a report.
#
#   DRY_RUN=1   in an AWS on this machine, whose address is in AWS_ENDPOINT_URL (`cargo test --workspace --test tutorial smoke` starts one)
#   DRY_RUN=0   in the account that AWS_PROFILE or the environment signs in to. It costs money, and nobody has run it yet.
#
# REGION, ZONE, DOMAIN (of a public hosted zone), HOSTED_ZONE_ID: where. NAME: of the cluster. OUT: the folder of its files and the report.
# INSTALL=1 deploys Slipway first, with MAINTAINER_ARN as the role that may publish agents. YES=1 does not ask.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)

: "${DRY_RUN:=1}" "${REGION:=us-east-1}" "${INSTALL:=0}" "${YES:=0}"
: "${ZONE:=${REGION}a}" "${NAME:=smoke}" "${OUT:=$root/target/aws-smoke}"

refuse() {
    echo "aws_smoke.sh: $1" >&2
    exit 2
}
for needed in DOMAIN HOSTED_ZONE_ID; do
    [ -n "${!needed:-}" ] || refuse "$needed is not set: name a public hosted zone, DOMAIN=example.com HOSTED_ZONE_ID=Z…"
done
[ "$INSTALL" = 0 ] || [ -n "${MAINTAINER_ARN:-}" ] || refuse "INSTALL=1 needs MAINTAINER_ARN, the role that you sign in as"
case $DRY_RUN:${AWS_ENDPOINT_URL:-} in
    1:http://127.0.0.1:*) ;;
    1:*) refuse "DRY_RUN=1 needs an AWS on this machine, AWS_ENDPOINT_URL=http://127.0.0.1:PORT; DRY_RUN=0 is for a real account" ;;
    0:) ;;
    0:*) refuse "AWS_ENDPOINT_URL is set, so this would be no real account: unset it, or use DRY_RUN=1" ;;
    *) refuse "DRY_RUN is 0 or 1" ;;
esac
export AWS_REGION=$REGION
mkdir -p "$OUT"
cd "$OUT"
report=$OUT/report.md
spec=$OUT/cluster.yaml
made=no

{
    echo "# Smoke test of $NAME in $REGION"
    echo
    echo "Begun $(date -u '+%Y-%m-%d %H:%M') UTC. $([ "$DRY_RUN" = 1 ] && echo "A dry run: no real account." || echo "In a real account.")"
    echo
    echo "| step | command | seconds | result |"
    echo "|---|---|---|---|"
} >"$report"

ended() {
    local code=$?
    [ "$code" -eq 0 ] || {
        echo >>"$report"
        echo "It failed; the output of the last step is in $OUT/last.log." | tee -a "$report" >&2
        if [ "$made" = yes ]; then
            echo "The cluster may stand, and costs money: slipway status --cluster $NAME, then slipway destroy --cluster $NAME --watch" |
                tee -a "$report" >&2
        fi
    }
    echo "report: $report"
    exit "$code"
}
trap ended EXIT

# Runs one command, shows its output, and writes a line of the report.
step() {
    local name=$1 begun=$SECONDS code=0
    shift
    echo "=== $name: $*"
    "$@" >last.log 2>&1 </dev/null || code=$?
    cat last.log
    local result=ok
    [ "$code" -eq 0 ] || result="exit code $code"
    echo "| $name | \`$*\` | $((SECONDS - begun)) | $result |" >>"$report"
    return "$code"
}

if [ "$INSTALL" = 1 ]; then
    step package make -C "$root" package ARCHITECTURE=x86_64
    step deploy sam deploy --template-file "$root/dist/x86_64/template.yaml" --stack-name slipway --region "$REGION" --resolve-s3 \
        --capabilities CAPABILITY_IAM --no-confirm-changeset --no-fail-on-empty-changeset --parameter-overrides Architecture=x86_64 \
        "HostedZoneIds=$HOSTED_ZONE_ID" "HostedZoneDomains=$DOMAIN" "MaintainerArns=$MAINTAINER_ARN"
    AGENT=$root/dist/x86_64/slipway-node
fi
[ -z "${AGENT:-}" ] || step publish slipway publish-agent "$AGENT"
step doctor slipway doctor

# It ends with the cluster's destruction, so the cluster must be its own.
if slipway status --cluster "$NAME" >last.log 2>&1; then
    refuse "there is a cluster $NAME already: name another one with NAME="
fi
rm -f "$spec"
step init slipway init --cluster-name "$NAME" --region "$REGION" --availability-zone "$ZONE" --dns-name "api.$NAME.$DOMAIN" \
    --hosted-zone-id "$HOSTED_ZONE_ID" --file "$spec"
# Two workers, so that one can be drained; and one minor less than the newest, so that there is something to upgrade to.
newest=$(sed -n 's/^kubernetesVersion: "\{0,1\}1\.\([0-9]*\).*/\1/p' "$spec")
sed -i.before -e 's/minSize: 1/minSize: 2/' -e "s/^kubernetesVersion: .*/kubernetesVersion: \"1.$((newest - 1))\"/" "$spec"
step validate slipway validate "$spec"
step quotas slipway doctor "$spec"
step cost slipway cost "$spec"
step plan slipway plan "$spec"
if [ "$YES" != 1 ]; then
    echo "This launches that cluster in $REGION, and destroys it within some hours."
    read -r -p "Type its name, $NAME, to go on: " typed
    [ "$typed" = "$NAME" ] || refuse "nothing was made"
fi

made=yes
step launch slipway apply "$spec" --yes --watch
step status slipway status --cluster "$NAME" --exit-code
step kubeconfig slipway kubeconfig --cluster "$NAME" --out "$OUT/kubeconfig"
sed -i.before "s/^kubernetesVersion: .*/kubernetesVersion: \"1.$newest\"/" "$spec"
step upgrade slipway apply "$spec" --yes --watch
step renew slipway renew scheduler --cluster "$NAME" --watch
step certificates slipway certs verify --cluster "$NAME"
step serves slipway status --cluster "$NAME" --exit-code
step destroy slipway destroy --cluster "$NAME" --yes --watch
made=no
rm -f "$OUT/kubeconfig"
{
    echo
    echo "Ended $(date -u '+%Y-%m-%d %H:%M') UTC, after $SECONDS s."
    echo "Left behind: the installation, its buckets and key; the last snapshot of etcd, and the EBS snapshots that CloudFormation took of its volumes."
} >>"$report"
