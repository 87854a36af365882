//! The tool that made a folder, and the purpose of each of its certificates.

use std::collections::BTreeSet;

use serde::Serialize;
use slipway_core::cluster::Cluster;
use slipway_credentials::manifest::profile;
use slipway_credentials::{CertificateProfile, Manifest, Origin, policy, trust};

use super::files::Certificate;

/// The tool that made the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// `slipway render`: an inventory, and a folder per credential.
    Slipway,
    /// The folder of a node of Slipway, or of its bundle.
    SlipwayNode,
    /// kubeadm: `/etc/kubernetes/pki`.
    Kubeadm,
    /// kube-aws: `credentials/`.
    KubeAws,
    /// Anything else: names have no meaning.
    Unknown,
}

impl Layout {
    /// The name for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Slipway => "Slipway's own",
            Self::SlipwayNode => "of a node of Slipway's",
            Self::Kubeadm => "kubeadm's",
            Self::KubeAws => "kube-aws'",
            Self::Unknown => "of no tool that is known here: purposes and names are not checked",
        }
    }

    /// Recognizes the layout by the names of the files. Also returns the folder, with a `/` at its end, below which the names of the layout
    /// begin.
    pub(super) fn recognize(names: &BTreeSet<&str>, inventory: bool) -> (Self, String) {
        if inventory {
            return (Self::Slipway, String::new());
        }
        // The shortest folder that fits is right: kubeadm's `etcd/` also has a `ca`.
        let mut roots: Vec<&str> = names
            .iter()
            .filter_map(|name| {
                let (folder, last) =
                    name.rsplit_once('/').map_or(("", *name), |(folder, last)| (folder, last));
                ["ca", "etcd-ca", "sa"].contains(&last).then_some(folder)
            })
            .collect();
        roots.sort_unstable_by_key(|root| (root.len(), *root));
        roots.dedup();
        for folder in roots {
            let root = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            let has = |name: &str| names.contains(format!("{root}{name}").as_str());
            if ["etcd/ca", "sa"].iter().any(|name| has(name)) {
                return (Self::Kubeadm, root);
            }
            if ["kubelet-ca", "etcd-ca"].iter().any(|name| has(name)) {
                return (Self::SlipwayNode, root);
            }
            let theirs =
                ["etcd-client", "apiserver-aggregator", "kube-controller-manager", "worker", "worker-ca"];
            if theirs.iter().any(|name| has(name)) {
                return (Self::KubeAws, root);
            }
            if has("apiserver") && has("apiserver-kubelet-client") {
                return (Self::Kubeadm, root);
            }
        }
        (Self::Unknown, String::new())
    }
}

/// Whether a certificate must be usable for a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Must,
    May,
    Never,
}

/// What a certificate is for, and what it should contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) authority: bool,
    pub(super) server: Need,
    pub(super) client: Need,
    /// The name of its issuer; its own name if it is self-signed.
    pub(super) issuer: Option<String>,
    /// SANs that it must have.
    pub(super) names: BTreeSet<String>,
    /// Whether other SANs are not allowed.
    pub(super) no_more: bool,
    /// Subject CN and O.
    pub(super) subject: Option<(String, Vec<String>)>,
    /// Whether a private key must be beside it.
    pub(super) with_key: bool,
}

/// `(name, issuer, server, client)`; an empty issuer means an authority.
type Row = (&'static str, &'static str, Need, Need);

use Need::{May, Must, Never};

/// kubeadm's `certlist.go`.
const KUBEADM: &[Row] = &[
    ("ca", "", Never, Never),
    ("front-proxy-ca", "", Never, Never),
    ("etcd/ca", "", Never, Never),
    ("apiserver", "ca", Must, Never),
    ("apiserver-kubelet-client", "ca", Never, Must),
    ("apiserver-etcd-client", "etcd/ca", Never, Must),
    ("front-proxy-client", "front-proxy-ca", Never, Must),
    ("etcd/server", "etcd/ca", Must, Must),
    ("etcd/peer", "etcd/ca", Must, Must),
    ("etcd/healthcheck-client", "etcd/ca", Never, Must),
];

/// kube-aws' `credential/generator.go`: one authority, and every server certificate may also be used by a client.
const KUBE_AWS: &[Row] = &[
    ("ca", "", May, May),
    ("worker-ca", "", May, May),
    ("etcd-trusted-ca", "", May, May),
    ("kiam-ca", "", May, May),
    ("apiserver", "ca", Must, May),
    ("etcd", "ca", Must, Must),
    ("kiam-server", "ca", Must, May),
    ("kiam-agent", "ca", Never, Must),
    ("apiserver-aggregator", "ca", May, Must),
    ("kube-controller-manager", "ca", Never, Must),
    ("kube-scheduler", "ca", Never, Must),
    ("worker", "ca", May, Must),
    ("admin", "ca", Never, Must),
    ("etcd-client", "ca", Never, Must),
];

