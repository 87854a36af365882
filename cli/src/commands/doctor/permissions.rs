//! The IAM permissions that the verbs of this command need, and which of them the signed-in identity lacks, by IAM's policy simulator.
//!
//! The table is that of docs/cli.md, without what a verb needs only sometimes, and without `doctor`, whose own calls show what it lacks. A
//! test compares the two.

use std::collections::{BTreeMap, BTreeSet};

use slipway_aws::Caller;

use super::findings::{Finding, Read, Unread, ok, unknown, warning};

/// A row of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) verbs: &'static [&'static str],
    pub(super) actions: &'static [&'static str],
    pub(super) on: On,
}

/// What an action is performed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Stack,
    /// The stacks of the cluster.
    ClusterStacks,
    AssetBucket,
    SpecBucket,
    /// Objects of the asset bucket.
    Assets(&'static [&'static str]),
    /// Objects of the spec bucket.
    Specs(&'static [&'static str]),
    Bus,
    DestroyBus,
    Key,
    Images,
    Machines,
    Documents(&'static [&'static str]),
    /// The action accepts nothing narrower.
    Everything,
}

const OF_STATUS: &[&str] = &[
    "status",
    "watch",
    "apply",
    "approve",
    "pause",
    "resume",
    "abort",
    "skip",
    "rollback",
    "upgrade",
    "destroy",
    "snapshot",
    "snapshots",
    "restore",
    "defragment",
    "kubeconfig",
];
const OF_COMMANDS: &[&str] =
    &["autoscaling:DescribeAutoScalingGroups", "ssm:ListCommands", "ssm:GetCommandInvocation"];

const fn row(verbs: &'static [&'static str], actions: &'static [&'static str], on: On) -> Row {
    Row { verbs, actions, on }
}

