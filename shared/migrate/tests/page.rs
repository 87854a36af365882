//! `docs/from-kube-aws.md` says what became of each key. `UPDATE_SCHEMAS=1 cargo test` writes it anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test reads files and the environment")]

#[test]
fn what_became_of_kube_aws_keys_is_said_as_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-kube-aws.md");
    let page = slipway_migrate::page();
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == page,
        "docs/from-kube-aws.md is stale: run UPDATE_SCHEMAS=1 cargo test -p slipway-migrate --test page"
    );
}