/// Slipway's, if there is no spec: `policy::assets` without names, and with the file names of a bundle. A test compares it with the policy.
pub(super) const OURS: &[Row] = &[
    ("ca", "", Never, Never),
    ("kubelet-ca", "", Never, Never),
    ("etcd-ca", "", Never, Never),
    ("front-proxy-ca", "", Never, Never),
    ("apiserver", "ca", Must, Never),
    ("apiserver-kubelet-client", "ca", Never, Must),
    ("apiserver-etcd-client", "etcd-ca", Never, Must),
    ("front-proxy-client", "front-proxy-ca", Never, Must),
    ("controller-manager", "ca", Never, Must),
    ("scheduler", "ca", Never, Must),
    ("node-manager", "ca", Never, Must),
    ("etcd-server", "etcd-ca", Must, Must),
    ("etcd-peer", "etcd-ca", Must, Must),
    ("etcd-healthcheck-client", "etcd-ca", Never, Must),
    ("admin", "ca", Never, Must),
];

/// The names that clients use for every API server, whatever the spec says.
const API_NAMES: [&str; 3] = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// What is expected of each certificate.
#[derive(Debug)]
pub(super) struct Expectations<'c> {
    pub(super) layout: Layout,
    root: String,
    cluster: Option<&'c Cluster>,
    profiles: Vec<(String, CertificateProfile)>,
    /// The names of provided certificates, which follow the rules of their owner.
    provided: BTreeSet<String>,
}

impl<'c> Expectations<'c> {
    pub(super) fn new(layout: Layout, root: &str, cluster: Option<&'c Cluster>) -> Self {
        let assets = cluster.map(policy::assets).unwrap_or_default();
        let profiles = assets.iter().filter_map(|asset| Some((asset.name.clone(), profile(asset)?.clone())));
        let profiles = profiles.collect();
        let provided = assets.iter().filter(|asset| asset.origin == Origin::Provided);
        let provided = provided.map(|asset| asset.name.clone()).collect();
        Self { layout, root: root.to_owned(), cluster, profiles, provided }
    }

    /// What `certificate` should contain; `None` if that is unknown.
    pub(super) fn expected_for(&self, certificate: &Certificate) -> Option<Expected> {
        // The authorities of a bundle with several, and those of a kubeconfig.
        if certificate.place > 0 && certificate.facts.authority {
            return None;
        }
        if let Some((_, part)) = certificate.name.rsplit_once('#') {
            return Some(if part == "client" {
                Expected { client: Must, with_key: true, ..Expected::leaf(None) }
            } else {
                Expected { authority: true, ..Expected::leaf(None) }
            });
        }
        let name = certificate.name.strip_prefix(&self.root).unwrap_or(&certificate.name);
        match self.layout {
            Layout::Slipway => {
                let name = name.rsplit('/').nth(1)?;
                self.of_spec(name, false).or_else(|| row(OURS, family(name), false))
            }
            Layout::SlipwayNode => {
                let last = name.rsplit('/').next().unwrap_or(name);
                let asset = match last {
                    "server" | "peer" | "healthcheck-client" => format!("etcd-{last}"),
                    other => other.to_owned(),
                };
                let member = self.member_of(certificate).map(|index| format!("{asset}-{index}"));
                member
                    .and_then(|name| self.of_spec(&name, true))
                    .or_else(|| self.of_spec(&asset, true))
                    .or_else(|| row(OURS, family(&asset), true))
            }
            Layout::Kubeadm => self.foreign(KUBEADM, name),
            Layout::KubeAws => self.foreign(KUBE_AWS, name),
            Layout::Unknown => None,
        }
    }

    /// Exactly the profile of the spec.
    fn of_spec(&self, asset: &str, with_key: bool) -> Option<Expected> {
        let (_, profile) = self.profiles.iter().find(|(name, _)| name == asset)?;
        let generated = !self.provided.contains(asset);
        let need = |wanted: bool| match (wanted, generated) {
            (true, _) => Must,
            (false, true) => Never,
            (false, false) => May,
        };
        Some(Expected {
            authority: profile.authority,
            server: need(profile.server),
            client: need(profile.client),
            issuer: Some(profile.issuer.clone().unwrap_or_else(|| asset.to_owned())),
            names: profile.sans.clone(),
            no_more: generated,
            // An imported authority may have any name.
            subject: (!profile.authority)
                .then(|| (profile.common_name.clone(), profile.organizations.clone())),
            with_key: with_key && !profile.authority,
        })
    }

    /// According to the tool's own table, with the API server's names in the spec.
    fn foreign(&self, table: &[Row], name: &str) -> Option<Expected> {
        let mut expected = row(table, name, true)?;
        if name == "apiserver"
            && let Some((_, profile)) = self.profiles.iter().find(|(asset, _)| asset == "apiserver")
        {
            let everywhere = |name: &&String| *name != "localhost" && *name != "127.0.0.1";
            expected.names.extend(profile.sans.iter().filter(everywhere).cloned());
        }
        Some(expected)
    }

