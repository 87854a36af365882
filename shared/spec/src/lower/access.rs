//! Who the cluster is, what its nodes run and who may enter.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use slipway_core::cluster::{
    Architecture, Controller, Etcd, Image, KubernetesVersion, NodePool, partition_of,
};
use slipway_core::versions::{NEWEST, RELEASES, release};
use slipway_core::words::nearest;

use super::Lowering;
use crate::model::ImageSpec;
use crate::path::Path;
use crate::regions::REGIONS;
use crate::text::{Arn, arn, is_id, is_name};

/// Amazon Linux 2023's newest image, which the lock pins
/// (docs.aws.amazon.com/linux/al2023, "Launching with SSM public parameters").
pub(crate) const AL2023: &str = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-";
/// EventBridge Scheduler names a schedule with 64 characters at most, and a cluster's is `slipway-<name>`.
const MOST_NAME: usize = 64 - "slipway-".len();

/// Whether `cluster` is `<a>-pool` or `<a>-pool-<b>`.
///
/// Its stack `<a>-pool-<b>-network` would also be that of pool `<b>-network` in cluster `<a>`, and likewise for every other
/// kind of stack and every name that is derived from one. Without such clusters a stack's name tells its cluster:
/// two names can only be the same where one cluster's name goes on with `-pool` after the other's.
fn reads_as_a_pool(cluster: &str) -> bool {
    cluster.ends_with("-pool") || cluster.contains("-pool-")
}

