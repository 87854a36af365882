//! Modelled nodes around the inventory: whatever they take and report in whatever order, and whenever it is gone back, everybody knows
//! everybody.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;
use slipway_core::role::{KUBELET_CA, SERVICE_ACCOUNT};

use super::super::*;
use super::{Vault, days, report};

/// What a node has: which it trusts for what, and who signed what it presents, by fingerprint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    role: Role,
    digest: String,
}

/// What is known of every bundle that was ever sealed.
#[derive(Default)]
struct Library(BTreeMap<String, Contents>);

#[derive(Clone)]
struct Contents {
    /// File → the fingerprints in it.
    files: BTreeMap<String, Vec<String>>,
    /// Who signed each leaf, by its fingerprint.
    signed: BTreeMap<String, String>,
}

impl Library {
    fn learn(&mut self, manifest: &Manifest) {
        let signed: BTreeMap<String, String> = manifest
            .assets
            .values()
            .filter_map(|entry| {
                Some((entry.fingerprint.clone(), entry.certificate.as_ref()?.issuer_fingerprint.clone()))
            })
            .collect();
        let mut new = BTreeMap::new();
        for bundle in manifest.bundles.values().filter(|bundle| !self.0.contains_key(&bundle.digest)) {
            let files = bundle.files.iter().map(|(path, what)| {
                let prints = what.split('+').filter_map(|one| one.split_once(':'));
                (
                    path.rsplit('/').next().unwrap().to_owned(),
                    prints.map(|(_, print)| print.to_owned()).collect(),
                )
            });
            let contents = Contents { files: files.collect(), signed: signed.clone() };
            new.insert(bundle.digest.clone(), contents);
        }
        self.0.extend(new);
    }

    fn file(&self, node: &Node, name: &str) -> &[String] {
        self.0[&node.digest].files.get(name).map_or(&[], Vec::as_slice)
    }

    /// Who signed what lies in that file of the node.
    fn signer(&self, node: &Node, file: &str) -> Option<&String> {
        let contents = &self.0[&node.digest];
        contents.signed.get(contents.files.get(file)?.first()?)
    }

