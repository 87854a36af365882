//! The hosted zone of etcd's names stays the one that it was: a member learns it when its machine starts, and may set records in no other.
//! Were it changed, the members that run would lose the permission for the zone that they know, and the new one would have no records.

use slipway_core::members::NameZone;
use slipway_core::release::Rendering;
use slipway_spec::Objection;

/// The zone that the members of `rendering` set their records in; `None` without members.
pub(super) fn of(rendering: &Rendering) -> Option<&NameZone> {
    rendering.roles.values().find_map(|node| node.member.as_ref()).map(|member| &member.zone)
}

/// Objects to another zone than the one that the running members use.
pub(super) fn objection(running: &Rendering, wanted: &NameZone) -> Option<Objection> {
    let deployed = of(running)?;
    let words = |zone: &NameZone| match zone {
        NameZone::Made => "the zone that Slipway made".to_owned(),
        NameZone::Given(id) => format!("the hosted zone {id}"),
    };
    (deployed != wanted).then(|| {
        let help = match deployed {
            NameZone::Given(id) => {
                format!("write `hostedZone: {{id: {id}}}`: it cannot be changed once the cluster runs")
            }
            NameZone::Made => "remove `hostedZone`: it cannot be changed once the cluster runs".to_owned(),
        };
        Objection::error(
            "etcd-zone",
            vec!["etcd.hostedZone.id".to_owned(), "etcd.hostedZone".to_owned(), "etcd".to_owned()],
            format!(
                "the names of the etcd members that run are in {}, and {} is asked for: nobody would find them there",
                words(deployed),
                words(wanted)
            ),
            help,
        )
    })
}
