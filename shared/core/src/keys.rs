//! Keys of the objects in the buckets.

use crate::node::instance_of_arn;
use crate::role::Role;
use crate::{oidc, role};

/// The folder of a cluster's patches, beside its spec.
pub const PATCHES: &str = "patches";
/// The suffix of a patch's file name; other files in the folder are ignored.
pub const PATCH_EXTENSION: &str = ".yaml";

/// Whether a file of that name in the patches folder is a patch. Names with a leading dot belong to editors.
#[must_use]
pub fn is_patch(name: &str) -> bool {
    name.ends_with(PATCH_EXTENSION) && !name.starts_with('.') && !name.contains('/')
}

/// The spec of a cluster, in the spec bucket.
#[must_use]
pub fn spec(cluster: &str) -> String {
    format!("clusters/{cluster}/cluster.yaml")
}

/// The cluster whose spec lies at `key`; `None` for any other key.
#[must_use]
pub fn cluster_of_spec(key: &str) -> Option<&str> {
    let cluster = key.strip_prefix("clusters/")?.strip_suffix("/cluster.yaml")?;
    (!cluster.is_empty() && !cluster.contains('/')).then_some(cluster)
}

/// The folder of a cluster's patches, in the spec bucket.
#[must_use]
pub fn patches(cluster: &str) -> String {
    format!("clusters/{cluster}/{}/", PATCHES)
}

/// The name of the patch of `cluster` that lies at `key`; `None` for any other key.
#[must_use]
pub fn patch_name<'k>(cluster: &str, key: &'k str) -> Option<&'k str> {
    key.strip_prefix(&patches(cluster)).filter(|name| is_patch(name))
}

/// The cluster one of whose patches lies at `key`; `None` for any other key.
#[must_use]
pub fn cluster_of_patch(key: &str) -> Option<&str> {
    let cluster = key.strip_prefix("clusters/")?.split('/').next()?;
    (!cluster.is_empty() && patch_name(cluster, key).is_some()).then_some(cluster)
}

/// A file in the spec bucket that the spec imports.
#[must_use]
pub fn import(cluster: &str, file: &str) -> String {
    format!("clusters/{cluster}/import/{file}")
}

/// The status of a cluster for people and scripts.
#[must_use]
pub fn status(cluster: &str) -> String {
    format!("clusters/{cluster}/status.json")
}

/// The lock: the versions and digests that were looked up once.
#[must_use]
pub fn lock(cluster: &str) -> String {
    format!("clusters/{cluster}/lock.json")
}

/// The plan that should be executed.
#[must_use]
pub fn desired(cluster: &str) -> String {
    format!("clusters/{cluster}/desired.json")
}

/// The state of the rollout.
#[must_use]
pub fn rollout(cluster: &str) -> String {
    format!("clusters/{cluster}/rollout.json")
}

/// A rendering, by its id.
#[must_use]
pub fn release(cluster: &str, id: &str) -> String {
    format!("clusters/{cluster}/releases/{id}.json")
}

/// The lock that a rendering was made with, by the rendering's id.
#[must_use]
pub fn release_lock(cluster: &str, id: &str) -> String {
    format!("clusters/{cluster}/locks/{id}.json")
}

/// A plan, by its id.
#[must_use]
pub fn plan(cluster: &str, id: &str) -> String {
    format!("clusters/{cluster}/plans/{id}.json")
}

/// The page of a plan, by the plan's id.
#[must_use]
pub fn plan_page(cluster: &str, id: &str) -> String {
    format!("clusters/{cluster}/plans/{id}.html")
}

/// A role's configuration, by its digest.
#[must_use]
pub fn config(cluster: &str, role: &str, digest: &str) -> String {
    format!("clusters/{cluster}/bundles/{role}/config-{digest}")
}

/// The manifests of a cluster's add-ons, by their digest.
#[must_use]
pub fn addons(cluster: &str, digest: &str) -> String {
    format!("clusters/{cluster}/addons/{digest}.json")
}

