//! User data: a small script and `node.json` with the two digests. The script downloads and verifies the node agent, and starts it.

use serde_json::{Value, json};
use slipway_core::canonical::canonical_json;
use slipway_core::cluster::{Architecture, partition_of};
use slipway_core::node::{LAUNCH_HOOK, NodeFile};
use slipway_core::role::Role;

use super::cfn::{base64, join};
use super::context::Context;
use super::node_config::Config;

/// What a machine boots with.
pub(super) struct Boot<'a> {
    pub(super) config: &'a Config,
    /// The Auto Scaling group, whose launch hook the script abandons on failure.
    pub(super) group: &'a str,
    /// The hosted zone in which an etcd member writes its record. If the network stack makes it, only CloudFormation knows its id.
    pub(super) zone: Option<Value>,
}

/// The `UserData` property.
pub(super) fn userdata(
    context: &mut Context<'_>,
    role: &Role,
    architecture: Architecture,
    boot: &Boot<'_>,
) -> Value {
    let node = NodeFile {
        format: NodeFile::FORMAT,
        cluster: context.cluster.name.clone(),
        role: role.to_string(),
        region: context.cluster.region.clone(),
        asset_bucket: context.site.asset_bucket.clone(),
        agent: context.lock.agent.get(&architecture).cloned(),
        config: boot.config.digest.clone(),
        credentials: context.credentials_digest(role),
        // It is added below.
        zone: None,
    };
    let tail = tail(&node, architecture.as_str(), boot.group, context.dns_suffix());
    let node = canonical_json(&serde_json::to_value(&node).expect("a node file has string keys only"));
    base64(match &boot.zone {
        None => Value::String(format!("{HEAD}{node}{tail}")),
        Some(zone) => {
            // The last key of node.json; CloudFormation fills it in unless the spec names the zone.
            let open = node.strip_suffix('}').expect("a node file is a JSON object");
            if let Value::String(zone) = zone {
                return base64(Value::String(format!("{HEAD}{open},\"zone\":\"{zone}\"}}{tail}")));
            }
            join(vec![json!(format!("{HEAD}{open},\"zone\":\"")), zone.clone(), json!(format!("\"}}{tail}"))])
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

/// The script after `node.json`. It repeats some values of the file, because an image may have no JSON parser.
fn tail(node: &NodeFile, architecture: &str, group: &str, dns_suffix: &str) -> String {
    let partition = partition_of(&node.region);
    let NodeFile { cluster, role, region, asset_bucket, config, credentials, .. } = node;
    let agent = node.agent.as_deref().unwrap_or_default();
    let hook = LAUNCH_HOOK;
    format!(
        r#"
NODE
region='{region}' cluster='{cluster}' role='{role}' agent='{agent}' machines='arn%3A{partition}%3Aec2%3A{region}%3A'
config='{config}' credentials='{credentials}' group='{group}' hook='{hook}' token=''
s3='https://{asset_bucket}.s3.{region}.{dns_suffix}' autoscaling='https://autoscaling.{region}.{dns_suffix}/'
{SCRIPT}
[ -n "$agent" ] || die 'the lock pins no node agent for {architecture}: publish one, then render this cluster again'
fetch "agent/$agent/slipway-node" slipway-node "$agent"
fetch "clusters/$cluster/bundles/$role/config-$config" config.json "$config"
fetch "clusters/$cluster/bundles/$role/credentials-$credentials" credentials.sealed ''
chmod 0700 slipway-node
./slipway-node bootstrap && exit 0 || ended=$?
[ "$ended" -ne 1 ] || abandon # It has told why by itself.
die "slipway-node bootstrap ended with status $ended"
"#
    )
}

// `call` reads the role's credentials from the metadata service each time, because they may become available late, and passes them to
// curl on standard input, because any process can read command lines. S3 requires the digest of the body in a signed header; curl signs
// given headers since 7.87, and adds this one by itself only since 8. `fetch` pauses 2, 4, … 256 s between its tries, eight and a half
// minutes in total, well within the launch hook's timeout. The credentials need no checksum, because AES-GCM detects changes. A script
// that gives up writes a `BootstrapReport`, and abandons the launch hook so that the group replaces the instance at once. The key of the report
// contains the machine's ARN. In its URL the colons are escaped, because S3 signs them so and older curls sign a path as they are given it.
const SCRIPT: &str = r#"imds='http://169.254.169.254/latest' role_keys='meta-data/iam/security-credentials'
say() { echo "slipway: $*" | tee /dev/console >&2 2>/dev/null || :; }
field() { sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
meta() { curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$imds/$1"; }
call() {
  service=$1 && shift
  token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$imds/api/token") || return 1
  profile=$(meta "$role_keys/") && keys=$(meta "$role_keys/$profile") || return 1
  {
    printf 'user = "%s:' "$(echo "$keys" | field AccessKeyId)"
    printf '%s"\n' "$(echo "$keys" | field SecretAccessKey)"
    printf 'header = "x-amz-security-token: %s"\n' "$(echo "$keys" | field Token)"
  } | curl -sSf -m 300 --aws-sigv4 "aws:amz:$region:$service" -K - "$@"
}
abandon() {
  id=$(meta meta-data/instance-id) || exit 1
  call autoscaling -d "Action=CompleteLifecycleAction&AutoScalingGroupName=$group&InstanceId=$id&LifecycleActionResult=ABANDON&LifecycleHookName=$hook&Version=2011-01-01" "$autoscaling" || :
  exit 1
}
die() {
  say "giving up: $*"
  id=$(meta meta-data/instance-id) && account=$(meta dynamic/instance-identity/document | field accountId) || exit 1
  printf '{"agent":"","at":"%s","config":"%s","credentials":"%s","failure":{"code":"userdata","help":"see the console of the instance","message":"%s"},"format":1,"instance":"%s","role":"%s","state":"given-up"}' \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$config" "$credentials" "$*" "$id" "$role" >report.json
  call s3 -X PUT -H 'content-type: application/json' -H "x-amz-content-sha256: $(sum report.json)" \
    --data-binary @report.json "$s3/clusters/$cluster/nodes/$role/$machines$account%3Ainstance/$id/bootstrap.json" || :
  abandon
}
get() { call s3 -H "x-amz-content-sha256: $(sum /dev/null)" -o "$2.part" "$s3/$1"; }
fetch() {
  pause_s=2
  until get "$1" "$2" && { [ -z "$3" ] || [ "$(sum "$2.part")" = "$3" ]; }; do
    [ "$pause_s" -le 256 ] || die "$s3/$1 cannot be had, or is not what its digest says"
    say "cannot have $s3/$1 yet; trying again in $pause_s s"
    sleep "$pause_s"
    pause_s=$((pause_s * 2))
  done
  mv "$2.part" "$2"
}"#;
