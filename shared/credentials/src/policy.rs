//! The table of all credentials: which ones a cluster has, and which files of them each role receives.
//!
//! It depends on the checked [`Cluster`] only, so the same spec asks for the same credentials everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use slipway_core::cluster::Cluster;
use slipway_core::role::{CA, ETCD_CA, FRONT_PROXY_CA, KUBELET_CA, Role, SERVICE_ACCOUNT};

use super::bootstrap::{KEY_FILE, RoleToken};
use super::{Asset, AssetKind, CertificateProfile, Origin};

/// Folder of the Kubernetes credentials on controllers and workers.
pub const KUBERNETES_DIR: &str = "/etc/kubernetes/pki";
/// Folder of the etcd credentials on a member.
pub const ETCD_DIR: &str = "/etc/etcd/pki";

/// The secret that keys all digests of the cluster's secrets. No role receives it.
pub const DIGEST_KEY: &str = "digest-key";
/// The group of the administrators' certificate.
pub const CLUSTER_ADMINS: &str = "slipway:cluster-admins";
/// The group of the API server's client certificate for kubelets.
pub const KUBELET_API_ADMINS: &str = "slipway:kubelet-api-admins";

const APISERVER: &str = "apiserver";
/// The key that bootstrap tokens are derived from.
pub const BOOTSTRAP_KEY: &str = "bootstrap-key";
/// The file with a node's bootstrap token.
const TOKEN_FILE: &str = "bootstrap-token";
const ENCRYPTION_CONFIG: &str = "encryption-config";
const HEALTHCHECK_CLIENT: &str = "etcd-healthcheck-client";
const ADMIN: &str = "admin";

/// Client certificates of the API server and the components beside it: asset, CN, O, authority.
const CONTROLLER_CLIENTS: [(&str, &str, Option<&str>, &str); 6] = [
    ("apiserver-kubelet-client", "kube-apiserver-kubelet-client", Some(KUBELET_API_ADMINS), CA),
    ("apiserver-etcd-client", "kube-apiserver-etcd-client", None, ETCD_CA),
    ("front-proxy-client", "front-proxy-client", None, FRONT_PROXY_CA),
    ("controller-manager", "system:kube-controller-manager", None, CA),
    ("scheduler", "system:kube-scheduler", None, CA),
    ("node-manager", "slipway:node-manager", Some("system:masters"), CA),
];

/// The longest CN, X.520 `ub-common-name` (RFC 5280, appendix A.1).
const COMMON_NAME_MAX: usize = 64;

/// One file of a role's bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFile {
    /// The path at which the node agent writes it; for the admin's bundle a bare file name.
    pub path: String,
    /// The parts of assets in it, one after the other; usually there is one.
    pub sources: Vec<Source>,
}

/// A part of an asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The asset's name.
    pub asset: String,
    /// Which part of it.
    pub part: Part,
}

/// A part of an asset, or a file generated from its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The certificate, PEM.
    Certificate,
    /// For an imported authority: the certificates that servers present in addition to their own, so that clients that know only the
    /// root can verify them. Empty if the authority is a root. PEM.
    Intermediates,
    /// For an imported authority: its certificate and all above it, PEM.
    Chain,
    /// The private key, PKCS #8 PEM.
    PrivateKey,
    /// The public key of a key pair, PEM.
    PublicKey,
    /// The text of a secret.
    Secret,
    /// The bootstrap token of the role that receives the file, derived from the bootstrap key.
    RoleToken,
    /// The file for `--encryption-provider-config` that writes encrypted data and reads both encrypted and plain data.
    EncryptionConfig,
    /// The same with encryption switched off: it writes plain data and still reads encrypted data.
    EncryptionConfigOff,
}

impl Part {
    /// Whether it contains something secret.
    #[must_use]
    pub fn is_secret(self) -> bool {
        match self {
            Self::Certificate | Self::Intermediates | Self::Chain | Self::PublicKey => false,
            Self::PrivateKey
            | Self::Secret
            | Self::RoleToken
            | Self::EncryptionConfig
            | Self::EncryptionConfigOff => true,
        }
    }

