//! Version skew: what an update may not do to a running cluster. It may not skip a minor release or go back one, leave kubelets too far
//! behind, rename etcd's zone, issue tokens that half of the controllers refuse, or change addresses that what runs keeps.
//!
//! The rules are those of kubernetes.io/releases/version-skew-policy and of etcd.io/docs ("Upgrading etcd clusters", with the guides of
//! each minor). The running versions are known from the deployed release.
//!
//! It is checked twice: [`objections`] for a spec, so that the finding has a place, and [`between`] for every plan, because a release
//! that was harmless when it was uploaded may be a step back once the rollout in progress has ended.

mod endpoints;
mod issuer;
mod network;
#[cfg(test)]
mod tests;
mod zone;

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Cluster, EtcdMember, KubernetesVersion};
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::members::NameZone;
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_core::versions::{self, ETCD_STEPS, KUBELET_LAG};
use slipway_render::lock::Lock;
use slipway_spec::{Objection, Places};

/// For each role, other releases that some of its nodes may have, because a rollout ended before it replaced them. `None`: that release
/// does not have the role.
pub type Earlier = BTreeMap<Role, BTreeMap<String, Option<NodeRole>>>;

/// What is running: the deployed release, and other releases that some nodes may have.
#[derive(Debug, Clone, Copy)]
struct Runs<'a> {
    deployed: &'a Rendering,
    earlier: &'a Earlier,
}

impl Runs<'_> {
    /// The versions that nodes of `role` may run.
    fn versions(&self, role: &Role) -> BTreeSet<Release> {
        let older = self.earlier.get(role).into_iter().flat_map(|releases| releases.values().flatten());
        self.deployed.roles.get(role).into_iter().chain(older).filter_map(version).collect()
    }

    /// The deployed pools.
    fn pools(&self) -> impl Iterator<Item = (&Role, &String, &NodeRole)> {
        self.deployed.roles.iter().filter_map(|(role, node)| match role {
            Role::Pool(name) => Some((role, name, node)),
            Role::Etcd(_) | Role::Controller | Role::Admin => None,
        })
    }
}

/// The objections to updating `running`, some of whose nodes have an `earlier` release, to `cluster`, as findings with their place in the
/// spec (`places`).
#[must_use]
pub fn check_update(
    places: &Places,
    cluster: &Cluster,
    lock: &Lock,
    running: &Rendering,
    earlier: &Earlier,
) -> Vec<Diagnostic> {
    places.findings(objections(cluster, lock, running, earlier))
}

/// A version such as `1.34.2` or `3.6.16`. Kubernetes and etcd use the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Release {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let read = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(read)
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// All objections to updating `running`, some of whose nodes have an `earlier` release, to `cluster` in one step.
#[must_use]
pub fn objections(cluster: &Cluster, lock: &Lock, running: &Rendering, earlier: &Earlier) -> Vec<Objection> {
    let runs = Runs { deployed: running, earlier };
    let mut found = Vec::new();
    found.extend(control_plane(cluster, lock, runs));
    let served = (cluster.kubernetes_version.major, cluster.kubernetes_version.minor);
    let position = |name: &str| cluster.pools.iter().position(|pool| pool.name == name);
    found.extend(kubelets(served, runs, position));
    let target = |name: &str| exact(lock, cluster.version_of(&cluster.pools[position(name)?]));
    found.extend(kubelets_back(Some(served), runs, target, position));
    found.extend(etcd(cluster, lock, runs));
    found.extend(volumes(cluster, running));
    found.extend(issuer::objection(cluster, running));
    found.extend(network::objections(cluster, runs));
    found.extend(zone::objection(running, &NameZone::from_id(cluster.etcd.hosted_zone_id.as_deref())));
    found
}

/// All objections to updating `running`, some of whose nodes have an `earlier` release, to `new` in one step, independent of earlier checks.
#[must_use]
pub fn between(running: &Rendering, earlier: &Earlier, new: &Rendering) -> Vec<Objection> {
    let runs = Runs { deployed: running, earlier };
    let mut found = Vec::new();
    let target = |role: &Role| version(new.roles.get(role)?);
    let served = target(&Role::Controller).map(|target| (target.major, target.minor));
    found.extend(target(&Role::Controller).and_then(|target| step_controllers(runs, target)));
    found.extend(served.into_iter().flat_map(|served| kubelets(served, runs, |_| None)));
    found.extend(kubelets_back(served, runs, |name| target(&Role::Pool(name.to_owned())), |_| None));
    let (stand, target) = (members(running), members(new));
    found.extend(
        target.values().filter_map(|node| version(node)).max().and_then(|etcd| step_etcd(etcd, runs)),
    );
    found.extend(target.iter().filter_map(|(index, node)| {
        let (before, after) = (stand.get(index)?.member.as_ref()?, node.member.as_ref()?);
        (before.pin.volume == after.pin.volume && after.volume_gib < before.volume_gib)
            .then(|| shrinks(*index, &format!("etcd member {index}"), before.volume_gib, after.volume_gib))
    }));
    if let Some(target) = zone::members_zone(new) {
        found.extend(zone::objection(running, target));
    }
    found.extend(issuer::between(running, new));
    found.extend(network::between(running, new));
    found.extend(endpoints::between(running, new));
    found.retain(|objection| objection.severity == Severity::Error);
    found
}

