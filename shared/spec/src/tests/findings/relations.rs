//! Identity, network and endpoints: what must agree with what.

use super::*;

#[test]
fn a_name_that_is_not_the_folder() {
    says!(findings_text(&parse(BASE.as_bytes(), Some(&Expected { name: "other", region: None })).unwrap_err()), @r##"
    1:14 error name-mismatch at `clusterName`: the spec names the cluster `base`, but lies in the folder of `other`
        write `clusterName: other`, or put the spec into clusters/base/
    "##);
}

#[test]
fn a_name_that_is_too_long() {
    for name in ["base-pool", "base-pool-spot"] {
        let told = instead("clusterName: base", &format!("clusterName: {name}"));
        assert!(told.starts_with("1:14 error name-ambiguous at `clusterName`"), "{told}");
    }
    for name in ["base-pools", "pool-base", "base-poolside"] {
        assert_eq!(instead("clusterName: base", &format!("clusterName: {name}")), "");
    }
}

#[test]
fn a_region_that_is_not_the_installations() {
    let at = |region| parse(BASE.as_bytes(), Some(&Expected { name: "base", region }));
    says!(findings_text(&at(Some("us-west-2")).unwrap_err()), @r##"
    2:9 error other-region at `region`: the cluster is for `eu-west-1`, but this installation works in `us-west-2`
        upload it to the installation in `eu-west-1`, or write `region: us-west-2`
    "##);
    assert!(at(Some("eu-west-1")).is_ok());
    assert!(at(None).is_ok(), "a person's machine is in no region");
}