    /// Every pair of nodes that speak to each other takes what the other presents.
    fn check(
        &self,
        nodes: &BTreeMap<String, Node>,
        kubelets: &[String],
        tokens: &[String],
    ) -> Result<(), String> {
        let takes = |one: &Node, trusts: &str, signer: &String, what: &str| {
            if self.file(one, trusts).contains(signer) {
                Ok(())
            } else {
                Err(format!("{} with {} does not take {what} by {signer}", one.role, trusts))
            }
        };
        let nodes: BTreeSet<&Node> = nodes.values().collect();
        for server in nodes.iter().copied() {
            for client in nodes.iter().copied() {
                // Everybody knows the API server; the API server knows its clients, kubelets know the API server as a client.
                if let Some(signer) = self.signer(server, "apiserver.pem") {
                    takes(client, "ca.pem", signer, "the API server")?;
                }
                for leaf in ["controller-manager.pem", "scheduler.pem", "node-manager.pem"] {
                    if let (Role::Controller, Some(signer)) = (&server.role, self.signer(client, leaf)) {
                        takes(server, "client-ca.pem", signer, leaf)?;
                    }
                }
                if let Some(signer) = self.signer(client, "apiserver-kubelet-client.pem") {
                    takes(server, "ca.pem", signer, "the API server as a client")?;
                }
                if let (Role::Etcd(_), Some(signer)) =
                    (&server.role, self.signer(client, "apiserver-etcd-client.pem"))
                {
                    takes(server, "etcd-ca.pem", signer, "the API server as etcd's client")?;
                    takes(client, "etcd-ca.pem", self.signer(server, "server.pem").unwrap(), "etcd")?;
                }
                if let (Role::Etcd(_), Role::Etcd(_)) = (&server.role, &client.role) {
                    takes(server, "etcd-ca.pem", self.signer(client, "peer.pem").unwrap(), "a fellow")?;
                }
                if let (Role::Controller, Some(signer)) =
                    (&server.role, self.signer(client, "front-proxy-client.pem"))
                {
                    takes(server, "front-proxy-ca.pem", signer, "the front proxy")?;
                }
            }
            if server.role == Role::Controller {
                for signer in kubelets {
                    takes(server, "client-ca.pem", signer, "a kubelet")?;
                }
                for key in tokens {
                    takes(server, "service-account.pub.pem", key, "a token")?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Happening {
    Begin(usize),
    Abort(usize),
    Scan,
    /// A rendering with its rollout: launch templates get what there is.
    Deploy,
    /// A node takes what its template says.
    Take(Index),
    /// A machine is replaced, or joins.
    Replace(Index),
    /// A node says what it has; if not, what it said before stands.
    Report(Index),
    /// Kubelets and pods get what controllers sign.
    Sign,
    Pass(i64),
    /// A leaf is renewed by itself.
    Renew(Index),
    /// The pool leaves the spec or comes back into it. Its machines and its template stay.
    Pool,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        2 => (0usize..5).prop_map(Happening::Begin),
        1 => (0usize..5).prop_map(Happening::Abort),
        6 => Just(Happening::Scan),
        4 => Just(Happening::Deploy),
        10 => any::<Index>().prop_map(Happening::Take),
        1 => any::<Index>().prop_map(Happening::Replace),
        8 => any::<Index>().prop_map(Happening::Report),
        3 => Just(Happening::Sign),
        2 => (1i64..200).prop_map(Happening::Pass),
        1 => any::<Index>().prop_map(Happening::Renew),
        1 => Just(Happening::Pool),
    ];
    proptest::collection::vec(one, 1..100)
}

/// A world of nodes around the inventory.
struct World {
    vault: Vault,
    library: Library,
    nodes: BTreeMap<String, Node>,
    templates: BTreeMap<Role, String>,
    reported: BTreeMap<Role, BTreeMap<String, NodeReport>>,
    /// What controllers signed, with when it ends: by the signer's fingerprint.
    signed: Vec<(&'static str, String, Timestamp)>,
    machines: u32,
}

impl World {
    fn new() -> Self {
        let vault = Vault::new();
        let seen = vault.all();
        let nodes = seen.nodes.iter().flat_map(|(role, nodes)| {
            let node = Node { role: role.clone(), digest: vault.digest(role) };
            nodes.keys().map(move |name| (name.clone(), node.clone()))
        });
        let templates = seen.nodes.keys().map(|role| (role.clone(), vault.digest(role))).collect();
        let mut library = Library::default();
        library.learn(&vault.manifest);
        let nodes = nodes.collect();
        Self {
            library,
            nodes,
            templates,
            reported: seen.nodes.clone(),
            vault,
            signed: Vec::new(),
            machines: 0,
        }
    }

    fn seen(&self) -> KnownNodes {
        let mut machines: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
        for (name, node) in &self.nodes {
            machines.entry(node.role.clone()).or_default().insert(name.clone());
        }
        let boots =
            self.templates.iter().map(|(role, digest)| (role.clone(), BTreeSet::from([digest.clone()])));
        KnownNodes {
            nodes: self.reported.clone(),
            machines,
            boots_with: boots.collect(),
            ..KnownNodes::default()
        }
    }

    fn pick(&self, index: &Index) -> String {
        index.get(&self.nodes.keys().collect::<Vec<_>>()).to_string()
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Begin(which) => drop(self.vault.begin(slipway_core::role::ROTATABLE[*which])),
            Happening::Abort(which) => drop(self.vault.abort(slipway_core::role::ROTATABLE[*which])),
            Happening::Scan => {
                for name in self.vault.manifest.rotations.clone().into_keys() {
                    self.vault.step(&name, &self.seen());
                }
            }
            Happening::Deploy => {
                assert_eq!(self.vault.seal(), BTreeSet::new(), "a rendering seals nothing in passing");
                let roles = policy::roles(&self.vault.cluster);
                for (role, digest) in self.templates.iter_mut().filter(|(role, _)| roles.contains(role)) {
                    *digest = self.vault.manifest.bundles[role].digest.clone();
                }
            }
            Happening::Take(index) => {
                let name = self.pick(index);
                let node = self.nodes.get_mut(&name).unwrap();
                node.digest.clone_from(&self.templates[&node.role]);
            }
            Happening::Replace(index) => {
                let name = self.pick(index);
                let node = self.nodes.remove(&name).unwrap();
                self.machines += 1;
                let digest = self.templates[&node.role].clone();
                self.nodes.insert(format!("i-new-{}", self.machines), Node { digest, ..node });
            }
            Happening::Report(index) => {
                let name = self.pick(index);
                let node = &self.nodes[&name];
                let said = report(&node.digest, self.vault.now);
                self.reported.entry(node.role.clone()).or_default().insert(name, said);
            }
            Happening::Sign => {
                let controllers: Vec<_> =
                    self.nodes.values().filter(|node| node.role == Role::Controller).collect();
                for node in controllers {
                    for (name, file) in
                        [(KUBELET_CA, "kubelet-ca.pem"), (SERVICE_ACCOUNT, "service-account-key.pem")]
                    {
                        let signer = self.library.file(node, file)[0].clone();
                        self.signed.push((name, signer, self.vault.now + days(365)));
                    }
                }
            }
            Happening::Pass(count) => self.vault.now += days(*count),
            Happening::Renew(index) => {
                let assets = policy::assets(&self.vault.cluster);
                let leaves: Vec<_> = assets
                    .iter()
                    .filter(|asset| manifest::profile(asset).is_some_and(|one| !one.authority))
                    .collect();
                let asset = (*index.get(&leaves)).clone();
                self.vault.issue(&asset);
                self.vault.seal();
            }
            Happening::Pool => {
                let whole = super::sample();
                let pools = if self.vault.cluster.pools.is_empty() { whole.pools } else { Vec::new() };
                self.vault.cluster.pools = pools;
                self.vault.seal();
            }
        }
        self.library.learn(&self.vault.manifest);
    }

    fn check(&self) -> Result<(), String> {
        let alive = |name: &str| -> Vec<String> {
            let valid = self.signed.iter().filter(|(of, _, end)| *of == name && *end > self.vault.now);
            valid.map(|(_, signer, _)| signer.clone()).collect()
        };
        self.library.check(&self.nodes, &alive(KUBELET_CA), &alive(SERVICE_ACCOUNT))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn at_no_moment_does_a_node_not_trust_who_signed_what_a_peer_presents(happenings in happenings()) {
        let mut world = World::new();
        for happening in &happenings {
            world.happen(happening);
            prop_assert_eq!(world.check(), Ok(()), "after {:?}", happening);
        }
        // Left alone, everything comes to its end.
        if world.vault.cluster.pools.is_empty() {
            world.happen(&Happening::Pool);
        }
        for _ in 0..6 {
            for happening in [Happening::Deploy, Happening::Sign] {
                world.happen(&happening);
            }
            let names: Vec<String> = world.nodes.keys().cloned().collect();
            for name in names {
                let node = world.nodes.get_mut(&name).unwrap();
                node.digest.clone_from(&world.templates[&node.role]);
                let said = report(&node.digest, world.vault.now);
                world.reported.entry(node.role.clone()).or_default().insert(name, said);
            }
            world.happen(&Happening::Scan);
            prop_assert_eq!(world.check(), Ok(()));
            world.happen(&Happening::Pass(367));
            prop_assert_eq!(world.check(), Ok(()));
        }
        prop_assert!(world.vault.manifest.rotations.is_empty(), "{:?}", world.vault.manifest.rotations);
    }
}
