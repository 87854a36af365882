//! Changes of the issuer of service account tokens take two steps. Controllers are replaced one by one, and those not yet replaced answer
//! 401 to tokens of an issuer that they do not know.

use slipway_core::cluster::Cluster;
use slipway_core::oidc::{issuers, public_issuer};
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_spec::Objection;

/// A change that skips the intermediate step.
#[derive(Debug, Clone, Copy)]
enum Switch {
    On,
    Off,
}

impl Switch {
    const fn message(self) -> &'static str {
        match self {
            Self::On => {
                "this switches the issuer of service-account tokens in one step: until every controller is replaced, those that are not \
                 answer 401 to tokens that the new ones issue"
            }
            Self::Off => {
                "this forgets the issuer of the service-account tokens in use in one step: controllers answer 401 to the tokens that pods hold"
            }
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::On => {
                "upload `iamRolesForServiceAccounts: {enabled: false}` first, with which the issuer is accepted and not used, and `true` \
                 when that is rolled out and every controller is replaced"
            }
            Self::Off => {
                "upload `iamRolesForServiceAccounts: {enabled: false}` first, and take the key away when every controller is replaced and \
                 the tokens of before have run out"
            }
        }
    }
}

impl Switch {
    fn objection(self) -> Objection {
        Objection::error(
            "issuer-switch",
            vec!["iamRolesForServiceAccounts.enabled".to_owned(), "iamRolesForServiceAccounts".to_owned()],
            self.message().to_owned(),
            self.help().to_owned(),
        )
    }
}

/// The change in one step between two configurations of controllers that leads to 401s; `None`: there is none.
fn in_one_step(before: &str, after: &str) -> Option<Switch> {
    let (before, after) = (issuers(before)?, issuers(after)?);
    let missing = |issuer: Option<&String>, from: &[String]| issuer.is_some_and(|one| !from.contains(one));
    let switch = if missing(public_issuer(&after), &before) {
        Switch::On
    } else if missing(public_issuer(&before), &after) {
        Switch::Off
    } else {
        return None;
    };
    Some(switch)
}

/// The objection to going from one release's controllers to the other's.
pub(super) fn between(running: &Rendering, new: &Rendering) -> Option<Objection> {
    let config = |release: &Rendering| Some(release.roles.get(&Role::Controller)?.config.clone());
    Some(in_one_step(&config(running)?, &config(new)?)?.objection())
}

/// The objection to such a spec. Without running controllers there is none.
pub(super) fn objection(cluster: &Cluster, running: &Rendering) -> Option<Objection> {
    let before = issuers(&running.roles.get(&Role::Controller)?.config)?;
    let switch = match &cluster.iam_roles {
        Some(roles) if roles.enabled && before.is_empty() => Switch::On,
        None if public_issuer(&before).is_some() => Switch::Off,
        Some(_) | None => return None,
    };
    Some(switch.objection())
}
