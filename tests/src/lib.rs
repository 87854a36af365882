//! An AWS small enough to carry along, in which the unmodified function binaries run end to end (design §11).
//!
//! - [`world`]: it all, started and deployed into. Start reading here.
//! - [`installation`]: Slipway in it, and what its users do.
//! - [`imds`]: what an instance asks about itself.
//! - [`machines`]: etcd members that boot for real, by systemd-nspawn.
//! - [`cluster`]: a whole cluster on virtual machines, and all that they find around them.
//! - [`moto`]: S3, KMS, SSM parameters, EventBridge's patterns and SQS, by moto's server.
//! - [`operator`]: what an operator prepares in moto before a test begins.
//! - [`gateway`]: the one endpoint in front of it all; judges every call by the template's IAM policies.
//! - [`deploy`]: the SAM template, resource by resource; what it does not know is an error.
//! - [`cloud`]: the simulated CloudFormation, Scheduler, Auto Scaling and Run Command, which `shared/sim` is, wired in.
//! - [`registry`]: container images, as far as their digests.
//! - [`router`]: brings what moto's patterns match to the functions; [`bell`] wakes it.
//! - [`workshop`]: none of that: the flows alone, in an account in memory.
//! - [`kubernetes`]: a real control plane, from what a controller is given.
//! - [`leaks`]: looks for secrets, in whatever form, where none must be.
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
pub mod observe;
pub mod operator;
pub mod process;
pub mod registry;
pub mod router;
pub mod surroundings;
pub mod tools;
pub mod workshop;
pub mod world;
