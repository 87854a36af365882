//! Reads the user data of a launch template.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use slipway_core::node::NodeFile;

/// The text before `node.json` in the script.
const HEAD: &str = "<<'NODE'\n";
const TAIL: &str = "\nNODE\n";

/// The `node.json` that a machine with this `LaunchTemplateData` writes; `None` if it writes none.
pub(super) fn node_file(data: &Value) -> Option<NodeFile> {
    let script = STANDARD.decode(data.get("UserData")?.as_str()?).ok()?;
    let script = String::from_utf8(script).ok()?;
    let (_, rest) = script.split_once(HEAD)?;
    let (text, _) = rest.split_once(TAIL)?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_learns_its_role_from_its_userdata_or_nothing() {
        let node = r#"{"agent":null,"assetBucket":"assets","cluster":"prod","config":"c","credentials":"d","format":1,"region":"eu-west-1","role":"etcd-1"}"#;
        let script = format!("#!/bin/sh\ncat >node.json <<'NODE'\n{node}\nNODE\nregion='eu-west-1'\n");
        let data = json!({ "UserData": STANDARD.encode(script) });
        assert_eq!(node_file(&data).unwrap().role, "etcd-1");
        for odd in [json!({}), json!({"UserData": "§"}), json!({"UserData": STANDARD.encode("#!/bin/sh\n")})]
        {
            assert_eq!(node_file(&odd), None, "{odd}");
        }
    }
}