impl Lowering<'_, '_, '_> {
    /// `clusterName`, which must be the folder's name too.
    pub(super) fn name(&mut self, expected: Option<&str>) -> Option<String> {
        let path = Path::parse("clusterName");
        let name = self.spec.cluster_name.as_deref()?;
        let mut fit = true;
        if !is_name(name) {
            fit = false;
            self.report.error(
                "name-syntax",
                &path,
                format!("`{name}` cannot be a cluster's name"),
                "begin with a letter, go on with letters, digits and hyphens, and end with a letter or digit: stacks are named after it",
            );
        }
        if name.len() > MOST_NAME {
            fit = false;
            self.report.error(
                "name-too-long",
                &path,
                format!("the cluster's name has {} characters", name.len()),
                format!("shorten it to {MOST_NAME}: the schedule `slipway-<clusterName>` may have 64"),
            );
        }
        if reads_as_a_pool(name) {
            fit = false;
            self.report.error(
                "name-ambiguous",
                &path,
                format!("stacks of the cluster `{name}` could bear the names of another cluster's pools"),
                "choose a name without the part `-pool`: stacks of pools are named `<clusterName>-pool-<pool>`",
            );
        }
        if let Some(folder) = expected.filter(|folder| *folder != name) {
            fit = false;
            self.report.error(
                "name-mismatch",
                &path,
                format!("the spec names the cluster `{name}`, but lies in the folder of `{folder}`"),
                format!("write `clusterName: {folder}`, or put the spec into clusters/{name}/"),
            );
        }
        fit.then(|| name.to_owned())
    }

    pub(super) fn region(&mut self, expected: Option<&str>) -> Option<String> {
        let region = self.spec.region.as_deref()?;
        if REGIONS.contains(&region) {
            if let Some(here) = expected.filter(|here| *here != region) {
                self.report.error(
                    "other-region",
                    &Path::parse("region"),
                    format!("the cluster is for `{region}`, but this installation works in `{here}`"),
                    format!("upload it to the installation in `{region}`, or write `region: {here}`"),
                );
            }
            return Some(region.to_owned());
        }
        // A partition of its own since 2026, with other domain names (docs.aws.eu, "Regions").
        if region.starts_with("eusc-") {
            self.report.error(
                "unknown-region",
                &Path::parse("region"),
                format!("`{region}` lies in the AWS European Sovereign Cloud, which is not supported yet"),
                "write a region of AWS' other partitions, such as `eu-central-1`",
            );
            return None;
        }
        let help = nearest(region, REGIONS.into_iter()).map_or_else(
            || "write a region such as `eu-west-1`".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        self.report.error(
            "unknown-region",
            &Path::parse("region"),
            format!("there is no AWS region `{region}`"),
            help,
        );
        None
    }

    pub(super) fn kubernetes_version(&mut self) -> Option<KubernetesVersion> {
        self.release(self.spec.kubernetes_version.as_deref()?, &Path::parse("kubernetesVersion"))
    }

    /// A Kubernetes release that is known here.
    pub(super) fn release(&mut self, text: &str, path: &Path) -> Option<KubernetesVersion> {
        let Some(version) = version(text) else {
            self.report.error(
                "kubernetes-version",
                path,
                format!("`{text}` is not a Kubernetes version"),
                format!("write one such as `1.{}`", NEWEST.minor),
            );
            return None;
        };
        let Some(known) = release(version) else {
            self.report.error(
                "kubernetes-version",
                path,
                format!("Kubernetes {version} is not supported"),
                format!("write one from `1.{}` to `1.{}`", RELEASES[0].minor, NEWEST.minor),
            );
            return None;
        };
        if version.patch.is_some_and(|patch| patch > known.patch) {
            self.report.warning(
                "kubernetes-version",
                path,
                format!("Kubernetes {version} is newer than the patches known here"),
                format!("check that it exists; the newest known is `1.{}.{}`", known.minor, known.patch),
            );
        }
        Some(version)
    }

    /// `image` or `amiId` of the cluster, or Amazon Linux 2023.
    pub(super) fn image(&mut self) -> Option<Image> {
        let (spec, root) = (self.spec, Path::default());
        if spec.ami_id.is_none() && spec.image.is_none() {
            let name =
                |architecture: Architecture| (architecture, format!("{AL2023}{}", architecture.as_str()));
            return Some(Image::SsmParameter([Architecture::Arm64, Architecture::X86_64].map(name).into()));
        }
        self.own_image(spec.ami_id.as_deref(), spec.image.as_ref(), &root)
    }

    /// The parameters of AWS name the architecture of their image (`…-kernel-default-x86_64`, `…/arm64/…`).
    fn architecture_of_parameter(&mut self, wanted: Architecture, name: &str, path: &Path) {
        let says = |words: [&str; 2]| words.iter().any(|word| name.contains(word));
        let (arm, intel) = (says(["arm64", "aarch64"]), says(["x86_64", "amd64"]));
        let other = match wanted {
            Architecture::Arm64 => intel && !arm,
            Architecture::X86_64 => arm && !intel,
        };
        if other {
            let path = path.key("ssmParameters").key(wanted.as_str());
            let message = format!("`{name}` is an image for another architecture than {}", wanted.as_str());
            let help = "name the parameter of that architecture's image: machines would not boot";
            self.report.error("image-architecture", &path, message, help);
        }
    }

    /// Parameters of AWS' and Canonical's whose images cannot become nodes (docs/nodes.md).
    fn image_of_parameter(&mut self, architecture: Architecture, name: &str, path: &Path) {
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if !name.starts_with("/aws/service/") {
            return;
        }
        let path = path.key("ssmParameters").key(architecture.as_str());
        let help = "name an image of Amazon Linux 2023, Ubuntu 24.04 or Debian 12, or newer; or remove it: nodes run Amazon Linux 2023";
        // "failCgroupV1" is the kubelet's default from 1.35 on.
        if has(&["/amzn2-ami-", "/amazon-linux-2/", "/amazon-linux-2-gpu/", "/amazon-linux-2-arm64/"]) {
            let message = "Amazon Linux 2 has control groups of the first version, which kubelets of 1.35 and newer refuse";
            self.report.warning("image", &path, message, help);
        }
        let why = if name.ends_with("/recommended") {
            "the value of this parameter is JSON, of which the image is a part: add `/image_id`"
        } else if has(&["/bottlerocket/"]) {
            "Bottlerocket runs no programs beside its own, and reads other userdata"
        } else if has(&["/ami-windows-latest/"]) {
            "Windows runs no node of Slipway's"
        } else if has(&["/ubuntu/server/18.04/", "/ubuntu/server/20.04/", "/ubuntu/server/22.04/"]) {
            "this release of Ubuntu has a curl that cannot sign requests to S3: 24.04 is the oldest that can"
        } else {
            return;
        };
        self.report.error("image", &path, format!("no node can boot from `{name}`: {why}"), help);
    }

    /// `amiId` or `image` at `path`; `None` if neither is given or there is an error in them.
    pub(super) fn own_image(
        &mut self,
        ami: Option<&str>,
        image: Option<&ImageSpec>,
        path: &Path,
    ) -> Option<Image> {
        let mut given: Vec<(Path, Image)> = Vec::new();
        if let Some(ami) = ami {
            given.push((path.key("amiId"), Image::Ami(ami.to_owned())));
        }
        if let Some(image) = image {
            let path = path.key("image");
            if let Some(ami) = &image.ami_id {
                given.push((path.key("amiId"), Image::Ami(ami.clone())));
            }
            let names = [
                (Architecture::Arm64, &image.ssm_parameters.arm64),
                (Architecture::X86_64, &image.ssm_parameters.x86_64),
            ];
            let names: BTreeMap<_, _> = names
                .into_iter()
                .filter_map(|(architecture, name)| Some((architecture, name.clone()?)))
                .collect();
            for (architecture, name) in &names {
                self.architecture_of_parameter(*architecture, name, &path);
                self.image_of_parameter(*architecture, name, &path);
            }
            if !names.is_empty() {
                given.push((path.key("ssmParameters"), Image::SsmParameter(names)));
            }
            if given.is_empty() {
                self.report.error(
                    "image",
                    &path,
                    "the image is not given",
                    "write `amiId`, or `ssmParameters` with `arm64` or `x86_64`",
                );
                return None;
            }
        }
        let [(path, image)] = given.as_slice() else {
            if let Some((path, _)) = given.get(1) {
                self.report.error(
                    "image",
                    path,
                    "the image is given twice",
                    "keep one of `amiId`, `image.amiId` and `image.ssmParameters`",
                );
            }
            return None;
        };
        match image {
            Image::Ami(id) if !is_id(id, "ami") => {
                self.report.error(
                    "id-syntax",
                    path,
                    format!("`{id}` is not the id of an image"),
                    "write one such as `ami-0123456789abcdef0`",
                );
                None
            }
            Image::Ami(_) | Image::SsmParameter(_) => Some(image.clone()),
        }
    }

    /// One image serves one architecture: every node's must be covered.
    pub(super) fn architectures(
        &mut self,
        image: &Option<Image>,
        controller: Option<&Controller>,
        etcd: Option<&Etcd>,
        pools: &[NodePool],
    ) {
        let mut nodes: Vec<(Path, &str, &Image)> = Vec::new();
        if let Some(image) = image {
            nodes.extend(
                controller
                    .map(|it| (Path::parse("controller.instanceType"), it.instance_type.as_str(), image)),
            );
            nodes.extend(etcd.map(|it| (Path::parse("etcd.instanceType"), it.instance_type.as_str(), image)));
        }
        for (index, pool) in pools.iter().enumerate() {
            let path = Path::parse("worker.nodePools").index(index).key("instanceType");
            nodes.extend(
                pool.image
                    .as_ref()
                    .or(image.as_ref())
                    .map(|image| (path, pool.instance_type.as_str(), image)),
            );
        }
        let mut single: BTreeMap<&str, Architecture> = BTreeMap::new();
        for (path, instance_type, image) in nodes {
            let architecture = Architecture::of_instance_type(instance_type);
            let covered = match image {
                Image::Ami(id) => *single.entry(id).or_insert(architecture) == architecture,
                Image::SsmParameter(names) => names.contains_key(&architecture),
            };
            if !covered {
                self.report.error(
                    "image-architecture",
                    &path,
                    format!(
                        "`{instance_type}` is {}, for which the image is not made",
                        architecture.as_str()
                    ),
                    "choose instance types of one architecture, or give `image.ssmParameters` for both",
                );
            }
        }
    }

    /// The cluster's `kmsKeyArn`.
    pub(super) fn kms_key(&mut self) -> Option<String> {
        let text = self.spec.kms_key_arn.as_deref()?;
        self.kms_key_arn(text, &Path::parse("kmsKeyArn"));
        Some(text.to_owned())
    }

    /// A key, in the cluster's region. No alias: as a resource in a policy of IAM's, which is how nodes are let in, it matches
    /// nothing (docs.aws.amazon.com/kms, "Use aliases to control access to KMS keys").
    pub(super) fn kms_key_arn(&mut self, text: &str, path: &Path) {
        const EXAMPLE: &str = "write one such as `arn:aws:kms:eu-west-1:111122223333:key/…`";
        let here = self.spec.region.as_deref().filter(|region| REGIONS.contains(region));
        match arn(text, "kms") {
            Some(arn) if arn.resource.starts_with("alias/") => self.report.error(
                "arn-syntax",
                path,
                format!("`{text}` is an alias, by which no node can be allowed to use the key"),
                "write the ARN of the key itself, which `aws kms describe-key --key-id alias/…` tells",
            ),
            Some(arn) if arn.resource.strip_prefix("key/").is_none_or(str::is_empty) => {
                self.report.error(
                    "arn-syntax",
                    path,
                    format!("`{text}` is not an ARN of a KMS key"),
                    EXAMPLE,
                );
            }
            Some(arn) if !self.same_partition(Some(arn), path) => {}
            Some(arn) if here.is_some_and(|region| region != arn.region) => {
                let region = arn.region;
                let help =
                    format!("take a key of {}, or a replica of this one there", here.unwrap_or_default());
                let message = format!("the key lies in {region}, the cluster elsewhere");
                self.report.error("kms-region", path, message, help);
            }
            Some(_) => {}
            None => {
                self.report.error("arn-syntax", path, format!("`{text}` is not an ARN of a KMS key"), EXAMPLE)
            }
        }
    }

    /// Whether the ARN is of the cluster's partition: nothing of one partition is known in another
    /// (docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html). Reports it if not.
    pub(super) fn same_partition(&mut self, arn: Option<Arn<'_>>, path: &Path) -> bool {
        let region = self.spec.region.as_deref().filter(|region| REGIONS.contains(region));
        let (Some(arn), Some(region)) = (arn, region) else { return true };
        let here = partition_of(region);
        if arn.partition != here {
            let message = format!(
                "this is an ARN of the partition `{}`, and {region} lies in the partition `{here}`",
                arn.partition
            );
            let help = format!("write the ARN as AWS shows it there: it begins with `arn:{here}:`");
            self.report.error("other-partition", path, message, help);
        }
        arn.partition == here
    }

    /// `sshAuthorizedKeys`: public keys, and not by mistake a private one.
    pub(super) fn ssh_keys(&mut self) -> Vec<String> {
        self.ssh_keys_of(&self.spec.ssh_authorized_keys, &Path::parse("sshAuthorizedKeys"));
        self.spec.ssh_authorized_keys.clone()
    }

    /// The keys at `path`.
    pub(super) fn ssh_keys_of(&mut self, keys: &[String], path: &Path) {
        for (index, key) in keys.iter().enumerate() {
            // Options may stand before the kind (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").
            let is_kind = |word: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| word.starts_with(start));
            let mut words = key.split_whitespace().skip_while(|word| !is_kind(word));
            let (kind, body) = (words.next(), words.next().unwrap_or_default());
            let help = "write the one line of a `.pub` file, such as `ssh-ed25519 AAAA… name`";
            let Some(kind) = kind.filter(|_| key.lines().count() == 1) else {
                self.report.error("ssh-key", &path.index(index), "this is not a public ssh key", help);
                continue;
            };
            if !is_key_of(kind, body) {
                let message =
                    format!("after `{kind}` there is no key of that kind: nobody could log in with it");
                self.report.warning("ssh-key", &path.index(index), message, help);
            }
        }
    }
}

/// Whether the base64 begins as a key of that kind does: with the length of its name and the name (RFC 4253, 6.6), and something after it.
fn is_key_of(kind: &str, body: &str) -> bool {
    BASE64_STANDARD.decode(body).is_ok_and(|bytes| {
        let name = bytes.get(4..4 + kind.len());
        let length =
            bytes.get(..4).and_then(|length| <[u8; 4]>::try_from(length).ok()).map(u32::from_be_bytes);
        name == Some(kind.as_bytes())
            && length.and_then(|length| usize::try_from(length).ok()) == Some(kind.len())
            && bytes.len() > 4 + kind.len()
    })
}

/// `1.37`, `v1.37.2`: no more than that.
fn version(text: &str) -> Option<KubernetesVersion> {
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.').map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u16>().ok()).flatten()
    });
    let (major, minor) = (parts.next()??, parts.next()??);
    let patch = match parts.next() {
        Some(patch) => Some(patch?),
        None => None,
    };
    parts.next().is_none().then_some(KubernetesVersion { major, minor, patch })
}
