//! What the renderers of all stacks share: the arguments of [`super::render`], names, and the list of errors.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{
    Architecture, Cluster, EtcdMember, Existing, Image, KubernetesVersion, SubnetSource, Vpc,
};
use slipway_core::members::{self, MemberPin};
use slipway_core::release::{Site, StackKind, stack_name};
use slipway_core::role::Role;
use slipway_core::software::{ProgramFile, SystemImage};
use slipway_spec::patch::Applied;

use super::cfn::{Tags, import_value, logical_id};
use super::{Inputs, RenderError};
use crate::lock::Lock;
use crate::software;

/// Logical ids of the network stack's outputs that other stacks import.
pub(super) mod export {
    pub(crate) const VPC: &str = "Vpc";
    pub(crate) const ETCD_SECURITY_GROUP: &str = "EtcdSecurityGroup";
    pub(crate) const CONTROLLER_SECURITY_GROUP: &str = "ControllerSecurityGroup";
    pub(crate) const WORKER_SECURITY_GROUP: &str = "WorkerSecurityGroup";
    pub(crate) const ETCD_HOSTED_ZONE: &str = "EtcdHostedZone";
}

/// Logical id of a managed subnet, and of the output that exports it.
pub(super) fn subnet_id(name: &str) -> String {
    logical_id("Subnet", name)
}

/// One rendering in progress.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) lock: &'a Lock,
    pub(super) credentials: &'a BTreeMap<Role, String>,
    pub(super) site: &'a Site,
    pub(super) patches: Applied<'a>,
    /// What patches change in the machines of each role.
    pub(super) patched_machines: BTreeMap<Role, Value>,
    pub(super) errors: Vec<RenderError>,
}

impl<'a> Context<'a> {
    pub(super) fn new(inputs: &Inputs<'a>, patches: Applied<'a>) -> Self {
        let &Inputs { cluster, lock, credentials, site, patches: _ } = inputs;
        let (patched_machines, errors) = (BTreeMap::new(), Vec::new());
        Self { cluster, lock, credentials, site, patches, patched_machines, errors }
    }
}

