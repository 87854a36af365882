//! The lock: versions, images and digests, pinned so that the same spec renders the same bytes (P1).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::{Architecture, Cluster, Image, KubernetesVersion, SoftwareSource, Upgrades};
use slipway_core::members::MemberPin;
use slipway_core::oidc;
use slipway_core::pin::Pin;
use slipway_core::release::Rendering;

/// `clusters/<name>/lock.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lock {
    /// Version of this file's format.
    pub format: u32,
    /// The exact release for each requested `kubernetesVersion` (`1.34` → `1.34.2`).
    pub kubernetes: BTreeMap<String, String>,
    /// The etcd release for each Kubernetes minor (`1.34` → `3.6.16`), if `etcd.version` names none.
    pub etcd: BTreeMap<String, String>,
    /// The image id behind each SSM public parameter.
    pub images: BTreeMap<String, String>,
    /// The pin of each etcd member, by index: see [`slipway_core::members`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub etcd_members: BTreeMap<u32, MemberPin>,
    /// Whether add-ons keep using the controllers' role because the cluster ran before its service accounts got roles: see
    /// [`Lock::pin_addon_credentials`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub addons_through_controllers: bool,
    /// SHA-256 of the node agent, by architecture.
    pub agent: BTreeMap<Architecture, String>,
    /// The tag of each add-on image, by Kubernetes minor and image name (`1.34` → `coredns` → `v1.14.6`), if the spec names none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addon_versions: BTreeMap<String, BTreeMap<String, String>>,
    /// The digest of each image of add-ons and static pods, by its reference in its own registry
    /// (`registry.k8s.io/coredns/coredns:v1.14.6` → `sha256:…`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addon_images: BTreeMap<String, String>,
    /// The release of each program that does not follow Kubernetes or etcd, by Kubernetes minor and program (`1.34` → `containerd` →
    /// `2.4.2`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub program_versions: BTreeMap<String, BTreeMap<String, String>>,
    /// SHA-256 of each program that nodes install, by its publisher's URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub program_files: BTreeMap<String, String>,
    /// The KMS keys under which the cluster's credentials were sealed before the present one. Its machines may still open what was sealed
    /// under these: snapshots of etcd, and the sealed bundles on their disks. None is ever removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub former_kms_keys: BTreeSet<String>,
    /// When each kind of pin was last looked up. Missing: before locks recorded this.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub looked_up: BTreeMap<Pin, Timestamp>,
    /// When the newest order to upgrade each kind was given. An order that arrives again, or late, changes nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub upgraded: BTreeMap<Pin, Timestamp>,
}

/// What a cluster needs from the lock and the lock lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    /// SSM parameters whose image is not pinned.
    pub parameters: BTreeSet<String>,
    /// The release to pin for each requested `kubernetesVersion`: the newest patch that this version of Slipway knows.
    pub kubernetes: BTreeMap<String, String>,
    /// The etcd release, by Kubernetes minor.
    pub etcd: BTreeMap<String, String>,
    /// The architectures for which no agent is pinned.
    pub agent: BTreeSet<Architecture>,
    /// Tags of add-on images that this version of Slipway knows, by Kubernetes minor and image name.
    pub addon_versions: BTreeMap<String, BTreeMap<String, String>>,
    /// References of images whose digest is not pinned.
    pub addon_images: BTreeSet<String>,
    /// Releases of programs that this version of Slipway knows, by Kubernetes minor and program.
    pub program_versions: BTreeMap<String, BTreeMap<String, String>>,
    /// URLs of programs whose digest is not pinned, each with the URL of its checksum.
    pub program_files: BTreeMap<String, String>,
}

impl Lock {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// Takes the pins of these kinds from `earlier`. What only this lock has stays, because another spec may need it.
    pub fn put_back(&mut self, pins: &BTreeSet<Pin>, earlier: &Self) {
        for pin in pins {
            match pin {
                Pin::Images => self.images.extend(earlier.images.clone()),
                Pin::Kubernetes => self.kubernetes.extend(earlier.kubernetes.clone()),
                Pin::Etcd => self.etcd.extend(earlier.etcd.clone()),
                Pin::Programs => self.take_program_versions(earlier.program_versions.clone()),
                Pin::Addons => self.take_addon_versions(earlier.addon_versions.clone()),
                Pin::Agent => self.agent.extend(earlier.agent.clone()),
            }
            match earlier.looked_up.get(pin) {
                Some(at) => self.looked_up.insert(*pin, *at),
                None => self.looked_up.remove(pin),
            };
        }
    }

