//! A whole cluster on virtual machines: the embedded AWS, in which an EC2 instance is one of QEMU's.
//!
//! `make cluster` and `make test-cluster` run this in network, mount and process namespaces of their own (`tests/cluster/run.sh`), so that
//! whatever is started ends with it and nothing of the host is touched. The simulated groups launch, hook and terminate as ever
//! (`World::leave_machines_to_others`); each machine is booted for real, by [`conductor`]. What machines find around them:
//!
//! - [`network`]: one bridge that plays the VPC, a tap for each machine, the router's and the resolver's address.
//! - [`qemu`]: a machine: kernel, disk, NVMe volumes by QMP, console.
//! - [`metadata`]: IMDSv2, and what stands in for Systems Manager's channel to its agent.
//! - [`dhcp`], [`names`]: a machine's address; the VPC's resolver.
//! - [`front`]: TLS under AWS' own names and the mirror's, handed on to the embedded AWS, to [`ec2`], [`route53`] or the [`depot`].
//! - [`balancer`]: forwards TCP to the targets that pass the target group's own check.
//! - [`control`]: runs lines on machines.
//! - [`kubectl`]: the administrator's.
//! - [`room`]: all of it, started and deployed into. Start reading there.
//! - [`launch`]: the upload of an example, told as it happens.

pub mod balancer;
pub mod conductor;
pub mod control;
pub mod depot;
pub mod dhcp;
pub mod ec2;
pub mod front;
pub mod kubectl;
pub mod launch;
pub mod metadata;
pub mod names;
pub mod network;
pub mod qemu;
pub mod room;
pub mod route53;
pub mod state;
