//! Userdata: a small script and `node.json` with the two digests. It fetches, checks, and hands over to the
//! node agent.

use serde_json::{Value, json};

use super::cfn::{base64, canonical_json, join};
use super::context::Context;
use crate::cluster::Architecture;
use crate::node::NodeFile;
use crate::pki::Role;

/// What differs between one node's userdata and another's.
pub(super) struct Digests<'a> {
    pub(super) role: &'a Role,
    pub(super) architecture: Architecture,
    pub(super) config: &'a str,
    pub(super) credentials: &'a str,
    /// The hosted zone in which an etcd member sets its record: one that is made is known to CloudFormation alone.
    pub(super) zone: Option<Value>,
}

/// The `UserData` property.
pub(super) fn userdata(context: &Context<'_>, digests: Digests<'_>) -> Value {
    let node = NodeFile {
        format: NodeFile::FORMAT,
        cluster: context.cluster.name.clone(),
        role: digests.role.to_string(),
        region: context.cluster.region.clone(),
        asset_bucket: context.site.asset_bucket.clone(),
        agent: context.lock.agent.get(&digests.architecture).cloned(),
        config: digests.config.to_owned(),
        credentials: digests.credentials.to_owned(),
        // Below.
        zone: None,
    };
    let tail = tail(&node, digests.architecture, context.dns_suffix());
    let node = canonical_json(&serde_json::to_value(&node).expect("a node file has string keys only"));
    base64(match digests.zone {
        None => Value::String(format!("{HEAD}{node}{tail}")),
        Some(zone) => {
            // The last key of node.json, filled in by CloudFormation unless the spec names the zone.
            let open = node.strip_suffix('}').expect("a node file is a JSON object");
            if let Value::String(zone) = zone {
                return base64(Value::String(format!("{HEAD}{open},\"zone\":\"{zone}\"}}{tail}")));
            }
            join(vec![json!(format!("{HEAD}{open},\"zone\":\"")), zone, json!(format!("\"}}{tail}"))])
        }
    })
}

const HEAD: &str = r"#!/bin/sh
# Slipway: fetches the node agent and this node's two bundles, checks them, hands over. There is no secret in here.
set -eu
umask 077
mkdir -p /var/lib/slipway
cd /var/lib/slipway
cat >node.json <<'NODE'
";

/// The script after `node.json`. It repeats some of its values, because an image need not have a JSON parser.
fn tail(node: &NodeFile, architecture: Architecture, dns_suffix: &str) -> String {
    let NodeFile { cluster, role, region, asset_bucket, config, credentials, .. } = node;
    let agent = node.agent.as_deref().unwrap_or_default();
    let architecture = architecture.as_str();
    format!(
        r#"
NODE
region='{region}' bundles='clusters/{cluster}/bundles/{role}' agent='{agent}'
s3='https://{asset_bucket}.s3.{region}.{dns_suffix}' imds='http://169.254.169.254/latest'
{SCRIPT}
[ -n "$agent" ] || die 'the lock pins no node agent for {architecture}: publish one, then render this cluster again'
fetch "agent/$agent/slipway-node" slipway-node "$agent"
fetch "$bundles/config-{config}" config.json '{config}'
fetch "$bundles/credentials-{credentials}" credentials.sealed ''
chmod 0700 slipway-node
./slipway-node bootstrap || die "slipway-node bootstrap ended with status $?"
"#
    )
}

// `get` takes the role's credentials anew each time, as they may appear late, and hands them to curl by
// standard input: a command line can be read by any process. `fetch` pauses 2, 4, … 256 s between its tries,
// eight and a half minutes in all, well inside the launch hook's time. The credentials need no checksum:
// AES-GCM refuses what was changed.
const SCRIPT: &str = r#"say() { echo "slipway: $*" | tee /dev/console >&2 2>/dev/null || :; }
die() { say "giving up: $*"; exit 1; }
field() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"; }
imds() { curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$imds/meta-data/iam/security-credentials/$1"; }
get() {
  token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$imds/api/token") || return 1
  profile=$(imds '') && keys=$(imds "$profile") || return 1
  {
    printf 'user = "%s:' "$(echo "$keys" | field AccessKeyId)"
    printf '%s"\n' "$(echo "$keys" | field SecretAccessKey)"
    printf 'header = "x-amz-security-token: %s"\n' "$(echo "$keys" | field Token)"
  } | curl -sSf -m 300 --aws-sigv4 "aws:amz:$region:s3" -K - -o "$2.part" "$s3/$1"
}
fetch() {
  pause_s=2
  until get "$1" "$2" && { [ -z "$3" ] || [ "$(sha256sum <"$2.part" | cut -d' ' -f1)" = "$3" ]; }; do
    [ "$pause_s" -le 256 ] || die "$s3/$1 cannot be had, or is not what its digest says"
    say "cannot have $s3/$1 yet; trying again in $pause_s s"
    sleep "$pause_s"
    pause_s=$((pause_s * 2))
  done
  mv "$2.part" "$2"
}"#;
