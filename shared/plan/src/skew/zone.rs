//! The hosted zone of etcd's names cannot change. A member learns it when its machine starts and may write records in no other zone.
//! After a change, the running members would lose the permission for the zone that they know, and the new one would have no records.

use slipway_core::members::NameZone;
use slipway_core::release::Rendering;
use slipway_spec::Objection;

/// The zone in which the members of `rendering` write their records. `None`: it has no members.
pub(super) fn members_zone(rendering: &Rendering) -> Option<&NameZone> {
    rendering.roles.values().find_map(|node| node.member.as_ref()).map(|member| &member.zone)
}

/// Objects to another zone than the one that the running members use.
pub(super) fn objection(running: &Rendering, wanted: &NameZone) -> Option<Objection> {
    let deployed = members_zone(running)?;
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
