//! Renewal, over random inventories, clocks and policies, with scans that are late, doubled or die.

#![allow(clippy::unwrap_used)]

mod cases;
mod machines;
mod recovery;
mod states;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use slipway_core::cluster::{RenewalStrategy, RolloutBeforeExpiry};
use slipway_core::digest::sha256_hex;

use super::*;
use crate::{AssetKind, BundleEntry, Entry, Origin, manifest, policy};

const SPEC: &str = "\
clusterName: base
region: eu-west-1
kubernetesVersion: \"1.37\"
apiEndpoints:
- {name: default, dnsName: api.example.com}
subnets:
- {name: private-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.1.0/24, private: true}
- {name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.2.0/24, private: true}
- {name: private-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.3.0/24, private: true}
- {name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}
etcd: {count: 3}
worker:
  nodePools:
  - name: general
";

fn start() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// A cluster with its inventory, its nodes, and what its scans remember.
struct World {
    cluster: Cluster,
    manifest: Manifest,
    state: State,
    /// The certificate that the nodes of each role have, by asset.
    nodes: BTreeMap<Role, BTreeMap<String, (String, Timestamp)>>,
    tell: bool,
    now: Timestamp,
    issued: u32,
    /// What was replaced: each once.
    replaced: BTreeSet<String>,
    said: Vec<(String, String, u32)>,
}

impl World {
    fn new(policy: Option<(u32, u32)>, leaf_days: u32, ca_days: u32) -> Self {
        let mut cluster = slipway_spec::parse(SPEC.as_bytes(), None).unwrap().cluster;
        cluster.certificates.rollout_before_expiry = policy.map(|(days, emergency_days)| {
            RolloutBeforeExpiry { days, strategy: RenewalStrategy::Rollout, emergency_days }
        });
        (cluster.certificates.leaf_days, cluster.certificates.ca_days) = (leaf_days, ca_days);
        let mut world = Self {
            manifest: Manifest::default(),
            state: State::new(start()),
            nodes: BTreeMap::new(),
            tell: false,
            now: start(),
            issued: 0,
            replaced: BTreeSet::new(),
            said: Vec::new(),
            cluster,
        };
        for asset in policy::assets(&world.cluster) {
            world.issue(&asset.name, start());
        }
        world.seal();
        world.roll_out();
        world
    }

    fn issue(&mut self, name: &str, at: Timestamp) {
        let asset = policy::assets(&self.cluster).into_iter().find(|asset| asset.name == name).unwrap();
        self.issued += 1;
        let fingerprint = sha256_hex(format!("{name} {}", self.issued).as_bytes());
        let certificate = manifest::profile(&asset).map(|profile| {
            let end = manifest::not_after(at, profile.days).unwrap();
            let issuer = profile.issuer.as_ref().map(|issuer| self.ends(issuer));
            CertificateFacts {
                serial: format!("{:x}", self.issued),
                not_before: at - manifest::BACKDATED,
                not_after: issuer.map_or(end, |issuer| manifest::capped_expiry(end, issuer, at).unwrap()),
                spki_sha256: String::new(),
                issuer_fingerprint: profile.issuer.as_ref().map_or_else(
                    || fingerprint.clone(),
                    |issuer| self.manifest.assets[issuer].fingerprint.clone(),
                ),
            }
        });
        let entry = Entry {
            fingerprint,
            names: manifest::names(&asset.kind),
            certificate,
            roles: BTreeSet::new(),
            origin: asset.origin,
            chain: None,
        };
        self.manifest.assets.insert(name.to_owned(), entry);
    }

    fn ends(&self, name: &str) -> Timestamp {
        self.manifest.assets[name].certificate.as_ref().unwrap().not_after
    }

    fn seal(&mut self) {
        for (role, files) in manifest::bundle_files(&self.cluster, &self.manifest).unwrap() {
            let digest = sha256_hex(serde_json::to_string(&files).unwrap().as_bytes());
            let entry = BundleEntry { digest, files, sealed_under: String::new(), etag: String::new() };
            manifest::record(&mut self.manifest, &role, entry);
        }
    }

    /// Nodes take what is in the inventory.
    fn roll_out(&mut self) {
        for (asset, roles) in policy::recipients(&self.cluster) {
            let entry = &self.manifest.assets[&asset];
            let Some(facts) = &entry.certificate else { continue };
            for role in roles {
                let has = (entry.fingerprint.clone(), facts.not_after);
                self.nodes.entry(role).or_default().insert(asset.clone(), has);
            }
        }
    }

