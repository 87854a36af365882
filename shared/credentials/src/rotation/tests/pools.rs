//! Pools that leave the spec during a rotation, and come back.

use super::*;

/// A pool leaves the spec, and its drain is held up by a budget. Cut off, its pods would be evicted without one (P6).
#[test]
fn p6_a_machine_of_a_pool_that_left_the_spec_holds_up_the_stage_until_it_trusts_the_new_one_or_is_gone() {
    let general = Role::Pool("general".to_owned());
    for (name, holds) in [(CA, true), (KUBELET_CA, true), (ETCD_CA, false)] {
        let mut vault = Vault::new();
        let before = vault.digest(&general);
        vault.begin(name).unwrap();
        let all = vault.all();
        vault.cluster.pools.clear();
        let behind = |change: &dyn Fn(&mut KnownNodes)| {
            let mut seen = all.clone();
            change(&mut seen);
            match next(&vault.cluster, &vault.manifest, name, &seen, vault.now).unwrap() {
                Next::Wait(waits) => waits.iter().map(ToString::to_string).collect(),
                Next::Issue => Vec::new(),
                other @ (Next::Drop | Next::Settle | Next::Unsettle(_) | Next::End) => panic!("{other:?}"),
            }
        };
        assert_eq!(behind(&|_| {}), Vec::<String>::new(), "{name}: all trust it");
        let machine = "i-pool-general-1";
        let old = |seen: &mut KnownNodes| {
            seen.nodes.get_mut(&general).unwrap().get_mut(machine).unwrap().credentials =
                Some(before.clone());
        };
        let waits = behind(&old);
        assert_eq!(waits.iter().any(|wait| wait.contains(machine)), holds, "{name}: {waits:?}");
        assert_eq!(waits.iter().any(|wait| wait.contains("is no longer in the spec")), holds, "{waits:?}");
        // It is gone, and another has never reported.
        let gone = |seen: &mut KnownNodes| {
            old(seen);
            seen.machines.insert(general.clone(), ["i-pool-general-0".to_owned()].into());
        };
        assert_eq!(behind(&gone), Vec::<String>::new(), "{name}");
        let waits = behind(&|seen| {
            gone(seen);
            seen.machines.get_mut(&general).unwrap().insert("i-new".to_owned());
        });
        assert_eq!(!waits.is_empty(), holds, "{name}: {waits:?}");
    }
}

#[test]
fn a_pool_that_comes_back_in_a_later_stage_holds_up_no_rotation() {
    for name in [CA, KUBELET_CA] {
        let mut vault = Vault::new();
        let whole = vault.cluster.clone();
        vault.begin(name).unwrap();
        vault.cluster.pools.clear();
        assert_eq!(vault.step(name, &vault.all()).0, Next::Issue);
        vault.cluster = whole;
        assert_eq!(vault.seal(), BTreeSet::new(), "{name}: its files are the same in both stages");
        let expected = if life(name) { Next::Settle } else { Next::Drop };
        assert_eq!(next(&vault.cluster, &vault.manifest, name, &vault.all(), vault.now), Some(expected));
    }
}