    /// The text of the file for `role`, generated from the PEM or secret of the asset. It is as secret as `text`.
    ///
    /// A bundle is sealed anew when the name of a part changes, not when this function changes. If you change what it returns, rename the
    /// part; otherwise nodes never receive the change.
    #[must_use]
    pub fn content(self, role: &Role, text: &str) -> String {
        match self {
            Self::Certificate
            | Self::Intermediates
            | Self::Chain
            | Self::PrivateKey
            | Self::PublicKey
            | Self::Secret => text.to_owned(),
            Self::RoleToken => RoleToken::derive(text, role).text(),
            Self::EncryptionConfig => encryption_config(&[&secretbox(text), IDENTITY]),
            Self::EncryptionConfigOff => encryption_config(&[IDENTITY, &secretbox(text)]),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Intermediates => "intermediates",
            Self::Chain => "chain",
            Self::PrivateKey => "private-key",
            Self::PublicKey => "public-key",
            Self::Secret => "secret",
            Self::RoleToken => "role-token",
            Self::EncryptionConfig => "encryption-config",
            Self::EncryptionConfigOff => "encryption-config-off",
        })
    }
}

const IDENTITY: &str = "  - identity: {}\n";

/// The secretbox provider: the only local one that is rated strong by
/// <https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/#providers>. Its key is 32 bytes in base64.
fn secretbox(key: &str) -> String {
    format!("  - secretbox:\n      keys:\n      - name: key1\n        secret: {key}\n")
}

fn encryption_config(providers: &[&str]) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources:\n  - secrets\n  providers:\n{}",
        providers.concat()
    )
}

/// All credentials of `cluster`, authorities before what they sign.
#[must_use]
pub fn assets(cluster: &Cluster) -> Vec<Asset> {
    let profiles = Profiles { cluster };
    let mut assets = vec![secret(DIGEST_KEY, AssetKind::RandomKey)];
    for (name, common_name) in [
        (CA, "kubernetes-ca"),
        (KUBELET_CA, "kubelet-ca"),
        (ETCD_CA, "etcd-ca"),
        (FRONT_PROXY_CA, "front-proxy-ca"),
    ] {
        assets.push(profiles.authority(name, common_name));
    }
    assets.push(profiles.leaf(APISERVER, CA, "kube-apiserver", None, Usage::Server, apiserver_sans(cluster)));
    for (name, common_name, organization, issuer) in CONTROLLER_CLIENTS {
        assets.push(profiles.client(name, issuer, common_name, organization));
    }
    for member in &cluster.etcd.members {
        let dns_name = dns(&member.dns_name);
        let common_name = if dns_name.len() <= COMMON_NAME_MAX {
            dns_name.clone()
        } else {
            // Clients check the SANs; the CN is for people.
            format!("etcd-{}", member.index)
        };
        let sans = BTreeSet::from([dns_name, "localhost".to_owned(), "127.0.0.1".to_owned()]);
        for purpose in ["server", "peer"] {
            let name = format!("etcd-{purpose}-{}", member.index);
            assets.push(profiles.leaf(&name, ETCD_CA, &common_name, None, Usage::Both, sans.clone()));
        }
    }
    assets.push(profiles.client(HEALTHCHECK_CLIENT, ETCD_CA, "etcd-healthcheck-client", None));
    assets.push(profiles.client(ADMIN, CA, "kubernetes-admin", Some(CLUSTER_ADMINS)));
    assets.push(secret(SERVICE_ACCOUNT, AssetKind::KeyPair(cluster.certificates.key_algorithm)));
    assets.push(secret(BOOTSTRAP_KEY, AssetKind::RandomKey));
    assets.push(secret(ENCRYPTION_CONFIG, AssetKind::RandomKey));
    assets
}

/// A secret or key pair. Slipway always makes these itself.
fn secret(name: &str, kind: AssetKind) -> Asset {
    Asset { name: name.to_owned(), kind, origin: Origin::Generated }
}

/// The files of a provided leaf in `import/`: certificate and key.
#[must_use]
pub fn import_files(asset: &str) -> (String, String) {
    (format!("{asset}.pem"), format!("{asset}-key.pem"))
}

/// Every role that receives a bundle.
#[must_use]
pub fn roles(cluster: &Cluster) -> BTreeSet<Role> {
    let members = cluster.etcd.members.iter().map(|member| Role::Etcd(member.index));
    let pools = cluster.pools.iter().map(|pool| Role::Pool(pool.name.clone()));
    members.chain(pools).chain([Role::Controller, Role::Admin]).collect()
}

