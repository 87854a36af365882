//! The failures of commands.

use std::io;
use std::path::Path;

use slipway_flows::error::FlowError;
use slipway_ports::{ErrorKind, PortError};

/// Why a command failed. Findings about a spec are a result, not a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A file could not be read or written.
    #[error("cannot {verb} {what}: {why}")]
    File {
        /// `read`, `write`, ….
        verb: &'static str,
        /// The path.
        what: String,
        /// The system's error message.
        why: String,
        /// What to do, if it is obvious.
        help: Option<&'static str>,
    },
    /// It cannot be done in the present state.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: String,
        /// What to do.
        help: String,
    },
    /// The command was not given what it needs.
    #[error("{problem}")]
    Usage {
        /// What is missing or wrong.
        problem: String,
        /// What to do.
        help: String,
    },
    /// A flow failed.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// A flow in AWS failed.
    #[error("{why}")]
    Cloud {
        /// Why.
        why: FlowError,
        /// What to do, in addition to what the flow says.
        help: Option<String>,
    },
}

impl CliError {
    pub(crate) fn file(verb: &'static str, path: &Path, why: &io::Error) -> Self {
        Self::File { verb, what: path.display().to_string(), why: why.to_string(), help: None }
    }

    /// A file of Slipway's that was damaged.
    pub(crate) fn damaged(path: &Path, why: &serde_json::Error) -> Self {
        let help = Some("bring the file back, or render into another directory");
        Self::File { verb: "read", what: path.display().to_string(), why: why.to_string(), help }
    }

    pub(crate) fn refused(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), help: help.into() }
    }

    pub(crate) fn usage(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage { problem: problem.into(), help: help.into() }
    }

    /// The same failure in AWS, where the help differs from that for a directory.
    pub(crate) fn in_cloud(self) -> Self {
        match self {
            Self::Flow(FlowError::Port(error)) => {
                let help = help_in_cloud(&error);
                Self::Cloud { why: FlowError::Port(error), help }
            }
            Self::Flow(why) => Self::Cloud { why, help: None },
            other @ (Self::File { .. } | Self::Refused { .. } | Self::Usage { .. } | Self::Cloud { .. }) => {
                other
            }
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Flow(why) | Self::Cloud { why, .. } => why.is_transient(),
            Self::File { .. } | Self::Refused { .. } | Self::Usage { .. } => false,
        }
    }

    /// The exit code: 1 for a refusal, 2 for wrong usage, 3 for failed reads and writes.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Refused { .. } => 1,
            Self::Usage { .. } => 2,
            Self::File { .. } => 3,
            Self::Flow(why) | Self::Cloud { why, .. } => match why {
                FlowError::Refused { .. } => 1,
                FlowError::Port(_) | FlowError::Corrupt { .. } | FlowError::Race { .. } => 3,
            },
        }
    }

    /// What to do, if there is more to say than what is wrong.
    pub(crate) fn help(&self) -> Option<&str> {
        match self {
            Self::Refused { help, .. } | Self::Usage { help, .. } => Some(help),
            Self::File { help, .. } => *help,
            Self::Cloud { help, .. } => help.as_deref(),
            // The flow names the object by its key in the bucket; see `local`.
            Self::Flow(FlowError::Corrupt { .. }) => Some(
                "in a directory, clusters/NAME/ is the directory itself, and its pki/ and bundles/ lie in credentials/",
            ),
            Self::Flow(FlowError::Port(_) | FlowError::Refused { .. } | FlowError::Race { .. }) => None,
        }
    }
}

/// What to do about a failed AWS call. Its message begins with the service's error code.
fn help_in_cloud(error: &PortError) -> Option<String> {
    let code = error.message.split(':').next().unwrap_or_default();
    let help = match code {
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => {
            "your AWS credentials have expired: sign in again (such as `aws sso login`), then try again".to_owned()
        }
        // The SDK's words for a profile with `login_session`. Its provider for these brings a second implementation of cryptography with it (p256), and
        // `aws configure export-credentials` gives them out as a program.
        "NoCredentials" if error.message.contains("credentials-login") => {
            "this profile signs in by `aws login`, which slipway does not read itself. Add another profile with `credential_process = aws configure \
             export-credentials --profile NAME --format process`, where NAME is this one, and name that with --profile"
                .to_owned()
        }
        "NoCredentials" => {
            "you are not signed in to AWS: `aws sso login`, or name a profile that `aws configure list-profiles` lists with --profile, or set \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                .to_owned()
        }
        "InvalidAccessKeyId" | "InvalidClientTokenId" | "SignatureDoesNotMatch" | "UnrecognizedClientException" => {
            "AWS does not know these credentials: `aws sts get-caller-identity` says whose they are; see AWS_PROFILE and AWS_ACCESS_KEY_ID"
                .to_owned()
        }
        "NoSuchBucket" => {
            "name the asset and spec buckets of the installation, or its stack with --stack; they lie in the account that you \
             are signed in to, or let it in"
                .to_owned()
        }
        "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "the bucket lies in another region: set AWS_REGION to the installation's".to_owned()
        }
        "DisabledException" | "KMSInvalidStateException" => {
            "enable the key again, or cancel its deletion: without it nothing that it sealed can be opened".to_owned()
        }
        "InvalidCiphertextException" => {
            "it was sealed for another cluster or role, or is damaged; `slipway certs verify --open` says which objects are".to_owned()
        }
        _ => match error.kind {
            ErrorKind::Denied => format!(
                "whoever you are signed in as needs {} there; what each verb needs is listed in docs/pki.md and docs/cli.md{}",
                error.operation,
                match error.operation {
                    "s3:GetObject" => {
                        " (S3 also says this of an object that is not there, to who lacks s3:ListBucket on its bucket)"
                    }
                    "s3:PutObject" | "s3:DeleteObject" => {
                        ". In the asset bucket, agents are published by the roles and users in the installation's parameter MaintainerArns alone; \
                         credentials, pins and state of clusters are written by them and by the functions: sam deploy --parameter-overrides MaintainerArns=ARN (docs/upgrading.md)"
                    }
                    _ => "",
                }
            ),
            ErrorKind::Missing if error.operation.starts_with("kms:") => {
                "the key was deleted, or lies in another account or region than you are signed in to".to_owned()
            }
            ErrorKind::Transient => "try again: AWS could not be reached, was busy, or wants better credentials".to_owned(),
            ErrorKind::Missing | ErrorKind::Invalid => return None,
        },
    };
    Some(help)
}
