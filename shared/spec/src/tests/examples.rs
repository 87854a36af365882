//! Every file in `examples/` is a spec that is accepted.

use std::path::PathBuf;

use super::super::{advice, parse};

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
