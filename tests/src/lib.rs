//! An AWS small enough to carry along, in which the unmodified function binaries run end to end (design §11).
//!
//! - [`world`]: the whole embedded AWS, started and with a template deployed. Start reading here.
//! - [`installation`]: Slipway in it, and its users' actions.
//! - [`imds`]: the metadata service of an instance.
//! - [`machines`]: etcd members that boot for real, by systemd-nspawn.
//! - [`cluster`]: a whole cluster on virtual machines, and all that they find around them.
//! - [`moto`]: S3, KMS, SSM parameters, EventBridge's patterns and SQS, by moto's server.
//! - [`operator`]: what an operator creates in moto before a test begins.
//! - [`gateway`]: the single endpoint in front of everything; checks every call against the template's IAM policies.
//! - [`deploy`]: deploys the SAM template resource by resource; unknown parts are errors.
//! - [`cloud`]: connects the simulated CloudFormation, Scheduler, Auto Scaling and Run Command of `shared/sim`.
//! - [`registry`]: a registry of container images, with only their digests.
//! - [`relay`]: delivers them to what is no function: topics, addresses of others, state machines, buses.
//! - [`router`]: delivers the events that moto's patterns match to the functions; [`bell`] wakes it.
//! - [`workshop`]: only the flows, in an account in memory.
//! - [`kubernetes`]: a real control plane, made from a controller's files.
//! - [`leaks`]: searches for secrets in any form where none may be.
//! - [`program`]: what the programs that people start have in common.
//! - [`lambda`]: runs function binaries as Lambda does: Runtime API, retries, timeouts, dead letters.

pub mod bell;
pub mod client;
pub mod cloud;
pub mod cluster;
pub mod deploy;
pub mod gateway;
pub mod iam;
pub mod imds;
pub mod installation;
pub mod kubernetes;
pub mod lambda;
pub mod leaks;
pub mod machines;
pub mod moto;
pub mod narrator;
pub mod observe;
pub mod operator;
pub mod process;
pub mod program;
pub mod registry;
pub mod relay;
pub mod router;
pub mod surroundings;
pub mod tools;
pub mod workshop;
pub mod world;
