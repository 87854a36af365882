//! Cluster access: what the groups of the cluster's own credentials may do.
//!
//! RBAC allows only what a binding grants, and Kubernetes binds only its own components. Without these bindings no kubelet could request
//! a certificate and nobody would approve one, the API server could not fetch logs, and the administrator's certificate would have no
//! permissions. This add-on has no image and cannot be turned off. Every group in a certificate or token must be bound here or by
//! Kubernetes itself, which a test checks.
//!
//! All certificates of kubelets are approved by the node manager, which checks the instance behind the name. Kubernetes' own approver would
//! approve a node's first one for anyone with the bootstrap token and in any node's name, and a renewal for anyone with the node's key, also
//! when its machine is long gone. kubeadm binds `nodeclient` and `selfnodeclient` for that:
//! <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#client-and-serving-certificates>
//! Without a binding the approver leaves a request to others: `handle` in kubernetes `pkg/controller/certificates/approver/sarapprove.go`
//! returns an `IgnorableError` if its subject access review is not allowed, and denies nothing.

use serde_json::{Value, json};
use slipway_core::release::EARLIER_AGENTS;
use slipway_credentials::bootstrap::BOOTSTRAPPERS;
use slipway_credentials::policy::{CLUSTER_ADMINS, KUBELET_API_ADMINS};

use super::Kit;

/// The group in the certificate of every kubelet. Their requests name it, and the signer requires it:
/// <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>
const NODES: &str = "system:nodes";

/// Binding, cluster role of Kubernetes' own, group. The roles are those of
/// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>, the approver's lines those of
/// <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#authorize-kubelet-to-create-csr> and of
/// <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#approval>.
/// The role of an existing binding cannot be changed, so a binding to another role needs another name.
const BINDINGS: [(&str, &str, &str); 3] = [
    // A kubelet requests its first certificate with the bootstrap token.
    ("slipway:node-bootstrappers", "system:node-bootstrapper", BOOTSTRAPPERS),
    // The API server calls kubelets for logs, exec, port-forward and metrics.
    ("slipway:kubelet-api-admins", "system:kubelet-api-admin", KUBELET_API_ADMINS),
    ("slipway:cluster-admins", "cluster-admin", CLUSTER_ADMINS),
];

/// By it, Kubernetes approves renewals itself. Node managers of earlier releases leave them to Kubernetes: without it, certificates would expire
/// (P7) in a cluster whose lock pins an earlier agent, and after a roll back to one. Node managers of this release delete it.
const BY_KUBERNETES: (&str, &str, &str) = (
    "slipway:approve-renewed-node-certificates",
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    NODES,
);

pub(super) fn objects(kit: &Kit<'_, '_>) -> Vec<Value> {
    let bind = |(name, role, group): (&str, &str, &str)| kit.cluster_role_binding_of_group(name, role, group);
    let mut by_kubernetes = bind(BY_KUBERNETES);
    by_kubernetes["metadata"]["annotations"] = json!({ EARLIER_AGENTS: "" });
    BINDINGS.map(bind).into_iter().chain([by_kubernetes]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use slipway_core::cluster::NetworkProvider;
    use slipway_core::release::is_for_earlier_agents;
    use slipway_core::role::Role;
    use slipway_credentials::policy::{self, Part};
    use slipway_credentials::{AssetKind, CertificateProfile};

    use super::*;
    use crate::fixture::{cluster, rendered};

    /// The groups that Kubernetes binds when it starts, or allows without RBAC:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>
    const KUBERNETES_OWN: [&str; 3] =
        ["system:masters", "system:kube-controller-manager", "system:kube-scheduler"];

    /// All groups and users of the cluster's credentials: the organizations of certificates, the names of certificates without
    /// organizations, and the group of all bootstrap tokens.
    fn identities() -> BTreeSet<String> {
        let cluster = cluster();
        let controller = policy::bundle(&cluster, &Role::Controller);
        let trusted = controller.iter().find(|file| file.path.ends_with("/client-ca.pem")).unwrap();
        let trusts = |profile: &CertificateProfile| {
            let issuer = profile.issuer.as_deref();
            trusted.sources.iter().any(|source| Some(source.asset.as_str()) == issuer)
        };
        let mut found = BTreeSet::new();
        for asset in policy::assets(&cluster) {
            let AssetKind::Certificate(profile) = asset.kind else { continue };
            if profile.organizations.is_empty() && profile.client && trusts(&profile) {
                found.insert(profile.common_name.clone());
            }
            found.extend(profile.organizations);
        }
        if controller.iter().flat_map(|file| &file.sources).any(|source| source.part == Part::RoleToken) {
            found.insert(BOOTSTRAPPERS.to_owned());
        }
        found
    }

    #[test]
    fn whoever_the_clusters_credentials_name_is_bound_here_or_by_kubernetes() {
        let identities = identities();
        let bound: BTreeSet<&str> = BINDINGS.map(|(_, _, group)| group).into();
        for name in &identities {
            let (ours, theirs) = (bound.contains(name.as_str()), KUBERNETES_OWN.contains(&name.as_str()));
            assert!(ours != theirs, "`{name}` is bound by nobody or twice");
        }
        // All identities are covered, and nothing is bound that has no members.
        assert_eq!(identities.len(), 6, "{identities:?}");
        for group in bound {
            assert!(identities.contains(group), "nobody is in `{group}`");
        }
    }

    /// Kubernetes' approvers of kubelets' certificates know no machines.
    #[test]
    fn p13_nothing_that_this_release_applies_lets_kubernetes_approve_certificates_of_nodes() {
        let set = rendered(&cluster()).addons;
        let objects = set.addons.iter().flat_map(|addon| &addon.objects);
        let (earlier, applied): (Vec<&Value>, Vec<&Value>) =
            objects.partition(|object| is_for_earlier_agents(object));
        let text = serde_json::to_string(&applied).unwrap();
        for approver in ["nodeclient", "selfnodeclient", "selfnodeserver"] {
            assert!(!text.contains(&format!("certificatesigningrequests:{approver}")), "{approver}");
        }
        // P7: agents of earlier releases approve no renewals, and a lock may pin one.
        let names: Vec<&Value> = earlier.iter().map(|object| &object["metadata"]["name"]).collect();
        assert_eq!(names, [BY_KUBERNETES.0]);
        assert_eq!(earlier[0]["roleRef"]["name"], BY_KUBERNETES.1);
    }

    #[test]
    fn it_comes_first_and_with_everything_else_turned_off() {
        let mut cluster = cluster();
        assert_eq!(rendered(&cluster).addons.addons[0].name, "cluster-access");
        cluster.addons.network = NetworkProvider::None;
        for addon in [
            &mut cluster.addons.kube_proxy,
            &mut cluster.addons.network_policy,
            &mut cluster.addons.cloud_controller_manager,
            &mut cluster.addons.core_dns,
            &mut cluster.addons.node_local_dns,
            &mut cluster.addons.ebs_csi_driver,
            &mut cluster.addons.metrics_server,
            &mut cluster.addons.cluster_autoscaler,
        ] {
            addon.enabled = false;
        }
        let set = rendered(&cluster).addons;
        assert_eq!(set.addons.len(), 1);
        assert_eq!(set.addons[0].objects.len(), BINDINGS.len() + 1);
    }
}
