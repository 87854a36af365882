//! Programs of the host that the rig runs, and what it stores.

use std::process::{Command, Stdio};

use super::{BUCKET, FINE};
use axum::http::Method;

use crate::client::Client;
use crate::tools;

/// Runs a program, which must succeed; what it wrote.
pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output =
        command.args(arguments).current_dir(tools::root()).stdin(Stdio::null()).output().expect(FINE);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) async fn put(operator: &Client, key: &str, bytes: Vec<u8>) {
    operator.s3(Method::PUT, &format!("{BUCKET}/{key}"), "", bytes).await.expect(FINE);
}