/// Which add-ons the node managers keep applied.
#[must_use]
pub fn addons_pointer(cluster: &str) -> String {
    format!("clusters/{cluster}/addons.json")
}

/// The inventory of a cluster's credentials.
#[must_use]
pub fn manifest(cluster: &str) -> String {
    format!("clusters/{cluster}/pki/manifest.json")
}

/// The certificate or public key of an asset, by its fingerprint.
#[must_use]
pub fn public_half(cluster: &str, asset: &str, fingerprint: &str) -> String {
    let asset = role::base(asset);
    format!("clusters/{cluster}/pki/{asset}/{fingerprint}.pem")
}

/// The certificates from an authority that was brought up to its root, by the authority's fingerprint.
#[must_use]
pub fn chain(cluster: &str, asset: &str, fingerprint: &str) -> String {
    let asset = role::base(asset);
    format!("clusters/{cluster}/pki/{asset}/{fingerprint}.chain.pem")
}

/// The sealed private key or secret of an asset, by its fingerprint.
#[must_use]
pub fn private_half(cluster: &str, asset: &str, fingerprint: &str) -> String {
    let asset = role::base(asset);
    format!("clusters/{cluster}/pki/{asset}/{fingerprint}.sealed")
}

/// The sealed credentials of a role, by their digest.
#[must_use]
pub fn credentials(cluster: &str, role: &str, digest: &str) -> String {
    format!("clusters/{cluster}/bundles/{role}/credentials-{digest}")
}

/// The folder of the snapshots that a rollout, a destruction or a person ordered. No function may delete them.
#[must_use]
pub fn etcd_snapshots(cluster: &str) -> String {
    format!("clusters/{cluster}/etcd-snapshots/")
}

/// A snapshot of etcd that was ordered, by its time (`20261121T204500Z`); sealed.
#[must_use]
pub fn etcd_snapshot(cluster: &str, time: &str) -> String {
    format!("{}{time}.db", etcd_snapshots(cluster))
}

/// The folder of the scheduled snapshots of all clusters. It is beside the clusters' own, because a rule of the bucket's lifecycle knows only
/// the beginning of a key, and because the scan function may delete objects here and nowhere else.
pub const SCHEDULED_SNAPSHOTS: &str = "scheduled-snapshots/";

/// The folder of a cluster's scheduled snapshots.
#[must_use]
pub fn scheduled_snapshots(cluster: &str) -> String {
    format!("{SCHEDULED_SNAPSHOTS}{cluster}/")
}

/// A scheduled snapshot of etcd, by its time; sealed.
#[must_use]
pub fn scheduled_snapshot(cluster: &str, time: &str) -> String {
    format!("{}{time}.db", scheduled_snapshots(cluster))
}

/// The record of the snapshot at `key`, written after it was read back: [`crate::node::SnapshotTaken`].
#[must_use]
pub fn snapshot_record(key: &str) -> String {
    format!("{key}{RECORD}")
}

/// The suffix of a snapshot's record, after that of the snapshot.
const RECORD: &str = ".json";

/// A key in a folder of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKey<'k> {
    /// The snapshot of that time.
    Snapshot(&'k str),
    /// The record of the snapshot of that time.
    Record(&'k str),
}

/// What lies at `key` in the folder of snapshots `folder`; `None`: something else. Members choose these keys, and people and scripts read the
/// times, so a name that Slipway does not write is no snapshot.
#[must_use]
pub fn snapshot_key<'k>(folder: &str, key: &'k str) -> Option<SnapshotKey<'k>> {
    let name = key.strip_prefix(folder)?;
    let (name, of_time): (&str, fn(&'k str) -> SnapshotKey<'k>) = match name.strip_suffix(RECORD) {
        Some(name) => (name, SnapshotKey::Record),
        None => (name, SnapshotKey::Snapshot),
    };
    name.strip_suffix(".db").filter(|time| is_snapshot_time(time)).map(of_time)
}

