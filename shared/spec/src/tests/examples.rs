//! Every file in `examples/` is a spec that is accepted.

use std::collections::BTreeSet;
use std::path::PathBuf;

use slipway_core::allowed::{Allowed, Boundaries};
use slipway_core::cluster::{Approval, Cluster};
use slipway_core::release::Site;

use super::super::{advice, parse};
use crate::allowed::objections;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_example_is_accepted_without_a_warning() {
    let mut read = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        // An example with patches is a folder.
        let path = if path.is_dir() { path.join("cluster.yaml") } else { path };
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let accepted = parse(&std::fs::read(&path).unwrap(), None);
            let accepted = accepted.unwrap_or_else(|errors| panic!("{}: {errors:#?}", path.display()));
            let quiet =
                !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("from-kube-aws"));
            // What begins a cluster of one's own has it on; `validate` warns of the others.
            let least = ["minimal.yaml", "from-kube-aws.yaml", "from-kube-aws-spot-fleet.yaml"];
            let is_least = path.file_name().is_some_and(|name| least.iter().any(|one| name == *one));
            let advice = advice(&accepted.cluster, &accepted.places);
            assert_eq!(advice.is_empty(), !is_least, "{}: {advice:#?}", path.display());
            assert!(!quiet || accepted.warnings.is_empty(), "{}: {:#?}", path.display(), accepted.warnings);
            read += 1;
        }
    }
    assert!(read >= 3, "only {read} examples were found");
}

/// The parameters without which an installation refuses `cluster`, or CloudFormation its stacks.
fn parameters(cluster: &Cluster) -> BTreeSet<String> {
    let nothing = Allowed {
        program_buckets: Vec::new(),
        hosted_zones: Vec::new(),
        private_domains: vec!["internal".to_owned()],
        managed_policy_arns: Vec::new(),
        cluster_key_arns: Some(Vec::new()),
        instance_role_arns: Some(Vec::new()),
        approval: Approval::Auto,
        boundaries: Boundaries { own: "own".to_owned(), with_managed_policies: None },
    };
    let site = Site {
        asset_bucket: "assets".to_owned(),
        kms_key_arn: "arn:aws:kms:eu-west-1:111122223333:key/1".to_owned(),
        region: None,
        issuer_bucket: None,
        allowed: Some(nothing),
    };
    let mut found = BTreeSet::new();
    for objection in objections(cluster, &site) {
        let words = objection.help.split([' ', ',', ';', '`']);
        let named = words.filter_map(|word| word.split_once('=')).map(|(name, _)| name.to_owned());
        found.extend(named.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase())));
    }
    found
}

#[test]
fn an_example_names_the_parameters_that_its_installation_needs() {
    let (mut with_parameters, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let path = if path.is_dir() { path.join("cluster.yaml") } else { path };
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let wanted = parameters(&parse(text.as_bytes(), None).unwrap().cluster);
        let comment =
            text.lines().find_map(|line| line.strip_prefix("# The installation needs the parameters "));
        let said: BTreeSet<String> = comment
            .map(|rest| {
                rest.trim_end_matches(" (docs/upgrading.md).").split(", ").map(str::to_owned).collect()
            })
            .unwrap_or_default();
        if said != wanted {
            wrong.push((path, said, wanted.clone()));
        }
        with_parameters += usize::from(!wanted.is_empty());
    }
    assert!(wrong.is_empty(), "said, and needed: {wrong:#?}");
    assert!(with_parameters >= 5, "only {with_parameters} examples need a parameter");
}
