//! Controllers, and what every kind of node has.

use std::collections::BTreeMap;

use slipway_core::cluster::{Controller, IAM_PATH, Iam};

use super::Lowering;
use super::network::Draft;
use crate::model::{ControllerSpec, IamSpec, PolicySpec};
use crate::path::Path;
use crate::text::{arn, is_iam_name, is_instance_type, is_label_for_kubelet, is_label_key, is_label_value};

/// What kube-aws took as `t2.medium`.
pub(super) const INSTANCE_TYPE: &str = "t3.medium";
/// IAM's limit on a role's name.
const MOST_ROLE_NAME: usize = 64;

/// Instance types with less memory than kubeadm asks for ("2 GB or more of RAM per machine": kubernetes.io/docs/setup, "Installing kubeadm";
/// docs.aws.amazon.com/ec2/latest/instancetypes).
const BELOW_2_GIB: [&str; 11] = [
    "m1.small",
    "t1.micro",
    "t2.micro",
    "t2.nano",
    "t3.micro",
    "t3.nano",
    "t3a.micro",
    "t3a.nano",
    "t4g.micro",
    "t4g.nano",
    "c1.medium",
];

impl Lowering<'_, '_, '_> {
    pub(super) fn controller(&mut self, cluster: Option<&str>, network: &Draft) -> Option<Controller> {
        let spec = &self.spec.controller;
        let path = Path::parse("controller");
        let count = self.controllers(spec, &path);
        let subnets_path = path.key("subnets");
        let subnets = self.subnet_names(&spec.subnets, &subnets_path, network.names_for_nodes(), network);
        self.one_kind(&subnets, &subnets_path, network);
        self.security_groups(&spec.security_group_ids, &path.key("securityGroupIds"));
        self.labels(&spec.node_labels, &path.key("nodeLabels"));
        self.feature_gates(&spec.feature_gates, &path.key("featureGates"));
        Some(Controller {
            count,
            instance_type: self.controller_type(spec, &path),
            root_volume: self.root_volume(
                &spec.root_volume,
                self.image_of_cluster(),
                &path.key("rootVolume"),
            )?,
            subnets,
            security_group_ids: spec.security_group_ids.clone(),
            iam: self.iam(
                &spec.iam,
                cluster.map(|cluster| format!("{cluster}-control-plane")),
                "",
                &path.key("iam"),
            ),
            node_labels: spec.node_labels.clone(),
            feature_gates: spec.feature_gates.clone(),
            kubelet: self.kubelet(&spec.kubelet, &path.key("kubelet")),
            tenancy: spec.tenancy.unwrap_or_default(),
            custom: self.custom(&spec.custom_files, &spec.custom_systemd_units, &path),
        })
    }

    /// How many controllers there are: `count`, or `autoScalingGroup` with one size. Room above it for surging is not asked
    /// for: a controller that is replaced is detached, and Auto Scaling makes the next one within the size.
    fn controllers(&mut self, spec: &ControllerSpec, path: &Path) -> u32 {
        let group = &spec.auto_scaling_group;
        let place = path.key("autoScalingGroup");
        let size = group.max_size.or(group.min_size);
        if spec.count.is_some() && size.is_some() {
            let key = if group.min_size.is_some() { "minSize" } else { "maxSize" };
            self.report.error(
                "given-twice",
                &place.key(key),
                "`count` and `autoScalingGroup` both say how many controllers there are",
                "keep `count`",
            );
        }
        if let (Some(min), Some(max)) = (group.min_size, group.max_size)
            && min != max
        {
            self.report.error(
                "group-size",
                &place.key("maxSize"),
                format!("controllers are not scaled by load, and cannot be from {min} to {max}"),
                format!(
                    "write `count: {}`: they are replaced one at a time, each after its successor is in service",
                    min.max(max)
                ),
            );
        }
        let (count, place) = match (spec.count, size) {
            (Some(count), _) => (count, path.key("count")),
            (None, Some(size)) => (size, place),
            (None, None) => (1, path.key("count")),
        };
        if count == 0 {
            let help = "write 1 or more; 3 for an API that outlives a zone";
            self.report.error("no-controller", &place, "a cluster without controllers has no API", help);
        }
        count
    }

    /// `instanceType` of the group at `path`.
    fn controller_type(&mut self, spec: &ControllerSpec, path: &Path) -> String {
        let name = self.instance_type(spec.instance_type.as_deref(), path);
        if BELOW_2_GIB.contains(&name.as_str()) {
            let message =
                format!("`{name}` has less than 2 GiB of memory, which is too little for a control plane");
            let help = "choose one with 4 GiB or more, such as `t3.medium`";
            self.report.warning("instance-type", &path.key("instanceType"), message, help);
        }
        name
    }

    pub(super) fn instance_type(&mut self, text: Option<&str>, path: &Path) -> String {
        let text = text.unwrap_or(INSTANCE_TYPE);
        self.check_instance_type(text, &path.key("instanceType"));
        text.to_owned()
    }

    pub(super) fn check_instance_type(&mut self, text: &str, path: &Path) {
        if !is_instance_type(text) {
            self.report.error(
                "instance-type",
                path,
                format!("`{text}` is not an EC2 instance type"),
                "write one such as `m7g.large`",
            );
            return;
        }
        self.known_instance_type(text, path);
    }

    /// IAM settings of the nodes whose stack has that name; `ending` is what follows each role's name.
    pub(super) fn iam(&mut self, spec: &IamSpec, stack: Option<String>, ending: &str, path: &Path) -> Iam {
        let role = path.key("role");
        let profile = path.key("instanceProfile").key("arn");
        if let (Some(name), Some(stack)) = (&spec.role.name, &stack) {
            let path = role.key("name");
            let stack = if spec.role.strict_name { String::new() } else { format!("{stack}-") };
            let whole = format!("{stack}{name}{ending}");
            if whole.len() > MOST_ROLE_NAME {
                let most = MOST_ROLE_NAME.saturating_sub(stack.len() + ending.len());
                let message = format!("the role's whole name `{whole}` has {} characters", whole.len());
                let help = if most == 0 {
                    format!(
                        "remove it, so that CloudFormation makes a name: `{stack}{ending}` leaves no room below IAM's {MOST_ROLE_NAME}"
                    )
                } else {
                    format!(
                        "shorten it to {most}: IAM takes {MOST_ROLE_NAME} in all, or remove it and CloudFormation makes a name"
                    )
                };
                self.report.error("role-name", &path, message, help);
            }
            if !self.role_names.insert(whole.clone()) {
                let message = format!("two roles would be named `{whole}`");
                let help = if spec.role.strict_name {
                    "choose another, or remove `strictName`: names of roles are unique in an account"
                } else {
                    "choose another: the pool's name goes before it, joined by a hyphen"
                };
                self.report.error("duplicate-name", &path, message, help);
            }
            if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte))
            {
                let help = "write letters, digits and `+=,.@_-` only";
                self.report.error("role-name", &path, format!("`{name}` cannot end a role's name"), help);
            }
        }
        if let Some(text) = &spec.instance_profile.arn {
            let parts = arn(text, "iam");
            let named = parts.and_then(|arn| arn.resource.strip_prefix("instance-profile/"));
            let valid = |named: &str| {
                !named.split('/').any(str::is_empty) && named.rsplit('/').next().is_some_and(is_iam_name)
            };
            self.same_partition(parts, &profile);
            if !named.is_some_and(valid) {
                let help = "write one such as `arn:aws:iam::111122223333:instance-profile/nodes`";
                self.report.error(
                    "arn-syntax",
                    &profile,
                    format!("`{text}` is not an ARN of an instance profile"),
                    help,
                );
            }
            if named.is_some_and(is_of_slipway) {
                self.report.error(
                    "foreign-profile",
                    &profile,
                    format!("`{text}` is a profile that Slipway made: it has the permissions of another role or cluster"),
                    "name a profile of your own, or leave `instanceProfile` out: the role's own is made for it",
                );
            }
            if spec.role.name.is_some() || !spec.role.managed_policies.is_empty() {
                let help = "keep `role` for a role that is made, or `instanceProfile` for one that exists";
                self.report.error(
                    "given-twice",
                    &profile,
                    "both a role and an instance profile are given",
                    help,
                );
            }
        }
        if spec.role.strict_name && spec.role.name.is_none() {
            let help = "add `name`, or remove `strictName`";
            let message = "`strictName` says that the role is named exactly so, but there is no `name`";
            self.report.error("missing-key", &role.key("strictName"), message, help);
        }
        let managed_policy_arns =
            self.managed_policies(&spec.role.managed_policies, &role.key("managedPolicies"));
        Iam {
            role_name: spec.role.name.clone(),
            strict_name: spec.role.strict_name,
            managed_policy_arns,
            instance_profile_arn: spec.instance_profile.arn.clone(),
        }
    }

    /// `managedPolicies` at `path`.
    pub(super) fn managed_policies(&mut self, policies: &[PolicySpec], path: &Path) -> Vec<String> {
        let mut arns = Vec::new();
        for (index, policy) in policies.iter().enumerate() {
            let Some(text) = policy.arn.as_deref() else { continue };
            let parts = arn(text, "iam");
            let named = parts.and_then(|arn| arn.resource.strip_prefix("policy/"));
            self.same_partition(parts, &path.index(index).key("arn"));
            if !named.and_then(|named| named.rsplit('/').next()).is_some_and(is_iam_name) {
                let help = "write one such as `arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore`";
                self.report.error(
                    "arn-syntax",
                    &path.index(index).key("arn"),
                    format!("`{text}` is not an ARN of a policy"),
                    help,
                );
            }
            arns.push(text.to_owned());
        }
        arns
    }

    /// `nodeLabels` at `path`.
    pub(super) fn labels(&mut self, labels: &BTreeMap<String, String>, path: &Path) {
        for (key, value) in labels {
            let path = path.key(key);
            if !is_label_key(key) {
                let help = "write a name of 63 characters at most (letters, digits, `-_.`), perhaps with a DNS prefix: `example.com/name`";
                self.report.error("label-syntax", &path, format!("`{key}` cannot be a label's key"), help);
            } else if !is_label_for_kubelet(key) {
                let help = "choose a prefix of your own, or `node.kubernetes.io/`: a kubelet that sets this one does not start";
                self.report.error(
                    "label-reserved",
                    &path,
                    format!("the label `{key}` is reserved by Kubernetes"),
                    help,
                );
            }
            if says_otherwise(key, value) {
                let message = format!(
                    "`{key}` says of a machine what Kubernetes itself finds out, and `{value}` overwrites it"
                );
                let help = "remove it, or choose a key of your own: pods are placed by this label";
                self.report.warning("label-overwrites", &path, message, help);
            }
            if !is_label_value(value) {
                let help = "write 63 characters at most: letters, digits, `-_.`, the first and last a letter or digit";
                self.report.error(
                    "label-syntax",
                    &path,
                    format!("`{value}` cannot be a label's value"),
                    help,
                );
            }
        }
    }
}

