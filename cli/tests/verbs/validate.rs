//! `slipway validate`.

use super::*;

/// `validate` of a text.
fn validate(text: impl AsRef<[u8]>) -> Run {
    let place = Place::new();
    place.write("cluster.yaml", text);
    place.run("validate cluster.yaml")
}

#[test]
fn a_good_spec() {
    snapshot!(validate(SMALL));
}

#[test]
fn a_good_spec_as_json() {
    let place = Place::small();
    snapshot!(place.run("validate cluster.yaml --output json"));
}

#[test]
fn a_spec_with_warnings_is_accepted() {
    snapshot!(validate(format!("{SMALL}useCalico: true\n")));
}

#[test]
fn a_bad_spec_as_json() {
    let place = Place::new();
    place.write("cluster.yaml", format!("{SMALL}zebra: 1\n"));
    snapshot!(place.run("validate cluster.yaml --output json"));
}

#[test]
fn all_findings_at_once() {
    let text = SMALL.replace("eu-west-1\n", "eu-wset-1\n").replace("maxSize: 3", "maxsize: three");
    snapshot!(validate(format!("{text}containerRuntime: rkt\npodCIDR: 10.0.0.0/16\netcd: {{count: 2}}\n")));
}

#[test]
fn an_empty_file() {
    snapshot!(validate(""));
}

#[test]
fn no_yaml() {
    snapshot!(validate("clusterName: [a\nregion: }\n"));
}

#[test]
fn bytes_that_are_no_text() {
    snapshot!(validate(b"clusterName: a\n\xff\xfe\n"));
}

#[test]
fn duplicate_keys() {
    snapshot!(validate("clusterName: a\nclusterName: b\n"));
}

#[test]
fn a_tab() {
    snapshot!(validate("clusterName: a\netcd:\n\tcount: 3\n"));
}

#[test]
fn ten_megabytes() {
    snapshot!(validate("a".repeat(10_000_000)));
}

#[test]
fn an_anchor_bomb() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    snapshot!(validate(text));
}

#[test]
fn a_line_that_no_person_wrote_is_not_shown() {
    snapshot!(validate(format!("a: {}", "[".repeat(100_000))));
}

#[test]
fn a_flood_of_findings_is_cut_for_people_alone() {
    let flood: String = (0..500).map(|number| format!("zebra{number}: 1\n")).collect();
    let place = Place::new();
    place.write("cluster.yaml", format!("{SMALL}{flood}"));
    let run = place.run("validate cluster.yaml");
    assert!(
        run.stdout.ends_with("… and 151 more; -o json lists all\ncluster.yaml: 200 errors, 1 warning\n"),
        "{}",
        run.output()
    );
    let run = place.run("validate cluster.yaml --output json");
    // Two hundred are looked at, and one says that there are more.
    assert_eq!(run.json()["diagnostics"].as_array().unwrap().len(), 201);
}

#[test]
fn a_name_that_is_not_the_folder() {
    let place = Place::new();
    place.write("clusters/large/cluster.yaml", SMALL);
    snapshot!(place.run("validate clusters/large/cluster.yaml"));
}

#[test]
fn the_standard_input() {
    let run = Place::new().run_with("validate -", SMALL);
    assert_eq!(run.code, 0, "{}", run.output());
    let run = Place::new().run_with("validate -", "zebra: 1\n");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("<stdin>"), "{}", run.output());
}

#[test]
fn a_file_that_cannot_be_read() {
    let place = Place::new();
    snapshot!(place.run("validate nothing.yaml"));
    assert_eq!(place.run("validate .").code, 3);
    let run = place.run("validate nothing.yaml --output json");
    assert_eq!((run.code, run.json()["ok"].clone()), (3, false.into()));
}

#[test]
fn p7_a_spec_without_renewal_is_accepted_with_a_warning_and_the_line_to_add() {
    let place = Place::small();
    let off = SMALL.replace("{enabled: true}", "{enabled: false}");
    assert_ne!(off, SMALL);
    place.write("cluster.yaml", off);
    let run = place.run("validate cluster.yaml");
    assert_eq!(run.code, 0, "{}", run.output());
    for words in [
        "renewal-off",
        "365 days after they were issued, its API and etcd stop",
        "{rolloutBeforeExpiry: {enabled: true}}",
    ] {
        assert!(run.stdout.contains(words), "{words}: {}", run.output());
    }
    place.write("cluster.yaml", SMALL);
    assert!(!place.run("validate cluster.yaml").stdout.contains("renewal-off"));
}
