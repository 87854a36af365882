//! `infra/cluster.schema.json` says what a `cluster.yaml` may hold. `UPDATE_SCHEMAS=1 cargo test` writes it anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test reads files and the environment")]

#[test]
fn the_published_schema_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/cluster.schema.json");
    let mut text = serde_json::to_string_pretty(&slipway_core::spec::schema()).unwrap();
    text.push('\n');
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stored == text, "{path} is stale: run UPDATE_SCHEMAS=1 cargo test -p slipway-core");
}
