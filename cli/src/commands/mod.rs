//! One file a verb.

pub(crate) mod certs;
pub(crate) mod completions;
pub(crate) mod init;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod publish_agent;
pub(crate) mod render;
pub(crate) mod validate;