/// Whether `time` has the form of a snapshot's time, `20261121T204500Z`.
fn is_snapshot_time(time: &str) -> bool {
    const FORM: &[u8] = b"00000000T000000Z";
    let fits = |(letter, form): (u8, &u8)| match form {
        b'0' => letter.is_ascii_digit(),
        _ => letter == *form,
    };
    time.len() == FORM.len() && time.bytes().zip(FORM).all(fits)
}

/// What the members that take scheduled snapshots tell each other: [`crate::snapshots::SnapshotLedger`].
#[must_use]
pub fn snapshot_ledger(cluster: &str) -> String {
    format!("{}ledger.json", scheduled_snapshots(cluster))
}

/// When snapshots are taken: [`crate::snapshots::SnapshotSchedule`]. Members read it.
#[must_use]
pub fn snapshot_schedule(cluster: &str) -> String {
    format!("clusters/{cluster}/snapshots.json")
}

/// The report of a node about its bootstrap: [`crate::node::BootstrapReport`].
#[must_use]
pub fn bootstrap_report(cluster: &str, role: &str, machine_arn: &str) -> String {
    format!("{}{machine_arn}/{BOOTSTRAP_REPORT}", nodes_of(cluster, role))
}

/// The last status that a node published: [`crate::node::NodeStatus`].
#[must_use]
pub fn node_status(cluster: &str, role: &str, machine_arn: &str) -> String {
    format!("{}{machine_arn}/{NODE_STATUS}", nodes_of(cluster, role))
}

/// The policy variable of IAM for the ARN of the machine that a request comes from. IAM lets a machine write below a folder of that name, so it
/// reports about itself alone ("IAM policy elements: Variables and tags" and "AWS global condition context keys", IAM user guide).
pub const OWN_MACHINE_ARN: &str = "${ec2:SourceInstanceARN}";

/// The name of a node's report about its bootstrap, in the folder that its machine's ARN names.
const BOOTSTRAP_REPORT: &str = "bootstrap.json";
/// The name of a node's status, in the same folder.
const NODE_STATUS: &str = "status.json";

/// What a node reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// [`bootstrap_report`].
    Bootstrap,
    /// [`node_status`].
    Status,
}

/// What the key of a node's report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportKey<'k> {
    /// The node's role.
    pub role: &'k str,
    /// The id of its machine.
    pub instance: &'k str,
    /// What it reports.
    pub kind: ReportKind,
}

/// What `key` says, if a node of `cluster` reports there. Nodes choose the keys that they write to, so any other form is no report.
#[must_use]
pub fn report_key<'k>(cluster: &str, key: &'k str) -> Option<ReportKey<'k>> {
    let (role, rest) = key.strip_prefix(&nodes(cluster))?.split_once('/')?;
    let (arn, name) = rest.rsplit_once('/')?;
    let kind = match name {
        BOOTSTRAP_REPORT => ReportKind::Bootstrap,
        NODE_STATUS => ReportKind::Status,
        _ => return None,
    };
    role.parse::<Role>().ok().filter(|parsed| parsed.to_string() == role)?;
    Some(ReportKey { role, instance: instance_of_arn(arn)?, kind })
}

/// The folder of the clusters, in each bucket.
pub const CLUSTERS: &str = "clusters/";

/// Whether a folder in [`CLUSTERS`] can be a cluster's, by its name. Whoever may write into a bucket can make others, and people copy commands that
/// contain these names into their shells.
#[must_use]
pub fn is_cluster(folder: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&folder.len()) && folder.bytes().all(fits) && !folder.starts_with('-')
}

/// The folder of a cluster's credentials.
#[must_use]
pub fn pki(cluster: &str) -> String {
    format!("clusters/{cluster}/pki/")
}

/// The state of the scan function: which certificates it has reported, and how they stood at the last scan.
#[must_use]
pub fn scan(cluster: &str) -> String {
    format!("clusters/{cluster}/scan.json")
}

/// The folder of what a cluster's nodes publish.
#[must_use]
pub fn nodes(cluster: &str) -> String {
    format!("clusters/{cluster}/nodes/")
}

