//! `infra/cluster.schema.json` says what a `cluster.yaml` may hold, and `docs/cluster-yaml.md` says it to people.
//! `UPDATE_SCHEMAS=1 cargo test` writes them anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test reads files and the environment")]

/// Holds the file against what it is made from, or writes it.
fn hold(path: &str, text: &str) {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{path} is stale: run UPDATE_SCHEMAS=1 cargo test -p slipway-spec --test cluster_schema"
    );
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    let mut text = serde_json::to_string_pretty(&slipway_spec::schema()).unwrap();
    text.push('\n');
    hold("infra/cluster.schema.json", &text);
}

#[test]
fn the_reference_is_that_of_the_types() {
    hold("docs/cluster-yaml.md", &slipway_spec::cluster_yaml());
}
