//! One file for each verb.

pub(crate) mod abort;
pub(crate) mod apply;
pub(crate) mod approve;
pub(crate) mod certs;
pub(crate) mod completions;
pub(crate) mod destroy;
pub(crate) mod init;
pub(crate) mod kubeconfig;
pub(crate) mod list;
pub(crate) mod migrate;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod publish_agent;
pub(crate) mod render;
pub(crate) mod renew;
pub(crate) mod resume;
pub(crate) mod rollback;
pub(crate) mod rotate_ca;
pub(crate) mod scan;
pub(crate) mod simulate;
pub(crate) mod skip;
pub(crate) mod snapshots;
pub(crate) mod status;
pub(crate) mod upgrade;
pub(crate) mod validate;
pub(crate) mod watch;