/// `1.34` of `1.34.2`; the whole text if it is no version.
pub(crate) fn minor_of(release: &str) -> String {
    Release::read(release)
        .map_or_else(|| release.to_owned(), |release| format!("{}.{}", release.major, release.minor))
}

fn version(node: &NodeRole) -> Option<Release> {
    Release::read(node.version.as_deref()?)
}

/// The exact version for `target`; the lock may be about to pin it.
fn exact(lock: &Lock, target: KubernetesVersion) -> Option<Release> {
    let pinned = lock.kubernetes.get(&target.to_string()).cloned();
    Release::read(&pinned.or_else(|| versions::newest_patch(target).map(|version| version.to_string()))?)
}

fn control_plane(cluster: &Cluster, lock: &Lock, runs: Runs<'_>) -> Option<Objection> {
    step_controllers(runs, exact(lock, cluster.kubernetes_version)?)
}

fn step_controllers(runs: Runs<'_>, target: Release) -> Option<Objection> {
    let runs = nearest(&runs.versions(&Role::Controller), target)?;
    step("Kubernetes", runs, target, vec!["kubernetesVersion".to_owned()])
}

/// The version that is farthest from `target`. Nodes of a role may differ after an interrupted update: the oldest limits an upgrade, the
/// newest a downgrade.
fn nearest(runs: &BTreeSet<Release>, target: Release) -> Option<Release> {
    let (oldest, newest) = (*runs.first()?, *runs.last()?);
    Some(if target < newest { newest } else { oldest })
}

/// Objects to an upgrade by more than one minor and to a downgrade of the minor; warns of a downgrade of the patch.
fn step(what: &str, runs: Release, target: Release, paths: Vec<String>) -> Option<Objection> {
    let both = format!("{what} {runs} runs, and {}.{} is asked for", target.major, target.minor);
    if (target.major, target.minor) < (runs.major, runs.minor) {
        let message = format!("{both}: it cannot go back a minor release");
        let help = format!("write {}.{} or newer, or restore a snapshot from before", runs.major, runs.minor);
        return Some(Objection::error("version-downgrade", paths, message, help));
    }
    if target.major != runs.major || target.minor > runs.minor + 1 {
        let message = format!("{both}: a minor release cannot be skipped");
        let way: Vec<String> =
            (runs.minor + 1..=target.minor).map(|minor| format!("{}.{minor}", target.major)).collect();
        // A version without a name is that of Kubernetes.
        let product = if what == "Kubernetes" { String::new() } else { format!("{what} ") };
        let help = match way.split_first() {
            Some((first, rest)) => format!(
                "upload {product}{first} first, then {}, each when the one before has been rolled out",
                rest.join(", then ")
            ),
            None => format!("write {}.{}", runs.major, runs.minor),
        };
        return Some(Objection::error("version-skip", paths, message, help));
    }
    (target < runs).then(|| Objection {
        severity: Severity::Warning,
        code: "version-downgrade",
        paths,
        message: format!("{what} {runs} runs, and the older patch {target} is asked for"),
        help: format!("write {runs}, unless going back is on purpose"),
    })
}

/// Checks the kubelets against the new API server, which is updated first and serves the present kubelets for a while.
fn kubelets(
    served: (u16, u16),
    running: Runs<'_>,
    position: impl Fn(&str) -> Option<usize>,
) -> Vec<Objection> {
    let (major, minor) = served;
    let mut found = Vec::new();
    for (role, name, node) in running.pools() {
        let Some(runs) = running.versions(role).first().copied() else { continue };
        if major != runs.major || minor <= runs.minor + KUBELET_LAG {
            continue;
        }
        let oldest = minor - KUBELET_LAG;
        let message = format!(
            "the kubelets of pool `{name}` run {runs}, and the API server is to be {major}.{minor}: three minors are the most that they may be behind"
        );
        let (paths, help) = match position(name) {
            Some(index) => (
                vec![format!("worker.nodePools[{index}].kubernetesVersion"), "kubernetesVersion".to_owned()],
                format!(
                    "bring the pool to 1.{oldest} or newer first, with the cluster's `kubernetesVersion` as it is, then upload this"
                ),
            ),
            None => (
                vec!["kubernetesVersion".to_owned()],
                format!(
                    "the pool is no longer in the spec, but its nodes stand: upload this with the `kubernetesVersion` of before first, which \
                     drains them and deletes the stack {}",
                    node.stack
                ),
            ),
        };
        found.push(Objection::error("kubelet-skew", paths, message, help));
    }
    found
}

