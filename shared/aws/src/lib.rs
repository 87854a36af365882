//! The ports of `slipway-flows`, on AWS. The only crate with `aws-sdk-*`.
//!
//! Start at [`Aws`]: it is made once a process and hands out one type a port:
//!
//! | port | here | IAM actions |
//! |---|---|---|
//! | `Objects` | [`S3Bucket`] | `s3:GetObject`, `s3:GetObjectVersion`, `s3:PutObject`, `s3:ListBucket` |
//! | `Listing`, `Removal` | [`S3Bucket`] | `s3:ListBucket`, `s3:DeleteObject` (no function has it) |
//! | `Keys` | [`KmsKeys`] | `kms:GenerateDataKey`, `kms:Decrypt` |
//! | `Parameters` | [`SsmParameters`] | `ssm:GetParameter` |
//! | `Bus` | [`EventBus`] | `events:PutEvents` |
//! | `Stacks` | [`CloudFormation`] | `cloudformation:…`, `iam:PassRole` |
//! | `Groups` | [`AutoScaling`] | `autoscaling:…` |
//! | `Commands` | [`RunCommand`] | `ssm:SendCommand`, `ssm:CancelCommand`, `ssm:ListCommands`, `ssm:GetCommandInvocation` |
//! | `Ticks` | [`Schedules`] | `scheduler:CreateSchedule`, `scheduler:DeleteSchedule`, `iam:PassRole` |
//!
//! Beside the ports, for a person's commands: [`Aws::stack`] and [`S3Bucket::folders`], and what stands in the account of an installation
//! (`installation`) and in the account (`account`, which calls services without an SDK by `raw`), what was changed by hand (`drift`), and AWS' prices
//! (`prices`). No function has their permissions.
//!
//! An error of a call becomes a `PortError`: its kind, the service's code, message and request id, and never a body.

mod account;
mod bus;
mod calls;
mod commands;
mod config;
mod drift;
mod error;
mod groups;
mod installation;
mod keys;
mod objects;
mod parameters;
mod prices;
mod raw;
mod stacks;
#[cfg(test)]
mod testing;
mod ticks;

pub use account::{Caller, InstalledAlarm, Quota, UsageMetric};
pub use bus::EventBus;
pub use commands::RunCommand;
pub use config::{Aws, NoRegion, Terminal};
pub use drift::{
    Detection, DetectionStart, Difference, DifferenceKind, DriftStatus, GroupSettings, ResourceDrift,
};
pub use groups::AutoScaling;
pub use installation::{Encryption, InstalledKey, InstalledResource, InstalledSchedule, InstalledStack};
pub use keys::KmsKeys;
pub use objects::S3Bucket;
pub use parameters::SsmParameters;
pub use prices::{Product, Rate};
pub use stacks::CloudFormation;
pub use ticks::Schedules;