/// The table, in the order of docs/cli.md.
pub(super) const TABLE: &[Row] = &[
    row(OF_STATUS, &["s3:ListBucket"], On::AssetBucket),
    row(OF_STATUS, &["s3:GetObject"], On::Assets(&["clusters/NAME/*"])),
    row(&["plan"], &["cloudformation:DescribeStacks"], On::Stack),
    row(&["plan"], &["s3:ListBucket"], On::AssetBucket),
    row(
        &["plan"],
        &["s3:GetObject"],
        On::Assets(&[
            "clusters/NAME/rollout.json",
            "clusters/NAME/desired.json",
            "clusters/NAME/lock.json",
            "clusters/NAME/addons.json",
            "clusters/NAME/plans/*",
            "clusters/NAME/releases/*",
            "clusters/NAME/pki/manifest.json",
            "clusters/NAME/pki/*.chain.pem",
        ]),
    ),
    row(&["plan"], &["s3:GetObject"], On::Assets(&["agent/*.json"])),
    row(&["plan"], &["s3:ListBucket"], On::SpecBucket),
    row(&["plan"], &["s3:GetObject"], On::Specs(&["clusters/NAME/patches/*"])),
    row(&["plan"], &["ssm:GetParameter"], On::Images),
    row(&["cost"], &["pricing:GetProducts"], On::Everything),
    row(&["logs"], &["s3:ListBucket"], On::AssetBucket),
    row(
        &["logs"],
        &["s3:GetObject"],
        On::Assets(&["clusters/NAME/rollout.json", "clusters/NAME/releases/*", "clusters/NAME/nodes/*"]),
    ),
    row(&["logs"], OF_COMMANDS, On::Everything),
    row(&["logs"], &["ssm:SendCommand"], On::Documents(&["Slipway-Logs"])),
    row(&["logs"], &["ssm:SendCommand"], On::Machines),
    row(&["diff"], &["s3:ListBucket"], On::AssetBucket),
    row(
        &["diff"],
        &["s3:GetObject"],
        On::Assets(&["clusters/NAME/rollout.json", "clusters/NAME/desired.json", "clusters/NAME/releases/*"]),
    ),
    row(
        &["diff"],
        &[
            "cloudformation:DescribeStacks",
            "cloudformation:GetTemplate",
            "cloudformation:DetectStackDrift",
            "cloudformation:DetectStackResourceDrift",
            "cloudformation:DescribeStackResourceDrifts",
        ],
        On::ClusterStacks,
    ),
    row(
        &["diff"],
        &[
            "cloudformation:DescribeStackDriftDetectionStatus",
            "cloudformation:BatchDescribeTypeConfigurations",
            "autoscaling:DescribeAutoScalingGroups",
        ],
        On::Everything,
    ),
    row(&["history"], &["s3:ListBucket"], On::AssetBucket),
    row(
        &["history"],
        &["s3:GetObject"],
        On::Assets(&["clusters/NAME/rollout.json", "clusters/NAME/desired.json", "clusters/NAME/plans/*"]),
    ),
    row(&["export"], &["s3:ListBucket"], On::AssetBucket),
    row(
        &["export"],
        &["s3:GetObject"],
        On::Assets(&[
            "clusters/NAME/desired.json",
            "clusters/NAME/rollout.json",
            "clusters/NAME/lock.json",
            "clusters/NAME/locks/*",
            "clusters/NAME/plans/*",
            "clusters/NAME/releases/*",
        ]),
    ),
    row(&["export"], &["s3:GetObjectVersion"], On::Specs(&["clusters/NAME/cluster.yaml"])),
    row(&["list"], &["s3:ListBucket"], On::AssetBucket),
    row(&["list"], &["s3:GetObject"], On::Assets(&["clusters/*"])),
    row(&["watch", "apply", "rollback"], &["s3:ListBucket"], On::SpecBucket),
    row(&["apply"], &["s3:GetObject", "s3:PutObject"], On::Specs(&["clusters/NAME/*"])),
    row(
        &["rollback"],
        &["s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"],
        On::Specs(&["clusters/NAME/cluster.yaml"]),
    ),
    row(&["upgrade"], &["s3:GetObject"], On::Specs(&["clusters/NAME/cluster.yaml"])),
    row(&["upgrade"], &["s3:GetObject"], On::Assets(&["agent/*"])),
    row(&["upgrade"], &["ssm:GetParameter"], On::Images),
    row(&["apply --prune"], &["s3:DeleteObject"], On::Specs(&["clusters/NAME/patches/*"])),
    row(&["scan --dry-run", "renew"], &["s3:ListBucket"], On::AssetBucket),
    row(&["scan --dry-run", "renew"], &["s3:GetObject"], On::Assets(&["clusters/NAME/*"])),
    row(
        &["scan --dry-run", "renew"],
        &["s3:GetObject", "s3:GetObjectVersion"],
        On::Specs(&["clusters/NAME/cluster.yaml"]),
    ),
    row(&["approve", "pause", "resume", "abort", "skip", "upgrade", "renew"], &["events:PutEvents"], On::Bus),
    row(&["destroy"], &["events:PutEvents"], On::DestroyBus),
    row(&["renew --recover"], &["kms:Decrypt", "kms:GenerateDataKey"], On::Key),
    row(
        &["renew --recover"],
        &["s3:PutObject"],
        On::Assets(&["clusters/NAME/pki/*", "clusters/NAME/bundles/*", "clusters/NAME/scan.json"]),
    ),
    row(&["snapshot"], OF_COMMANDS, On::Everything),
    row(&["snapshot"], &["ssm:SendCommand"], On::Documents(&["Slipway-EtcdSnapshot"])),
    row(&["snapshot"], &["ssm:SendCommand"], On::Machines),
    row(&["restore"], &["s3:GetObject"], On::Assets(&["scheduled-snapshots/NAME/*"])),
    row(&["restore"], OF_COMMANDS, On::Everything),
    row(
        &["restore"],
        &["ssm:SendCommand"],
        On::Documents(&[
            "Slipway-EtcdRestore",
            "Slipway-EtcdHealth",
            "Slipway-EtcdSnapshot",
            "Slipway-Serves",
        ]),
    ),
    row(&["restore"], &["ssm:SendCommand"], On::Machines),
    row(&["defragment"], OF_COMMANDS, On::Everything),
    row(&["defragment"], &["ssm:SendCommand"], On::Documents(&["Slipway-EtcdHealth"])),
    row(&["defragment"], &["ssm:SendCommand"], On::Documents(&["Slipway-EtcdDefragment"])),
    row(&["defragment"], &["ssm:SendCommand"], On::Machines),
    row(&["renew --recover"], OF_COMMANDS, On::Everything),
    row(
        &["renew --recover"],
        &["ssm:SendCommand"],
        On::Documents(&["Slipway-Refresh", "Slipway-EtcdHealth"]),
    ),
    row(&["renew --recover"], &["ssm:SendCommand"], On::Machines),
    row(&["kubeconfig"], &["s3:GetObjectVersion"], On::Specs(&["clusters/NAME/cluster.yaml"])),
    row(&["kubeconfig"], &["kms:Decrypt"], On::Key),
];