impl Context<'_> {
    /// The name of the stack of that kind. For a pool it contains the pool's name.
    pub(super) fn stack_name(&self, kind: StackKind, pool: &str) -> String {
        stack_name(&self.cluster.name, kind, pool)
    }

    /// The name under which the network stack exports its output `id`.
    pub(super) fn network_export(&self, id: &str) -> String {
        format!("{}-{id}", self.stack_name(StackKind::Network, ""))
    }

    /// The value of the network stack's output `id`, for another stack.
    pub(super) fn network_value(&self, id: &str) -> Value {
        import_value(self.network_export(id))
    }

    /// The VPC's id, for a stack other than the network's.
    pub(super) fn vpc_id(&self) -> Value {
        match &self.cluster.network.vpc {
            Vpc::Managed(_) => self.network_value(export::VPC),
            Vpc::Existing { id, .. } => existing(id),
        }
    }

    /// The ids of the named subnets, for a stack other than the network's. They are sorted by name, because their order means nothing to
    /// Auto Scaling and must not change the template.
    pub(super) fn subnet_ids(&self, names: &[String]) -> Vec<Value> {
        let mut names: Vec<&String> = names.iter().collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .map(|name| match &self.cluster.subnet(name).source {
                SubnetSource::Existing { id } => existing(id),
                SubnetSource::Managed { .. } => self.network_value(&subnet_id(name)),
            })
            .collect()
    }

    /// The tags of a resource that this cluster owns.
    pub(super) fn tags(&self, name: &str) -> Tags {
        Tags::default()
            .with("Name", format!("{}-{name}", self.cluster.name))
            .with(format!("kubernetes.io/cluster/{}", self.cluster.name), "owned")
    }

    /// The exact Kubernetes release: from the spec if it names a patch, otherwise from the lock.
    pub(super) fn kubernetes_version(&mut self, version: KubernetesVersion) -> String {
        if let Some(exact) = self.lock.kubernetes.get(&version.to_string()) {
            return exact.clone();
        }
        if version.patch.is_none() {
            self.errors.push(RenderError::UnpinnedVersion { version: version.to_string() });
        }
        version.to_string()
    }

    /// The exact etcd release: from the spec if it names one, otherwise from the lock.
    pub(super) fn etcd_version(&mut self) -> String {
        if let Some(exact) = self.lock.etcd_version(self.cluster) {
            return exact.to_owned();
        }
        self.errors
            .push(RenderError::UnpinnedEtcd { kubernetes: self.cluster.kubernetes_version.to_string() });
        String::new()
    }

    /// The pin of `member`. Without one it is a founding member.
    pub(super) fn member_pin(&self, member: &EtcdMember) -> MemberPin {
        let pinned = self.lock.etcd_members.get(&member.index).cloned();
        pinned.unwrap_or_else(|| members::founder(self.cluster, member))
    }

    /// The hosted zone of etcd's names, for a stack other than the network's.
    pub(super) fn etcd_zone(&self) -> Value {
        match &self.cluster.etcd.hosted_zone_id {
            Some(id) => json!(id),
            None => self.network_value(export::ETCD_HOSTED_ZONE),
        }
    }

    /// The image of `role`'s nodes.
    pub(super) fn image_id(&mut self, role: &Role, image: &Image, architecture: Architecture) -> String {
        if let Some(id) = self.lock.image(image, architecture) {
            return id.to_owned();
        }
        let parameter = match image {
            Image::Ami(_) => None,
            Image::SsmParameter(names) => names.get(&architecture).cloned(),
        };
        self.errors.push(match parameter {
            Some(parameter) => RenderError::UnpinnedImage { role: role.to_string(), parameter },
            None => RenderError::NoImage { role: role.to_string(), architecture: architecture.as_str() },
        });
        String::new()
    }

    /// The digest of `role`'s credentials.
    pub(super) fn credentials_digest(&mut self, role: &Role) -> String {
        if let Some(digest) = self.credentials.get(role) {
            return digest.clone();
        }
        self.errors.push(RenderError::NoCredentials { role: role.to_string() });
        String::new()
    }

    /// The programs that nodes of `role` install, with the digests of the lock.
    pub(super) fn software(&mut self, role: &Role) -> Vec<ProgramFile> {
        let mut files = Vec::new();
        for wanted in software::wanted(self.cluster, self.lock, role) {
            let Some(version) = wanted.version else {
                // A missing release of the cluster itself is reported elsewhere.
                if !software::follows_the_cluster(wanted.name) {
                    let program = wanted.name.as_str();
                    self.errors.push(RenderError::UnpinnedProgramVersion { program });
                }
                continue;
            };
            let Some(sha256) = self.lock.program_files.get(&wanted.url) else {
                self.errors.push(RenderError::UnpinnedProgram { url: wanted.url });
                continue;
            };
            let url = software::mirrored(self.cluster, &wanted.url);
            files.push(ProgramFile { name: wanted.name, version, url, sha256: sha256.clone() });
        }
        files
    }

    /// The images that the configuration of `role`'s nodes names.
    pub(super) fn system_images(&mut self, role: &Role) -> BTreeMap<String, String> {
        let mut images = BTreeMap::new();
        for image in SystemImage::for_role(role) {
            // A missing release is reported elsewhere.
            let Some(reference) = software::reference(*image, self.cluster, self.lock) else { continue };
            images.insert(
                image.as_str().to_owned(),
                self.image(reference, self.cluster.software.image_repository.as_deref()),
            );
        }
        images
    }

    /// `reference` with tag and digest, from the mirror if there is one. The tag is for people; the digest determines what is pulled.
    pub(super) fn image(&mut self, reference: String, mirror: Option<&str>) -> String {
        let Some(digest) = self.lock.addon_images.get(&reference) else {
            self.errors.push(RenderError::UnpinnedDigest { reference });
            return String::new();
        };
        let prefix = mirror.map(|mirror| format!("{mirror}/")).unwrap_or_default();
        format!("{prefix}{reference}@{digest}")
    }

    /// The KMS key that seals the cluster's credentials.
    pub(super) fn kms_key_arn(&self) -> &str {
        self.cluster.kms_key_arn.as_deref().unwrap_or(&self.site.kms_key_arn)
    }

    /// The KMS keys that sealed before that one.
    pub(super) fn former_kms_key_arns(&self) -> Vec<&str> {
        let present = self.kms_key_arn();
        self.lock.former_kms_keys.iter().map(String::as_str).filter(|key| *key != present).collect()
    }

    /// The AWS partition of the region.
    pub(super) fn partition(&self) -> &'static str {
        self.cluster.partition()
    }

    /// The domain of AWS' endpoints and service principals in the region.
    pub(super) fn dns_suffix(&self) -> &'static str {
        self.cluster.dns_suffix()
    }
}

/// The id of an existing resource, in any stack.
pub(super) fn existing(thing: &Existing) -> Value {
    match thing {
        Existing::Id(id) => json!(id),
        Existing::Export(name) => import_value(name.as_str()),
    }
}