/// The files that `role` receives, sorted by path. A role receives only what it needs (P9).
#[must_use]
pub fn bundle(cluster: &Cluster, role: &Role) -> Vec<BundleFile> {
    let mut files = match role {
        Role::Etcd(index) => etcd_files(cluster, *index),
        Role::Controller => controller_files(cluster),
        Role::Pool(_) => vec![
            file(KUBERNETES_DIR, "ca.pem", CA, Part::Certificate),
            file(KUBERNETES_DIR, "kubelet-ca.pem", KUBELET_CA, Part::Certificate),
            file(KUBERNETES_DIR, TOKEN_FILE, BOOTSTRAP_KEY, Part::RoleToken),
        ],
        Role::Admin => vec![
            file("", "ca.pem", CA, Part::Certificate),
            file("", "admin.pem", ADMIN, Part::Certificate),
            file("", "admin-key.pem", ADMIN, Part::PrivateKey),
        ],
    };
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The roles that receive a part of each asset. An asset that no role receives is not listed.
#[must_use]
pub fn recipients(cluster: &Cluster) -> BTreeMap<String, BTreeSet<Role>> {
    let mut recipients: BTreeMap<String, BTreeSet<Role>> = BTreeMap::new();
    for role in roles(cluster) {
        for source in bundle(cluster, &role).into_iter().flat_map(|file| file.sources) {
            recipients.entry(source.asset).or_default().insert(role.clone());
        }
    }
    recipients
}

/// The files of an etcd member. Their paths contain no index, so that all members have the same configuration.
fn etcd_files(cluster: &Cluster, index: u32) -> Vec<BundleFile> {
    let (server, peer) = (format!("etcd-server-{index}"), format!("etcd-peer-{index}"));
    vec![
        file(ETCD_DIR, "ca.pem", CA, Part::Certificate),
        file(ETCD_DIR, "kubelet-ca.pem", KUBELET_CA, Part::Certificate),
        file(ETCD_DIR, "etcd-ca.pem", ETCD_CA, Part::Certificate),
        served(cluster, ETCD_DIR, "server.pem", &server, ETCD_CA),
        file(ETCD_DIR, "server-key.pem", &server, Part::PrivateKey),
        served(cluster, ETCD_DIR, "peer.pem", &peer, ETCD_CA),
        file(ETCD_DIR, "peer-key.pem", &peer, Part::PrivateKey),
        file(ETCD_DIR, "healthcheck-client.pem", HEALTHCHECK_CLIENT, Part::Certificate),
        file(ETCD_DIR, "healthcheck-client-key.pem", HEALTHCHECK_CLIENT, Part::PrivateKey),
    ]
}

fn controller_files(cluster: &Cluster) -> Vec<BundleFile> {
    let mut files: Vec<_> = [CA, KUBELET_CA, ETCD_CA, FRONT_PROXY_CA]
        .map(|authority| file(KUBERNETES_DIR, &format!("{authority}.pem"), authority, Part::Certificate))
        .into();
    // kube-controller-manager signs kubelet certificates with it: the only key of an authority that leaves the vault.
    files.push(file(KUBERNETES_DIR, "kubelet-ca-key.pem", KUBELET_CA, Part::PrivateKey));
    // Clients of the API server are signed by either authority; its --client-ca-file may contain both.
    files.push(BundleFile {
        path: format!("{KUBERNETES_DIR}/client-ca.pem"),
        sources: [CA, KUBELET_CA].map(|name| source(name, Part::Certificate)).into(),
    });
    if is_own(cluster, CA) {
        // For pods, because not all of their libraries accept an intermediate certificate as a trust anchor. It is used to verify the API
        // server only: trusting it for client certificates would trust everything under that root.
        files.push(file(KUBERNETES_DIR, "root-ca.pem", CA, Part::Chain));
    }
    files.push(served(cluster, KUBERNETES_DIR, "apiserver.pem", APISERVER, CA));
    files.push(file(KUBERNETES_DIR, "apiserver-key.pem", APISERVER, Part::PrivateKey));
    for (name, ..) in CONTROLLER_CLIENTS {
        files.push(file(KUBERNETES_DIR, &format!("{name}.pem"), name, Part::Certificate));
        files.push(file(KUBERNETES_DIR, &format!("{name}-key.pem"), name, Part::PrivateKey));
    }
    files.push(file(KUBERNETES_DIR, "service-account.pub.pem", SERVICE_ACCOUNT, Part::PublicKey));
    files.push(file(KUBERNETES_DIR, "service-account-key.pem", SERVICE_ACCOUNT, Part::PrivateKey));
    files.push(file(KUBERNETES_DIR, TOKEN_FILE, BOOTSTRAP_KEY, Part::RoleToken));
    // The node manager makes the tokens of all roles of it, those of pools that are new too.
    files.push(file(KUBERNETES_DIR, KEY_FILE, BOOTSTRAP_KEY, Part::Secret));
    let encryption = if cluster.kubernetes.encryption_at_rest {
        Part::EncryptionConfig
    } else {
        Part::EncryptionConfigOff
    };
    files.push(file(KUBERNETES_DIR, "encryption-config.yaml", ENCRYPTION_CONFIG, encryption));
    files
}

fn file(dir: &str, name: &str, asset: &str, part: Part) -> BundleFile {
    let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
    BundleFile { path, sources: vec![source(asset, part)] }
}

/// What a server presents: its certificate, and the intermediate certificates of an imported authority (RFC 8446, 4.4.2). Slipway's own
/// authorities have none.
fn served(cluster: &Cluster, dir: &str, name: &str, asset: &str, authority: &str) -> BundleFile {
    let mut served = file(dir, name, asset, Part::Certificate);
    if is_own(cluster, authority) {
        served.sources.push(source(authority, Part::Intermediates));
    }
    served
}

fn is_own(cluster: &Cluster, authority: &str) -> bool {
    cluster.certificates.authorities.contains_key(authority)
}

fn source(asset: &str, part: Part) -> Source {
    Source { asset: asset.to_owned(), part }
}

/// The names of the API in the certificate: those for pods, those of all endpoints, those on the controller itself, and those that the
/// spec adds.
fn apiserver_sans(cluster: &Cluster) -> BTreeSet<String> {
    let fixed = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ];
    let endpoints = cluster.api_endpoints.iter().map(|endpoint| endpoint.dns_name.as_str());
    let extra = cluster.kubernetes.extra_sans.iter().map(String::as_str);
    let mut sans: BTreeSet<_> = fixed.into_iter().chain(endpoints).chain(extra).map(dns).collect();
    sans.insert(cluster.api_service_ip().to_string());
    sans
}