/// What the table is about in one installation.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) region: String,
    pub(super) account: String,
    pub(super) stack: String,
    pub(super) asset_bucket: String,
    pub(super) spec_bucket: String,
    pub(super) bus: String,
    /// The key that seals the credentials.
    pub(super) key: String,
    /// The cluster that stands for `NAME`.
    pub(super) cluster: String,
}

impl Places {
    /// The ARNs of what an action is performed on. A `*` in them stands for itself: what is allowed on all matches it.
    pub(super) fn arns(&self, on: On) -> BTreeSet<String> {
        let Self { region, account, cluster, .. } = self;
        let partition = match region {
            _ if region.starts_with("cn-") => "aws-cn",
            _ if region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        };
        let arn_of =
            |service: &str, rest: &str| format!("arn:{partition}:{service}:{region}:{account}:{rest}");
        let bucket = |name: &str| format!("arn:{partition}:s3:::{name}");
        let below = |name: &str, paths: &[&str]| -> BTreeSet<String> {
            paths.iter().map(|path| format!("{}/{}", bucket(name), path.replace("NAME", cluster))).collect()
        };
        match on {
            On::Stack => [arn_of("cloudformation", &format!("stack/{}/*", self.stack))].into(),
            On::ClusterStacks => [arn_of("cloudformation", &format!("stack/{cluster}-*/*"))].into(),
            On::AssetBucket => [bucket(&self.asset_bucket)].into(),
            On::SpecBucket => [bucket(&self.spec_bucket)].into(),
            On::Assets(paths) => below(&self.asset_bucket, paths),
            On::Specs(paths) => below(&self.spec_bucket, paths),
            On::Bus => [arn_of("events", &format!("event-bus/{}", self.bus))].into(),
            // The template names it after the other bus.
            On::DestroyBus => [arn_of("events", &format!("event-bus/{}-destroy", self.bus))].into(),
            On::Key => [self.key.clone()].into(),
            On::Images => [format!("arn:{partition}:ssm:{region}::parameter/aws/service/*")].into(),
            On::Machines => [arn_of("ec2", "instance/*")].into(),
            On::Documents(names) => {
                names.iter().map(|name| arn_of("ssm", &format!("document/{name}"))).collect()
            }
            On::Everything => ["*".to_owned()].into(),
        }
    }

    /// The calls of the simulation: which actions on which resources. Rows about the same resources are asked for together.
    pub(super) fn questions(&self) -> BTreeMap<BTreeSet<String>, BTreeSet<&'static str>> {
        let mut questions: BTreeMap<BTreeSet<String>, BTreeSet<&'static str>> = BTreeMap::new();
        for row in TABLE {
            questions.entry(self.arns(row.on)).or_default().extend(row.actions);
        }
        questions
    }
}

/// The permissions of the signed-in identity, as far as they could be read.
#[derive(Debug)]
pub(super) struct PermissionsRead {
    pub(super) caller: Read<Caller>,
    /// What the table is about; `None`: the installation could not be read, which is a finding of its own.
    pub(super) places: Option<Places>,
    /// The actions and resources that are not allowed. `None`: nobody was asked.
    pub(super) missing: Option<Read<BTreeSet<(String, String)>>>,
}