/// The folder of what a cluster's nodes of `role` publish. IAM lets a node write below the folder of its own role.
#[must_use]
pub fn nodes_of(cluster: &str, role: &str) -> String {
    format!("{}{role}/", nodes(cluster))
}

/// The machine of `role` whose status lies at `key`; `None` for any other key.
#[must_use]
pub fn instance_of_status<'k>(cluster: &str, role: &str, key: &'k str) -> Option<&'k str> {
    let found = report_key(cluster, key)?;
    (found.role == role && found.kind == ReportKind::Status).then_some(found.instance)
}

/// The discovery document of a cluster's issuer, in the issuer bucket.
#[must_use]
pub fn discovery(cluster: &str) -> String {
    format!("clusters/{cluster}/{}", oidc::DISCOVERY_PATH)
}

/// The public keys of a cluster's service accounts, in the issuer bucket.
#[must_use]
pub fn jwks(cluster: &str) -> String {
    format!("clusters/{cluster}/{}", oidc::JWKS_PATH)
}

/// The clusters that a stack of that name may belong to: `<cluster>-network`, `-identity`, `-etcd`, `-control-plane`, `-pool-<name>`.
/// There are several if the name contains `-pool-` more than once.
#[must_use]
pub fn clusters_of_stack(stack: &str) -> Vec<String> {
    let suffixes = ["-network", "-identity", "-etcd", "-control-plane"];
    let plain = suffixes.iter().filter_map(|suffix| stack.strip_suffix(suffix));
    let pools = stack.match_indices("-pool-").map(|(at, _)| &stack[..at]);
    plain.chain(pools).filter(|cluster| !cluster.is_empty()).map(str::to_owned).collect()
}

/// The clusters that an Auto Scaling group of that name may belong to. A group has its stack's name; that of an etcd member has the
/// member's number appended.
#[must_use]
pub fn clusters_of_group(group: &str) -> Vec<String> {
    let member =
        group.rsplit_once('-').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let member =
        member.and_then(|(stack, _)| stack.strip_suffix("-etcd")).filter(|cluster| !cluster.is_empty());
    clusters_of_stack(group).into_iter().chain(member.map(str::to_owned)).collect()
}

/// The digests of the node agent, by architecture.
pub const AGENT_MANIFEST: &str = "agent/manifest.json";