    /// Whether a kind of pins is so old that the spec has it looked up anew. Pins that were put back stay for the same time.
    #[must_use]
    pub fn is_due(&self, upgrades: &Upgrades, now: Timestamp) -> bool {
        let days = SignedDuration::from_hours(24 * i64::from(upgrades.every_days));
        let since = |pin| self.looked_up.get(pin).max(self.upgraded.get(pin));
        upgrades.pins.iter().any(|pin| since(pin).is_none_or(|at| now.duration_since(*at) >= days))
    }

    /// The kinds of pins in which `other` differs.
    #[must_use]
    pub fn changes(&self, other: &Self) -> BTreeSet<Pin> {
        let differs = |pin: &Pin| match pin {
            Pin::Images => self.images != other.images,
            Pin::Kubernetes => self.kubernetes != other.kubernetes,
            Pin::Etcd => self.etcd != other.etcd,
            Pin::Programs => self.program_versions != other.program_versions,
            Pin::Addons => self.addon_versions != other.addon_versions,
            Pin::Agent => self.agent != other.agent,
        };
        Pin::ALL.into_iter().filter(differs).collect()
    }

    /// The pins that `cluster` uses, by kind and name.
    #[must_use]
    pub fn used(&self, cluster: &Cluster) -> BTreeMap<Pin, BTreeMap<String, String>> {
        let pinned = |map: &BTreeMap<String, String>, names: BTreeSet<String>| -> BTreeMap<String, String> {
            names.into_iter().filter_map(|name| Some((name.clone(), map.get(&name)?.clone()))).collect()
        };
        let versions = std::iter::once(cluster.kubernetes_version)
            .chain(cluster.pools.iter().map(|pool| cluster.version_of(pool)));
        let minors: BTreeSet<String> = versions.clone().map(minor).collect();
        let own: BTreeSet<String> = BTreeSet::from([minor(cluster.kubernetes_version)]);
        let within = |map: &BTreeMap<String, BTreeMap<String, String>>, minors: &BTreeSet<String>| {
            let named = |minor: &String| {
                let several = minors.len() > 1;
                let name =
                    move |name: &String| if several { format!("{name} ({minor})") } else { name.clone() };
                map.get(minor)
                    .into_iter()
                    .flatten()
                    .map(move |(key, value)| (name(key), value.clone()))
                    .collect::<Vec<_>>()
            };
            minors.iter().flat_map(named).collect::<BTreeMap<_, _>>()
        };
        let architectures = cluster.architectures();
        let agent = self.agent.iter().filter(|(one, _)| architectures.contains(one));
        let pinned_etcd = if cluster.etcd.version.is_some() { BTreeSet::new() } else { own.clone() };
        let installed = cluster.software.source != SoftwareSource::Image;
        BTreeMap::from([
            (Pin::Images, pinned(&self.images, parameters(cluster))),
            (
                Pin::Kubernetes,
                pinned(
                    &self.kubernetes,
                    versions.filter(|one| one.patch.is_none()).map(|one| one.to_string()).collect(),
                ),
            ),
            (Pin::Etcd, pinned(&self.etcd, pinned_etcd)),
            (
                Pin::Programs,
                if installed { within(&self.program_versions, &minors) } else { BTreeMap::new() },
            ),
            (Pin::Addons, within(&self.addon_versions, &own)),
            (Pin::Agent, agent.map(|(one, digest)| (one.as_str().to_owned(), digest.clone())).collect()),
        ])
    }