    fn reports(&self) -> Vec<Reported> {
        let nodes = self
            .nodes
            .iter()
            .filter(|(role, _)| self.tell && matches!(role, Role::Etcd(_) | Role::Controller));
        nodes
            .map(|(role, has)| Reported {
                role: role.clone(),
                instance: format!("i-{role}"),
                key: format!("i-{role}/status.json"),
                at: self.now,
                held: has
                    .iter()
                    .map(|(asset, (fingerprint, ends))| LeafOnNode {
                        asset: asset.clone(),
                        fingerprint: fingerprint.clone(),
                        ends: *ends,
                        by: "somebody".to_owned(),
                    })
                    .collect(),
            })
            .collect()
    }

    fn decide(&self, asked: &RenewalRequest) -> Decision {
        let observed = Observed {
            cluster: &self.cluster,
            manifest: &self.manifest,
            stored: &BTreeMap::new(),
            nodes: &self.reports(),
            machines: &Machines::default(),
            planned: None,
            state: &self.state,
            request: asked,
        };
        super::decide(&observed, self.now)
    }

    /// As the flows do it: what is no longer the one that was decided on is left.
    fn renew(&mut self, renewals: &[Renewal]) {
        for one in renewals.iter().flat_map(|renewal| &renewal.certificates) {
            if self.manifest.assets[&one.name].fingerprint == one.fingerprint {
                assert!(self.replaced.insert(one.fingerprint.clone()), "{} twice", one.name);
                self.issue(&one.name, self.now);
            }
        }
        self.seal();
    }

    /// A scan that dies after so many steps: intent, renewal, state.
    fn scan(&mut self, steps: u8) -> Decision {
        let decision = self.decide(&RenewalRequest::default());
        self.perform(&decision, steps);
        decision
    }

    fn perform(&mut self, decision: &Decision, steps: u8) {
        let next = decision.next.clone().renewed(&decision.renew);
        if steps > 0 && !decision.renew.is_empty() {
            self.state.superseded.clone_from(&next.superseded);
        }
        if steps > 1 {
            self.renew(&decision.renew);
        }
        if steps > 2 {
            let said = decision.announce.iter().map(|one| {
                let fingerprint = next.announced[&one.certificate].fingerprint.clone();
                (one.certificate.clone(), fingerprint, one.threshold_days)
            });
            self.said.extend(said);
            self.state = next;
        }
    }

    fn leaves(&self) -> Vec<(String, String)> {
        let leaf = |asset: &crate::Asset| match &asset.kind {
            AssetKind::Certificate(profile) => Some((asset.name.clone(), profile.issuer.clone()?)),
            AssetKind::KeyPair(_) | AssetKind::RandomKey => None,
        };
        policy::assets(&self.cluster).iter().filter_map(leaf).collect()
    }