/// The node agent with that digest.
#[must_use]
pub fn agent(sha256: &str) -> String {
    format!("agent/{sha256}/slipway-node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::MachineArns;

    #[test]
    fn a_stack_names_every_cluster_that_it_may_belong_to() {
        assert_eq!(clusters_of_stack("prod-eu-control-plane"), ["prod-eu"]);
        assert_eq!(clusters_of_stack("prod-identity"), ["prod"]);
        assert_eq!(clusters_of_stack("a-pool-b-pool-c"), ["a", "a-pool-b"]);
        assert_eq!(clusters_of_stack("somebody-elses"), Vec::<String>::new());
    }

    #[test]
    fn a_group_names_every_cluster_that_it_may_belong_to() {
        assert_eq!(clusters_of_group("prod-eu-etcd-2"), ["prod-eu"]);
        assert_eq!(clusters_of_group("prod-control-plane"), ["prod"]);
        assert_eq!(clusters_of_group("a-pool-b-etcd-0"), ["a", "a-pool-b"]);
        for other in ["prod-etcd-x", "-etcd-0", "somebody-elses", ""] {
            assert_eq!(clusters_of_group(other), Vec::<String>::new(), "{other}");
        }
    }

    #[test]
    fn only_a_time_as_slipway_writes_it_names_a_snapshot() {
        let folder = etcd_snapshots("prod");
        let (time, key) = ("20261121T204500Z", etcd_snapshot("prod", "20261121T204500Z"));
        assert_eq!(snapshot_key(&folder, &key), Some(SnapshotKey::Snapshot(time)));
        let record = snapshot_record(&key);
        assert_eq!(snapshot_key(&folder, &record), Some(SnapshotKey::Record(time)));
        for other in [
            "",
            "1",
            "20261121T204500",
            "20261121T204500Z ",
            "2026112\u{1b}T204500Z",
            "20261121t204500z",
            "a/20261121T204500Z",
            "\u{1b}[2J20261121T204500Z",
            "２０２６",
        ] {
            let key = etcd_snapshot("prod", other);
            assert_eq!(snapshot_key(&folder, &key), None, "{key:?}");
            assert_eq!(snapshot_key(&folder, &snapshot_record(&key)), None, "{key:?}");
        }
        assert_eq!(snapshot_key(&folder, &snapshot_ledger("prod")), None);
    }

    #[test]
    fn a_key_says_whose_report_it_is_and_of_what() {
        let machines = MachineArns::new("eu-west-1", "123456789012");
        let (arn, instance) = (machines.arn_of("i-0a1b"), "i-0a1b");
        let (role, status) = ("pool-a", node_status("prod", "pool-a", &arn));
        assert_eq!(
            status,
            "clusters/prod/nodes/pool-a/arn:aws:ec2:eu-west-1:123456789012:instance/i-0a1b/status.json"
        );
        let of = |kind| Some(ReportKey { role, instance, kind });
        assert_eq!(report_key("prod", &status), of(ReportKind::Status));
        let boot = bootstrap_report("prod", role, &arn);
        assert_eq!(report_key("prod", &boot), of(ReportKind::Bootstrap));
        assert_eq!(instance_of_status("prod", role, &status), Some(instance));
        assert_eq!(instance_of_status("prod", role, &boot), None);
        assert_eq!(instance_of_status("prod", "controller", &status), None);
        assert_eq!(report_key("other", &status), None);
        for other in [
            "",
            "i-0a1b",
            "i-",
            "i-0\u{1b}[2J",
            &format!("{arn}/{arn}"),
            &machines.arn_of("i-0A"),
            &machines.arn_of(""),
        ] {
            assert_eq!(report_key("prod", &node_status("prod", role, other)), None, "{other:?}");
        }
        for other in ["pool-", "x", "pool-a/pool-a", ""] {
            assert_eq!(report_key("prod", &node_status("prod", other, &arn)), None, "{other:?}");
        }
        assert_eq!(report_key("prod", &format!("{}{arn}/more.json", nodes_of("prod", role))), None);
    }

    #[test]
    fn only_a_patch_right_in_its_folder_names_a_cluster() {
        assert_eq!(cluster_of_patch("clusters/prod/patches/10-a.yaml"), Some("prod"));
        for other in [
            "clusters//patches/a.yaml",
            "clusters/a/patches/b/c.yaml",
            "clusters/a/patches/.yaml",
            "clusters/a/patches/.#a.yaml",
            "clusters/a/patches/a.yml",
            "clusters/a/b/patches/a.yaml",
            "clusters/a/patches/",
            "clusters/a/cluster.yaml",
        ] {
            assert_eq!(cluster_of_patch(other), None, "{other}");
        }
    }

    #[test]
    fn a_folder_is_a_clusters_only_if_its_name_does_nothing_in_a_shell() {
        assert!(is_cluster("prod-eu") && is_cluster("Prod2"));
        for other in ["", "-rf", "a b", "$(reboot)", "a;reboot", "a`b`", "\u{1b}[2J", "a\n", &"a".repeat(65)]
        {
            assert!(!is_cluster(other), "{other:?}");
        }
    }

    #[test]
    fn only_a_spec_right_below_its_folder_names_a_cluster() {
        assert_eq!(cluster_of_spec(&spec("prod")), Some("prod"));
        for other in
            ["clusters//cluster.yaml", "clusters/a/b/cluster.yaml", "clusters/a/x.yaml", "cluster.yaml"]
        {
            assert_eq!(cluster_of_spec(other), None, "{other}");
        }
    }
}