    /// The etcd member that the certificate belongs to.
    fn member_of(&self, certificate: &Certificate) -> Option<u32> {
        let members = &self.cluster?.etcd.members;
        let called = |name: &str| certificate.facts.sans.iter().any(|san| san == name);
        members
            .iter()
            .find(|member| called(&member.dns_name.trim_end_matches('.').to_ascii_lowercase()))
            .map(|member| member.index)
    }

    /// The names of the certificates that the spec requires, if the layout has all of them.
    pub(super) fn demanded(&self) -> impl Iterator<Item = &str> {
        let whole = self.layout == Layout::Slipway;
        self.profiles.iter().filter(move |_| whole).map(|(name, _)| name.as_str())
    }

    /// The path of a certificate's issuer, which the layout names without its folder.
    pub(super) fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }
}

impl Expected {
    fn leaf(issuer: Option<&str>) -> Self {
        Self {
            authority: false,
            server: May,
            client: May,
            issuer: issuer.map(str::to_owned),
            names: BTreeSet::new(),
            no_more: false,
            subject: None,
            with_key: false,
        }
    }
}

/// `etcd-server-0` belongs to the family `etcd-server`.
pub(super) fn family(asset: &str) -> &str {
    match asset.rsplit_once('-') {
        Some((family, index)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
            family
        }
        _ => asset,
    }
}

fn row(table: &[Row], name: &str, with_keys: bool) -> Option<Expected> {
    let (_, issuer, server, client) = table.iter().find(|(known, ..)| *known == name)?;
    let authority = issuer.is_empty();
    let api = name == "apiserver";
    Some(Expected {
        authority,
        server: *server,
        client: *client,
        issuer: (!authority).then(|| (*issuer).to_owned()),
        names: API_NAMES.iter().filter(|_| api).map(|name| (*name).to_owned()).collect(),
        with_key: with_keys && !authority,
        ..Expected::leaf(None)
    })
}

/// The entry of the inventory for a file `…/<asset>/<fingerprint>.pem`.
pub(super) fn entry<'m>(
    manifest: &'m Manifest,
    certificate: &Certificate,
) -> Option<(&'m String, &'m slipway_credentials::Entry)> {
    let (folder, named) = certificate.name.rsplit_once('/')?;
    let asset = folder.rsplit('/').next()?;
    let named = named.strip_suffix(".chain").unwrap_or(named);
    trust::stored(manifest, asset, named).or_else(|| manifest.assets.get_key_value(asset))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_known_of_ours_without_a_spec_is_what_the_policy_says() {
        let spec = include_bytes!("../../../credentials/src/testdata/cluster.yaml");
        let cluster = slipway_spec::parse(spec, None).unwrap().cluster;
        let need = |wanted: bool| if wanted { Must } else { Never };
        let mut policy: Vec<(String, String, Need, Need)> = policy::assets(&cluster)
            .iter()
            .filter_map(|asset| {
                let profile = profile(asset)?;
                let issuer = profile.issuer.clone().unwrap_or_default();
                Some((family(&asset.name).to_owned(), issuer, need(profile.server), need(profile.client)))
            })
            .collect();
        policy.sort_by(|a, b| a.0.cmp(&b.0));
        policy.dedup();
        let mut ours: Vec<_> = OURS
            .iter()
            .map(|(name, issuer, server, client)| {
                ((*name).to_owned(), (*issuer).to_owned(), *server, *client)
            })
            .collect();
        ours.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(ours, policy);
    }

    #[test]
    fn a_layout_is_known_by_its_files() {
        let recognized = |names: &[&str]| Layout::recognize(&names.iter().copied().collect(), false);
        for (names, layout, root) in [
            (&["ca", "apiserver", "sa", "etcd/ca"][..], Layout::Kubeadm, ""),
            (&["pki/ca", "pki/etcd/ca", "admin.conf#client"], Layout::Kubeadm, "pki/"),
            (&["ca", "apiserver", "apiserver-kubelet-client"], Layout::Kubeadm, ""),
            (&["ca", "kubelet-ca", "apiserver", "apiserver-kubelet-client"], Layout::SlipwayNode, ""),
            (&["ca", "etcd-ca", "server"], Layout::SlipwayNode, ""),
            (&["credentials/ca", "credentials/worker"], Layout::KubeAws, "credentials/"),
            (&["ca", "etcd-client", "apiserver"], Layout::KubeAws, ""),
            (&["server", "client"], Layout::Unknown, ""),
            (&[], Layout::Unknown, ""),
        ] {
            assert_eq!(recognized(names), (layout, root.to_owned()), "{names:?}");
        }
        assert_eq!(Layout::recognize(&BTreeSet::new(), true).0, Layout::Slipway);
    }
}