    /// Decides how `cluster`'s add-ons get AWS credentials. `stands`: the releases that are deployed or being deployed.
    ///
    /// A cluster whose controllers have issued tokens under their local issuer keeps using the controllers' role when its service
    /// accounts get roles: until every controller is replaced there are tokens that AWS cannot verify, with which add-ons would have no
    /// access to AWS. This is never reverted here, so that the same spec renders the same (P1). To revert it, the add-ons would first
    /// have to switch to their own roles, and only then could the controllers lose these permissions.
    pub fn pin_addon_credentials<'r>(
        &mut self,
        cluster: &Cluster,
        stands: impl IntoIterator<Item = &'r Rendering>,
    ) {
        let on = cluster.iam_roles.as_ref().is_some_and(|roles| roles.enabled);
        self.addons_through_controllers |= !on || stands.into_iter().any(oidc::signs_locally);
    }

    /// Pins what `missing` lists and this version of Slipway knows: releases and tags. A newer pin stays, because whoever goes back to an
    /// older Slipway does not mean to go back to older nodes.
    pub fn pin_known(&mut self, missing: &Missing) {
        self.format = Self::FORMAT;
        extend_newer(&mut self.kubernetes, missing.kubernetes.clone());
        extend_newer(&mut self.etcd, missing.etcd.clone());
        for (minor, programs) in missing.program_versions.clone() {
            extend_newer(self.program_versions.entry(minor).or_default(), programs);
        }
        for (minor, images) in missing.addon_versions.clone() {
            extend_newer(self.addon_versions.entry(minor).or_default(), images);
        }
    }

    pub(crate) fn take_program_versions(&mut self, versions: BTreeMap<String, BTreeMap<String, String>>) {
        for (minor, programs) in versions {
            self.program_versions.entry(minor).or_default().extend(programs);
        }
    }

    pub(crate) fn take_addon_versions(&mut self, versions: BTreeMap<String, BTreeMap<String, String>>) {
        for (minor, images) in versions {
            self.addon_versions.entry(minor).or_default().extend(images);
        }
    }

    /// The pinned tag of the add-on image called `name`.
    #[must_use]
    pub fn addon_version(&self, cluster: &Cluster, name: &str) -> Option<&str> {
        self.addon_versions.get(&minor(cluster.kubernetes_version))?.get(name).map(String::as_str)
    }

    /// The exact Kubernetes release of `cluster`: from the spec, or the pinned one.
    #[must_use]
    pub fn kubernetes_version(&self, cluster: &Cluster) -> Option<String> {
        let version = cluster.kubernetes_version;
        let pinned = self.kubernetes.get(&version.to_string()).cloned();
        pinned.or_else(|| version.patch.map(|_| version.to_string()))
    }

    /// The etcd release of `cluster`; `None` if the spec names none and the lock lacks it.
    #[must_use]
    pub fn etcd_version<'a>(&'a self, cluster: &'a Cluster) -> Option<&'a str> {
        let pinned = || self.etcd.get(&minor(cluster.kubernetes_version));
        cluster.etcd.version.as_ref().or_else(pinned).map(String::as_str)
    }

    /// The image id of `image` for `architecture`; `None` if the lock lacks it.
    #[must_use]
    pub fn image<'a>(&'a self, image: &'a Image, architecture: Architecture) -> Option<&'a str> {
        match image {
            Image::Ami(id) => Some(id),
            Image::SsmParameter(names) => {
                names.get(&architecture).and_then(|name| self.images.get(name)).map(String::as_str)
            }
        }
    }
}

/// Takes from `found` what `pinned` lacks or has in an older version.
fn extend_newer(pinned: &mut BTreeMap<String, String>, found: BTreeMap<String, String>) {
    for (name, version) in found {
        if pinned.get(&name).is_none_or(|old| numbers(old) < numbers(&version)) {
            pinned.insert(name, version);
        }
    }
}

/// The numbers of a version, in order: `1`, `34`, `2` of `v1.34.2`.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// `1.34` of `1.34.2`.
pub(crate) fn minor(version: KubernetesVersion) -> String {
    KubernetesVersion { patch: None, ..version }.to_string()
}

/// The SSM public parameters that `cluster`'s nodes take their images from.
pub(crate) fn parameters(cluster: &Cluster) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    let mut want = |image: &Image, instance_type: &str| {
        if let Image::SsmParameter(names) = image {
            wanted.extend(names.get(&Architecture::of_instance_type(instance_type)).cloned());
        }
    };
    want(&cluster.image, &cluster.controller.instance_type);
    want(&cluster.image, &cluster.etcd.instance_type);
    for pool in &cluster.pools {
        want(cluster.image_of(pool), &pool.instance_type);
    }
    wanted
}
