//! The table of design §5: which credentials a cluster has, and which files of them each role receives.
//!
//! Both come from the checked [`Cluster`] alone, so that the same spec asks for the same credentials anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use slipway_core::cluster::Cluster;
use slipway_core::role::{CA, ETCD_CA, FRONT_PROXY_CA, KUBELET_CA, Role, SERVICE_ACCOUNT};

use super::{Asset, AssetKind, CertificateProfile, Origin};

/// Folder of the Kubernetes credentials on controllers and workers.
pub const KUBERNETES_DIR: &str = "/etc/kubernetes/pki";
/// Folder of the etcd credentials on a member.
pub const ETCD_DIR: &str = "/etc/etcd/pki";

/// The asset whose secret keys every digest of the cluster's secrets; it goes to nobody.
pub const DIGEST_KEY: &str = "digest-key";
/// The group of the bootstrap token: it may ask for a kubelet's first certificate.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of the administrators' certificate.
pub const CLUSTER_ADMINS: &str = "slipway:cluster-admins";
/// The group of the API server where it speaks to kubelets.
pub const KUBELET_API_ADMINS: &str = "slipway:kubelet-api-admins";

const APISERVER: &str = "apiserver";
const BOOTSTRAP_TOKEN: &str = "bootstrap-token";
const ENCRYPTION_CONFIG: &str = "encryption-config";
const HEALTHCHECK_CLIENT: &str = "etcd-healthcheck-client";
const ADMIN: &str = "admin";

/// Client certificates that the API server and the components beside it use: asset, CN, O, authority.
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
    /// Where the node agent writes it; of the admin's bundle a bare file name.
    pub path: String,
    /// What it holds: mostly one part of one asset; several are written one after the other.
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

/// A part of an asset, or a file made of its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The certificate, PEM.
    Certificate,
    /// Of an authority that was brought: what a server presents besides its own certificate, so that who knows the root
    /// alone can follow; nothing, if the authority is a root. PEM.
    Intermediates,
    /// Of an authority that was brought: it and all above it, PEM.
    Chain,
    /// The private key, PKCS #8 PEM.
    PrivateKey,
    /// The public key of a key pair, PEM.
    PublicKey,
    /// A secret's text as it is.
    Secret,
    /// `--token-auth-file` of the API server, made of the bootstrap token.
    TokensCsv,
    /// `--encryption-provider-config` that writes encrypted and reads both.
    EncryptionConfig,
    /// The same that writes in plain and still reads what was encrypted before: encryption switched off.
    EncryptionConfigOff,
}

impl Part {
    /// Whether it tells anything that must stay secret.
    #[must_use]
    pub fn is_secret(self) -> bool {
        match self {
            Self::Certificate | Self::Intermediates | Self::Chain | Self::PublicKey => false,
            Self::PrivateKey
            | Self::Secret
            | Self::TokensCsv
            | Self::EncryptionConfig
            | Self::EncryptionConfigOff => true,
        }
    }

    /// The file's text, made of the asset's own: a PEM or a secret. The result is as secret as `text`.
    ///
    /// A bundle is sealed anew when the name of a part changes, not when this function does: whoever changes what it
    /// returns gives the part another name, or nodes never see it.
    #[must_use]
    pub fn content(self, text: &str) -> String {
        match self {
            Self::Certificate
            | Self::Intermediates
            | Self::Chain
            | Self::PrivateKey
            | Self::PublicKey
            | Self::Secret => text.to_owned(),
            // Static tokens name their user and groups; this group may ask for a kubelet certificate and no more:
            // https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#token-authentication-file
            Self::TokensCsv => {
                format!("{text},kubelet-bootstrap,kubelet-bootstrap,\"{BOOTSTRAPPERS}\"\n")
            }
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
            Self::TokensCsv => "tokens-csv",
            Self::EncryptionConfig => "encryption-config",
            Self::EncryptionConfigOff => "encryption-config-off",
        })
    }
}

const IDENTITY: &str = "  - identity: {}\n";

/// Of the local providers only secretbox is called strong by
/// <https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/#providers>; it takes 32 bytes in base64.
fn secretbox(key: &str) -> String {
    format!("  - secretbox:\n      keys:\n      - name: key1\n        secret: {key}\n")
}

fn encryption_config(providers: &[&str]) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources:\n  - secrets\n  providers:\n{}",
        providers.concat()
    )
}

/// Every credential of `cluster`, authorities before what they sign.
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
            // Whoever checks the name reads the SANs; the CN is for people.
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
    assets.push(secret(BOOTSTRAP_TOKEN, AssetKind::BootstrapToken));
    assets.push(secret(ENCRYPTION_CONFIG, AssetKind::RandomKey));
    assets
}

/// What is no certificate is always ours.
fn secret(name: &str, kind: AssetKind) -> Asset {
    Asset { name: name.to_owned(), kind, origin: Origin::Generated }
}

/// The files of a leaf that is brought, in `import/`: certificate and key.
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

/// What `role` receives, sorted by path. A role needs what is here and nothing more (P9).
#[must_use]
pub fn bundle(cluster: &Cluster, role: &Role) -> Vec<BundleFile> {
    let mut files = match role {
        Role::Etcd(index) => etcd_files(cluster, *index),
        Role::Controller => controller_files(cluster),
        Role::Pool(_) => vec![
            file(KUBERNETES_DIR, "ca.pem", CA, Part::Certificate),
            file(KUBERNETES_DIR, "kubelet-ca.pem", KUBELET_CA, Part::Certificate),
            file(KUBERNETES_DIR, "bootstrap-token", BOOTSTRAP_TOKEN, Part::Secret),
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

/// Which roles receive any part of each asset; an asset that nobody receives is missing here.
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

/// A member's files bear no index, so that every member has the same configuration.
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
    // kube-controller-manager signs the kubelets' requests with it: the one authority's key that leaves the vault.
    files.push(file(KUBERNETES_DIR, "kubelet-ca-key.pem", KUBELET_CA, Part::PrivateKey));
    // The API server's clients are signed by either; its --client-ca-file may hold both.
    files.push(BundleFile {
        path: format!("{KUBERNETES_DIR}/client-ca.pem"),
        sources: [CA, KUBELET_CA].map(|name| source(name, Part::Certificate)).into(),
    });
    if is_own(cluster, CA) {
        // For pods: not all of their libraries take an intermediate as an anchor. It serves to know the API server by and
        // nothing else: whoever trusts it to sign clients trusts all that its root stands for.
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
    files.push(file(KUBERNETES_DIR, "bootstrap-token", BOOTSTRAP_TOKEN, Part::Secret));
    files.push(file(KUBERNETES_DIR, "tokens.csv", BOOTSTRAP_TOKEN, Part::TokensCsv));
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

/// What a server presents: its certificate, and what leads to the root of an authority that was brought (RFC 8446,
/// 4.4.2). Of our own authorities nothing does.
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

/// The names under which the API is reached: from pods, by every endpoint, on the controller itself, and what the
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

/// DNS names compare without case and without the root's dot; to write one otherwise is no reason to issue anew.
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
        own.map_or(Origin::Generated, |own| Origin::of(own.source))
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
            // Without the authority's key nothing can be issued.
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