/// A kubelet may be older than the API server, but after a downgrade by a minor it would run pods that were created for a newer one. If
/// the API servers are downgraded too, the objection to that is enough.
fn kubelets_back(
    served: Option<(u16, u16)>,
    running: Runs<'_>,
    target: impl Fn(&str) -> Option<Release>,
    position: impl Fn(&str) -> Option<usize>,
) -> Vec<Objection> {
    let one = |(role, name, _): (&Role, &String, &NodeRole)| {
        let (target, runs) = (target(name)?, *running.versions(role).last()?);
        let minor = (target.major, target.minor);
        (minor < (runs.major, runs.minor) && served != Some(minor)).then(|| {
            let own = position(name).map(|index| format!("worker.nodePools[{index}].kubernetesVersion"));
            Objection::error(
                "version-downgrade",
                own.into_iter().chain(["kubernetesVersion".to_owned()]).collect(),
                format!(
                    "the kubelets of pool `{name}` run {runs}, and {}.{} is asked for: they cannot go back a minor release",
                    target.major, target.minor
                ),
                format!("write {}.{} or newer for it, or move its pods to a new pool", runs.major, runs.minor),
            )
        })
    };
    running.pools().filter_map(one).collect()
}

fn etcd(cluster: &Cluster, lock: &Lock, running: Runs<'_>) -> Option<Objection> {
    let target = match lock.etcd_version(cluster) {
        Some(version) => Release::read(version),
        None => versions::etcd(cluster.kubernetes_version).and_then(Release::read),
    }?;
    step_etcd(target, running)
}

fn step_etcd(target: Release, running: Runs<'_>) -> Option<Objection> {
    let members = running.deployed.roles.keys().filter(|role| role.member().is_some());
    let runs: BTreeSet<Release> = members.flat_map(|role| running.versions(role)).collect();
    let oldest = *runs.first()?;
    let paths = vec!["etcd.version".to_owned(), "kubernetesVersion".to_owned()];
    if let Some(objection) = step("etcd", nearest(&runs, target)?, target, paths.clone()) {
        return Some(objection);
    }
    let least = ETCD_STEPS.iter().find(|(minor, _)| *minor == oldest.minor).map(|(_, patch)| *patch)?;
    (target.minor == oldest.minor + 1 && oldest.patch < least).then(|| {
        let first = Release { patch: least, ..oldest };
        let message = format!(
            "etcd {oldest} runs, and {target} is asked for: only {first} and newer can go to {}.{}",
            target.major, target.minor
        );
        let help = format!("upload `etcd: {{version: {first}}}` first, and this when it has been rolled out");
        Objection::error("version-skip", paths, message, help)
    })
}

fn members(running: &Rendering) -> BTreeMap<u32, &NodeRole> {
    running.roles.iter().filter_map(|(role, node)| Some((role.member()?, node))).collect()
}

/// Objects to smaller data volumes. A volume grows in place but cannot shrink; one that is replaced may have any size.
fn volumes(cluster: &Cluster, running: &Rendering) -> Vec<Objection> {
    let members = members(running);
    let smaller = |target: &EtcdMember| {
        let stands = members.get(&target.index)?.member.as_ref()?;
        let place = &stands.pin.volume;
        let stays = cluster.subnet(&target.subnet).availability_zone == place.availability_zone
            && target.data_volume.kms_key_arn == place.kms_key_arn;
        (stays && target.data_volume.size_gib < stands.volume_gib).then(|| {
            let name = format!("`{}`", target.name);
            shrinks(target.index, &name, stands.volume_gib, target.data_volume.size_gib)
        })
    };
    cluster.etcd.members.iter().filter_map(smaller).collect()
}

fn shrinks(index: u32, name: &str, has: u32, target: u32) -> Objection {
    Objection::error(
        "volume-shrinks",
        vec![format!("etcd.nodes[{index}].dataVolume.size"), "etcd.dataVolume.size".to_owned()],
        format!(
            "the data volume of {name} has {has} GiB, and {target} are asked for: a volume cannot shrink"
        ),
        format!("write {has} or more"),
    )
}