/// Whom IAM can be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Principal {
    /// A user, by the ARN.
    User(String),
    /// A session of the role with that name.
    Role(String),
    /// The account's root user, who may do everything.
    Root,
    /// IAM simulates no policies of such a one.
    Other,
}

/// Whom the ARN of a caller stands for (IAM user guide, "IAM identifiers"; STS API reference, GetCallerIdentity).
pub(super) fn principal(arn: &str) -> Principal {
    let rest = arn.splitn(6, ':').nth(5).unwrap_or_default();
    let mut parts = rest.split('/');
    match (parts.next(), parts.next()) {
        (Some("root"), None) => Principal::Root,
        (Some("user"), Some(_)) => Principal::User(arn.to_owned()),
        (Some("assumed-role"), Some(role)) => Principal::Role(role.to_owned()),
        _ => Principal::Other,
    }
}

pub(super) fn of_permissions(read: &PermissionsRead) -> Vec<Finding> {
    const ABOUT: &str = "your permissions";
    let caller = match &read.caller {
        Ok(caller) => caller,
        Err(unread) => return vec![unknown(ABOUT, unread)],
    };
    let Some(places) = &read.places else { return Vec::new() };
    let not_simulated = |help: &str| {
        let why = format!("IAM simulates no policies for {}", caller.arn);
        vec![unknown(ABOUT, &Unread { why, help: help.to_owned(), denied: false })]
    };
    match principal(&caller.arn) {
        Principal::Root => {
            let message = format!("{} is the account's root user, who may do everything", caller.arn);
            return vec![warning(
                ABOUT,
                message,
                "sign in as a role that may do less: docs/cli.md, Permissions",
            )];
        }
        Principal::Other => return not_simulated("sign in as a role or a user of IAM"),
        Principal::User(_) | Principal::Role(_) => {}
    }
    let missing = match &read.missing {
        Some(Ok(missing)) => missing,
        Some(Err(unread)) => return vec![unknown(ABOUT, unread)],
        None => return not_simulated("the role of the session does not exist any more"),
    };
    of_missing(ABOUT, caller, places, missing)
}

fn of_missing(
    about: &str,
    caller: &Caller,
    places: &Places,
    missing: &BTreeSet<(String, String)>,
) -> Vec<Finding> {
    // Which verbs lack what: an operator need not be able to run all of them.
    let mut lacks: BTreeMap<&str, BTreeSet<&(String, String)>> = BTreeMap::new();
    for row in TABLE {
        let arns = places.arns(row.on);
        let of_row = |one: &&(String, String)| row.actions.contains(&one.0.as_str()) && arns.contains(&one.1);
        for verb in row.verbs {
            lacks.entry(verb).or_default().extend(missing.iter().filter(of_row));
        }
    }
    let (may, may_not): (Vec<_>, Vec<_>) = lacks.into_iter().partition(|(_, lacking)| lacking.is_empty());
    // Verbs that lack the same are one finding.
    let mut alike: BTreeMap<BTreeSet<&(String, String)>, Vec<&str>> = BTreeMap::new();
    for (verb, lacking) in may_not {
        alike.entry(lacking).or_default().push(verb);
    }
    let may: Vec<&str> = may.into_iter().map(|(verb, _)| verb).collect();
    let mut all = Vec::new();
    if !may.is_empty() {
        let which = if alike.is_empty() { "every verb".to_owned() } else { may.join(", ") };
        all.push(ok(
            about,
            format!("by IAM's simulation, {} may run {which} on {}", caller.arn, places.cluster),
        ));
    }
    for (lacking, verbs) in alike {
        let each: Vec<String> = lacking.iter().map(|(action, on)| format!("{action} on {on}")).collect();
        all.push(warning(
            about,
            format!("{} may not run {} on {}: not allowed are {}", caller.arn, verbs.join(", "), places.cluster, each.join(", ")),
            "if they should, allow it: docs/cli.md, Permissions. A policy with conditions on the call, such as tags, counts as one that does not allow it",
        ));
    }
    all
}

#[cfg(test)]
mod tests;
