//! The Kubernetes releases that Slipway supports: the newest four minors, which are those that the Kubernetes project maintains plus one
//! to upgrade from (kubernetes.io/releases/version-skew-policy: kubelets may be three minors older).
//!
//! Sources: release `1.N.P` tags its staging modules `v0.N.P`, so `go list -m k8s.io/client-go@v0.N` prints the newest patch. The etcd
//! minor is `DefaultEtcdVersion` in kubeadm's `constants.go` (1.34 to 1.36: 3.6), or the client version in `go.mod` of `k8s.io/apiserver`
//! (1.37: 3.7); `go list -m go.etcd.io/etcd/server/v3@v3.N` prints its newest patch. Read in November 2026.

use crate::cluster::KubernetesVersion;

/// One minor release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// `1.<minor>`.
    pub minor: u16,
    /// Its newest patch.
    pub patch: u16,
    /// The etcd release that goes with it.
    pub etcd: &'static str,
}

/// How many minors a kubelet may be older than its API server.
pub const KUBELET_LAG: u16 = 3;

/// For each etcd minor, the oldest patch from which an upgrade to the next minor is safe: from the checklists of "Upgrade etcd from v3.5
/// to v3.6" and "from v3.6 to v3.7" (etcd.io/docs). Older patches can lose track of their members during the upgrade.
pub const ETCD_STEPS: [(u16, u16); 2] = [(5, 26), (6, 11)];

/// Known releases, oldest first.
pub const RELEASES: [Release; 4] = [
    Release { minor: 34, patch: 13, etcd: "3.6.16" },
    Release { minor: 35, patch: 10, etcd: "3.6.16" },
    Release { minor: 36, patch: 6, etcd: "3.6.16" },
    Release { minor: 37, patch: 2, etcd: "3.7.3" },
];

/// The newest release.
pub const NEWEST: Release = RELEASES[RELEASES.len() - 1];

/// The release that `version` belongs to; `None` if its minor is not known.
#[must_use]
pub fn release(version: KubernetesVersion) -> Option<&'static Release> {
    RELEASES.iter().find(|release| version.major == 1 && release.minor == version.minor)
}

/// `version` with a patch: its own, or the newest known; `None` if its minor is not known.
#[must_use]
pub fn newest_patch(version: KubernetesVersion) -> Option<KubernetesVersion> {
    let release = release(version)?;
    Some(KubernetesVersion { patch: Some(version.patch.unwrap_or(release.patch)), ..version })
}

/// The etcd release that goes with `version`; `None` if its minor is not known.
#[must_use]
pub fn etcd(version: KubernetesVersion) -> Option<&'static str> {
    release(version).map(|release| release.etcd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(minor: u16, patch: Option<u16>) -> KubernetesVersion {
        KubernetesVersion { major: 1, minor, patch }
    }

    #[test]
    fn minors_are_consecutive_and_oldest_first() {
        for pair in RELEASES.windows(2) {
            assert_eq!(pair[0].minor + 1, pair[1].minor);
        }
    }

    #[test]
    fn a_minor_gets_its_newest_patch_and_a_patch_stays() {
        assert_eq!(newest_patch(version(36, None)), Some(version(36, Some(6))));
        assert_eq!(newest_patch(version(36, Some(1))), Some(version(36, Some(1))));
        assert_eq!(newest_patch(version(20, None)), None);
        assert_eq!(newest_patch(KubernetesVersion { major: 2, minor: 36, patch: None }), None);
    }

    #[test]
    fn every_release_has_its_etcd() {
        assert_eq!(etcd(version(34, None)), Some("3.6.16"));
        assert_eq!(etcd(version(37, Some(0))), Some("3.7.3"));
        assert_eq!(etcd(version(33, None)), None);
    }
}