    fn workers(&self) -> BTreeMap<Role, String> {
        let bundles = self.manifest.bundles.iter().filter(|(role, _)| matches!(role, Role::Pool(_)));
        bundles.map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect()
    }
}

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// So many hours pass, in 256ths of what may pass between two scans; then a scan, which may die.
    Scan { share: u8, dies_after: u8 },
    /// The same, and its event came twice: both decide before either acts.
    Twice { share: u8, dies_after: u8 },
    /// The rollout reaches the nodes.
    RollOut,
    /// Nodes begin to tell, or fall silent.
    Tell(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 0..6u8).prop_map(|(share, dies_after)| Step::Scan { share, dies_after }),
        2 => (any::<u8>(), 0..6u8).prop_map(|(share, dies_after)| Step::Twice { share, dies_after }),
        2 => Just(Step::RollOut),
        1 => any::<bool>().prop_map(Step::Tell),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// P7, P2, P8 over histories.
    #[test]
    fn p7_nothing_expires_while_scans_run_and_nothing_is_renewed_twice(
        days_before in 2..60u32, more in 2..300u32, ages in prop::collection::vec(0..100u8, 32),
        steps in prop::collection::vec(step(), 1..60), name in "[a-z]{3,12}",
    ) {
        let leaf_days = days_before + more;
        let mut world = World::new(Some((days_before, days_before / 3)), leaf_days, 3650);
        world.cluster.name = name;
        // An inventory that came to be over time: each leaf has some of its life behind it.
        for (index, (leaf, _)) in world.leaves().into_iter().enumerate() {
            let room_h = i64::from(more.saturating_sub(1)) * 24 / 2;
            let age = SignedDuration::from_hours(room_h * i64::from(ages[index % ages.len()]) / 100);
            world.issue(&leaf, start() - age);
        }
        world.seal();
        world.roll_out();
        let workers = world.workers();
        let between_s = i64::from(days_before - 1) * DAY_S;
        // A scan that died is as good as none: time only passes up to the next that may still be in time.
        let mut spent_s = 0;
        for step in steps {
            match step {
                Step::Scan { share, dies_after } | Step::Twice { share, dies_after } => {
                    let pass = (between_s - spent_s) * i64::from(share) / 255;
                    world.now += SignedDuration::from_secs(pass);
                    spent_s = if dies_after >= 2 { 0 } else { spent_s + pass };
                    for (leaf, issuer) in world.leaves() {
                        prop_assert!(world.ends(&leaf) > world.now, "{leaf} has expired");
                        prop_assert!(world.ends(&leaf) <= world.ends(&issuer), "{leaf} outlives {issuer}");
                    }
                    let decision = world.decide(&RenewalRequest::default());
                    world.perform(&decision, dies_after);
                    if matches!(step, Step::Twice { .. }) {
                        world.perform(&decision, 3);
                        spent_s = 0;
                    }
                }
                Step::RollOut => world.roll_out(),
                Step::Tell(tell) => world.tell = tell,
            }
            prop_assert_eq!(&world.workers(), &workers, "a leaf's renewal changed a worker");
        }
    }

    /// However near its end an authority is, no leaf outlives it, and none is issued again and again under it.
    #[test]
    fn p7_no_leaf_outlives_its_authority(
        days_before in 1..20u32, leaf_days in 21..400u32, ca_days in 30..500u32, hours in 20..200i64,
    ) {
        let mut world = World::new(Some((days_before, 1)), leaf_days, ca_days);
        let end = world.ends("ca");
        while world.now < end {
            world.scan(3);
            for (leaf, issuer) in world.leaves() {
                prop_assert!(world.ends(&leaf) <= world.ends(&issuer), "{leaf} outlives {issuer}");
                prop_assert!(world.ends(&leaf) > world.now || world.now >= end);
            }
            world.now += SignedDuration::from_hours(hours);
        }
        let leaves = world.leaves().len();
        let lives = ca_days.div_ceil((leaf_days - days_before) / 2).max(1) as usize + 2;
        prop_assert!(world.replaced.len() <= leaves * lives, "{} renewals of {leaves}", world.replaced.len());
    }

    /// A threshold is said once of each certificate, whatever the rhythm of the scans, and none is skipped in silence.
    #[test]
    fn a_threshold_is_said_once(hours in prop::collection::vec(1..144i64, 100..200)) {
        let mut world = World::new(None, 365, 3650);
        for pass in hours {
            world.now += SignedDuration::from_hours(pass);
            world.scan(3);
        }
        let once: BTreeSet<_> = world.said.iter().collect();
        prop_assert_eq!(once.len(), world.said.len());
        for (leaf, _) in world.leaves() {
            let said: Vec<u32> = world.said.iter().filter(|(name, ..)| *name == leaf).map(|(.., days)| *days).collect();
            prop_assert!(said.windows(2).all(|pair| pair[0] > pair[1]), "{leaf}: {said:?}");
            prop_assert!(said.first().is_none_or(|days| *days == 30), "{leaf}: {said:?}");
            prop_assert_eq!(said.last() == Some(&0), world.ends(&leaf) <= world.now, "{}: {:?}", leaf, said);
        }
    }

    /// A fleet does not move on one day, and jitter only ever makes it sooner.
    #[test]
    fn jitter_is_of_the_name_and_only_ever_earlier(days in 1..60u32, more in 1..400u32, name in "[a-z-]{1,40}") {
        let (ends, issued) = (start(), days + more);
        let at = renewal_time(&name, ends, days, issued);
        prop_assert_eq!(at, renewal_time(&name, ends, days, issued));
        prop_assert!(at <= days_before(ends, days));
        let life_before = days_before(ends, issued);
        prop_assert!(at > life_before, "what was just issued is not due");
    }
}

/// Where there is no room for a whole week of spread, it takes half of the room that there is, and no more.
#[test]
fn the_spread_takes_at_most_half_of_a_short_certificates_time() {
    for issued_days in [8, 9, 12, 20] {
        let room_s = i64::from(issued_days - 7) * DAY_S;
        let sooner_s = |index: u32| {
            let at = renewal_time(&format!("cluster-{index}"), start(), 7, issued_days);
            days_before(start(), 7).as_second() - at.as_second()
        };
        let most = (0..200).map(sooner_s).max().unwrap();
        assert!(most < room_s / 2 && most > room_s / 2 * 9 / 10, "{issued_days}: {most} of {room_s}");
    }
}

#[test]
fn a_fleet_is_spread_over_a_week() {
    let mut of_day = [0; 7];
    for index in 0..7_000 {
        let at = renewal_time(&format!("cluster-{index}"), start(), 7, 365);
        let sooner_s = days_before(start(), 7).as_second() - at.as_second();
        of_day[usize::try_from(sooner_s / DAY_S).unwrap()] += 1;
    }
    assert!(of_day.iter().all(|count| (850..1150).contains(count)), "{of_day:?}");
}