/// Labels that a kubelet or the cloud controller sets to what is so (kubernetes.io/docs/reference/labels-annotations-taints). A kubelet may
/// overwrite them.
fn says_otherwise(key: &str, value: &str) -> bool {
    match key {
        "kubernetes.io/os" | "beta.kubernetes.io/os" => value != "linux",
        "kubernetes.io/arch"
        | "beta.kubernetes.io/arch"
        | "kubernetes.io/hostname"
        | "node.kubernetes.io/instance-type"
        | "beta.kubernetes.io/instance-type"
        | "topology.kubernetes.io/region"
        | "topology.kubernetes.io/zone"
        | "failure-domain.beta.kubernetes.io/region"
        | "failure-domain.beta.kubernetes.io/zone" => true,
        _ => false,
    }
}

/// Whether Slipway's stacks made the instance profile with that path and name. Names are unique in an account whatever their paths ("IAM
/// identifiers", IAM user guide), and nothing says whether EC2 finds a profile by its whole ARN. So a name counts without its path: that which
/// CloudFormation gives it, the stack's name, its id in the template and random characters.
fn is_of_slipway(path_and_name: &str) -> bool {
    if format!("/{path_and_name}").starts_with(IAM_PATH) {
        return true;
    }
    let name = path_and_name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let parts = name.rsplit_once('-').and_then(|(named, _random)| named.rsplit_once('-'));
    parts.is_some_and(|(stack, id)| match id {
        "controllerprofile" => stack.ends_with("-control-plane"),
        "workerprofile" => stack.contains("-pool-"),
        _ => id.starts_with("etcdprofile") && stack.ends_with("-etcd"),
    })
}