/// The DNS name in lower case and without the trailing dot, since neither makes a difference, and changing either in the spec should not
/// reissue the certificate.
fn dns(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Extended key usages.
#[derive(Clone, Copy, PartialEq)]
enum Usage {
    Server,
    Client,
    Both,
}

struct Profiles<'a> {
    cluster: &'a Cluster,
}

impl Profiles<'_> {
    fn authority(&self, name: &str, common_name: &str) -> Asset {
        Asset {
            name: name.to_owned(),
            origin: self.origin(name),
            kind: AssetKind::Certificate(CertificateProfile {
                issuer: None,
                authority: true,
                common_name: common_name.to_owned(),
                organizations: Vec::new(),
                server: false,
                client: false,
                sans: BTreeSet::new(),
                algorithm: self.cluster.certificates.key_algorithm,
                days: self.cluster.certificates.ca_days,
            }),
        }
    }

    fn origin(&self, authority: &str) -> Origin {
        let own = self.cluster.certificates.authorities.get(authority);
        own.map_or(Origin::Generated, |own| Origin::from(own.source))
    }

    fn client(&self, name: &str, issuer: &str, common_name: &str, organization: Option<&str>) -> Asset {
        self.leaf(name, issuer, common_name, organization, Usage::Client, BTreeSet::new())
    }

    fn leaf(
        &self,
        name: &str,
        issuer: &str,
        common_name: &str,
        organization: Option<&str>,
        usage: Usage,
        sans: BTreeSet<String>,
    ) -> Asset {
        let origin = match self.origin(issuer) {
            // Nothing can be issued without the authority's key.
            Origin::Provided => Origin::Provided,
            Origin::Generated | Origin::Imported => Origin::Generated,
        };
        Asset {
            name: name.to_owned(),
            origin,
            kind: AssetKind::Certificate(CertificateProfile {
                issuer: Some(issuer.to_owned()),
                authority: false,
                common_name: common_name.to_owned(),
                organizations: organization.map(str::to_owned).into_iter().collect(),
                server: usage != Usage::Client,
                client: usage != Usage::Server,
                sans,
                algorithm: self.cluster.certificates.key_algorithm,
                days: self.cluster.certificates.leaf_days,
            }),
        }
    }
}
