//! IAM roles for service accounts.

use std::collections::BTreeMap;

use slipway_core::cluster::{IamRoles, ServiceAccountRole};

use super::Lowering;
use crate::model::ServiceAccountRoleSpec;
use crate::path::Path;
use crate::text::{is_dns_label, is_dns_name};

/// What the names of add-ons' roles begin with.
pub(crate) const ADDON_PREFIX: &str = "addon-";

impl Lowering<'_, '_, '_> {
    pub(super) fn iam_roles(&mut self) -> Option<IamRoles> {
        let spec = self.spec.iam_roles_for_service_accounts.as_ref()?;
        let path = Path::parse("iamRolesForServiceAccounts");
        let enabled = spec.enabled.unwrap_or(true);
        let roles_path = path.key("roles");
        if !enabled && !spec.roles.is_empty() {
            self.report.warning(
                "roles-off",
                &roles_path,
                "the roles are not made while `enabled` is `false`",
                "write `enabled: true` once every controller accepts the new issuer, or remove the roles",
            );
        }
        let roles: Vec<ServiceAccountRole> = spec
            .roles
            .iter()
            .enumerate()
            .filter_map(|(index, role)| self.service_account_role(role, &roles_path.index(index)))
            .collect();
        self.unique_roles(&roles, &roles_path);
        Some(IamRoles { enabled, roles })
    }

    fn service_account_role(
        &mut self,
        spec: &ServiceAccountRoleSpec,
        path: &Path,
    ) -> Option<ServiceAccountRole> {
        // What is missing altogether was reported by the schema.
        let (name, namespace) = (spec.name.as_deref(), spec.namespace.as_deref());
        let account = spec.service_account.as_deref();
        if let Some(name) = name {
            self.role_name(name, &path.key("name"));
        }
        let lower = |text: &str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
        if let Some(text) = namespace.filter(|text| !is_dns_label(text) || !lower(text)) {
            self.report.error(
                "name-syntax",
                &path.key("namespace"),
                format!("`{text}` cannot be a namespace"),
                "write lower-case letters, digits and hyphens, 63 at most; a role is for one namespace, without `*`",
            );
        }
        if let Some(text) = account.filter(|text| !is_dns_name(text) || !lower(text)) {
            self.report.error(
                "name-syntax",
                &path.key("serviceAccount"),
                format!("`{text}` cannot be a service account"),
                "write lower-case letters, digits, hyphens and dots; a role is for one service account, without `*`",
            );
        }
        let managed_policy_arns = self.managed_policies(&spec.managed_policies, &path.key("managedPolicies"));
        if spec.managed_policies.is_empty() && self.report.has(&path.key("managedPolicies")) {
            self.report.error(
                "role-empty",
                &path.key("managedPolicies"),
                "a role without a policy may do nothing",
                "name a managed policy that is among the installation's `ManagedPolicyArns`",
            );
        }
        Some(ServiceAccountRole {
            name: name?.to_owned(),
            namespace: namespace?.to_owned(),
            service_account: account?.to_owned(),
            managed_policy_arns,
        })
    }

    fn role_name(&mut self, name: &str, path: &Path) {
        if !is_dns_label(name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.report.error(
                "name-syntax",
                path,
                format!("`{name}` cannot be a role's name"),
                "write lower-case letters, digits and hyphens, 63 at most",
            );
        }
        if name.starts_with(ADDON_PREFIX) {
            self.report.error(
                "name-reserved",
                path,
                format!("the role `{name}` could be an add-on's"),
                format!("choose a name that does not begin with `{ADDON_PREFIX}`: add-ons' roles do"),
            );
        }
    }

    /// A name once; a service account once, since its pods could not tell which role is meant.
    fn unique_roles(&mut self, roles: &[ServiceAccountRole], path: &Path) {
        let names = roles.iter().enumerate();
        self.unique(
            names.map(|(index, role)| (role.name.as_str(), path.index(index).key("name"))),
            "role",
            super::fold,
        );
        let mut seen: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for (index, role) in roles.iter().enumerate() {
            let account = (role.namespace.as_str(), role.service_account.as_str());
            if let Some(first) = seen.insert(account, &role.name) {
                self.report.error(
                    "duplicate-name",
                    &path.index(index).key("serviceAccount"),
                    format!(
                        "the service account `{}/{}` already has the role `{first}`",
                        account.0, account.1
                    ),
                    "name the policies of both in one role: a service account has only one",
                );
            }
        }
    }
}
