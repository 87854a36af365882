//! The reasons why a cluster cannot be rendered. Each error says what to do.

use slipway_core::diagnostic::Diagnostic;

/// One reason why a cluster cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The lock does not pin the image behind an SSM parameter.
    #[error(
        "the lock pins no image for {parameter}, which {role} nodes take theirs from; \
         resolve the parameter and pin it in lock.json, or give an amiId"
    )]
    UnpinnedImage {
        /// The role.
        role: String,
        /// The SSM public parameter.
        parameter: String,
    },
    /// The spec names no image for an architecture.
    #[error(
        "there is no {architecture} image for {role} nodes; give an image for that architecture, \
         or an instance type of another"
    )]
    NoImage {
        /// The role.
        role: String,
        /// `arm64` or `x86_64`.
        architecture: &'static str,
    },
    /// The lock does not pin the patch of a Kubernetes release.
    #[error(
        "the lock pins no exact release for Kubernetes {version}; pin one in lock.json, \
         or write the patch into kubernetesVersion"
    )]
    UnpinnedVersion {
        /// `kubernetesVersion` as the spec has it.
        version: String,
    },
    /// The lock lacks the etcd release.
    #[error(
        "the lock pins no etcd release for Kubernetes {kubernetes}; pin one in lock.json, or set etcd.version"
    )]
    UnpinnedEtcd {
        /// `kubernetesVersion` as the spec has it.
        kubernetes: String,
    },
    /// A role has no credentials.
    #[error("there is no credentials bundle for {role}; make the credentials before rendering")]
    NoCredentials {
        /// The role.
        role: String,
    },
    /// The installation has no bucket for the cluster's public keys.
    #[error(
        "iamRolesForServiceAccounts needs a bucket from which AWS reads the cluster's public keys, and this installation has \
         none; remove iamRolesForServiceAccounts, or, where the account does not block public bucket policies (S3 Block Public Access), \
         deploy infra/template.yaml with ServiceAccountIssuer=public"
    )]
    NoIssuerBucket,
    /// An ARN contains no account.
    #[error(
        "the ARN of Slipway's own key, {arn}, names no account; mend the installation's SLIPWAY_KMS_KEY_ARN"
    )]
    NoAccount {
        /// The ARN.
        arn: String,
    },
    /// A public subnet in an existing VPC needs the VPC's internet gateway.
    #[error(
        "public subnet {subnet} in the existing VPC {vpc} needs the VPC's internet gateway; \
         give internetGateway.id, or a routeTable.id that leads to it"
    )]
    NoInternetGateway {
        /// The VPC.
        vpc: String,
        /// One of the subnets concerned.
        subnet: String,
    },
    /// One NAT gateway has two Elastic IPs.
    #[error(
        "private subnets that share the NAT gateway in {subnet} name two Elastic IPs for it, {first} and {second}; \
         name one, or use another public subnet for one of them"
    )]
    TwoNatAddresses {
        /// The public subnet of the gateway.
        subnet: String,
        /// One allocation.
        first: String,
        /// The other.
        second: String,
    },
    /// Two things have the same logical id.
    #[error("stack {stack}: two things have the logical id {id}; rename one of them")]
    LogicalIdCollision {
        /// The stack.
        stack: String,
        /// The id.
        id: String,
    },
    /// A patch does not apply, or changes something that it may not.
    #[error("{0}")]
    Patch(Box<Diagnostic>),
    /// A quota of AWS would be exceeded.
    #[error("stack {stack}: {what} is {actual}, and AWS allows {limit}; {help}")]
    Limit {
        /// The stack.
        stack: String,
        /// What was counted, with its unit.
        what: String,
        /// The actual number.
        actual: usize,
        /// The allowed number.
        limit: usize,
        /// What to do.
        help: &'static str,
    },
    /// The lock pins no version of an add-on's image.
    #[error(
        "the lock pins no version for the image {image}; give the add-on's `version`, or let the lock be resolved"
    )]
    UnpinnedAddon {
        /// Its repository.
        image: &'static str,
    },
    /// The lock does not pin an image's digest.
    #[error(
        "the lock pins no digest for the image {reference}; let the registry be asked for it, or pin it in lock.json under \
         `addonImages`"
    )]
    UnpinnedDigest {
        /// Repository and tag.
        reference: String,
    },
    /// The lock does not pin a program's release.
    #[error(
        "the lock pins no release of {program}; let the lock be resolved, or pin one in lock.json under `programVersions`"
    )]
    UnpinnedProgramVersion {
        /// The program's name.
        program: &'static str,
    },
    /// The lock does not pin a program's digest.
    #[error(
        "the lock pins no digest for {url}, which nodes install; let its publisher be asked for it, or pin it in lock.json \
         under `programFiles`"
    )]
    UnpinnedProgram {
        /// Its URL at the publisher.
        url: String,
    },
}

impl RenderError {
    /// The error as a finding, with its place if it has one.
    #[must_use]
    pub fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Patch(found) => found.as_ref().clone(),
            Self::UnpinnedImage { .. }
            | Self::NoImage { .. }
            | Self::UnpinnedVersion { .. }
            | Self::UnpinnedEtcd { .. }
            | Self::NoCredentials { .. }
            | Self::NoInternetGateway { .. }
            | Self::TwoNatAddresses { .. }
            | Self::LogicalIdCollision { .. }
            | Self::NoIssuerBucket
            | Self::NoAccount { .. }
            | Self::UnpinnedAddon { .. }
            | Self::UnpinnedDigest { .. }
            | Self::UnpinnedProgram { .. }
            | Self::UnpinnedProgramVersion { .. }
            | Self::Limit { .. } => Diagnostic::for_whole_spec("render", self.to_string()),
        }
    }
}
