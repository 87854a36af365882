//! moto's server: S3, KMS, SSM parameters, EventBridge's patterns and SQS.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStdin, Command};

use crate::client::Client;
use crate::process::Group;
use crate::tools;

/// A moto server. Dropping this value stops it.
#[derive(Debug)]
pub struct Moto {
    url: String,
    _process: Group,
    /// The server ends when this closes, even if this process is killed.
    _lifeline: Option<ChildStdin>,
}

impl Moto {
    /// Starts the server on a free port, and waits until it answers. `parameters` become public SSM parameters, which cannot be written by
    /// the API.
    ///
    /// # Errors
    /// If the tools are missing or the server does not start; with its output.
    pub async fn start(parameters: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_old(parameters, 0).await
    }

    /// As [`Moto::start`]. Its S3 reports the modification time of every object as that many hours earlier.
    ///
    /// # Errors
    /// As [`Moto::start`].
    pub async fn start_old(parameters: &[(&str, &str)], hours: u32) -> io::Result<Self> {
        let python = tools::python().map_err(io::Error::other)?;
        let mut command = Command::new(python);
        command.arg(tools::root().join("tests/scripts/embedded_moto.py"));
        command.args(parameters.iter().map(|(name, value)| format!("{name}={value}")));
        command.env("HOURS_AGO", hours.to_string());
        let mut process = Group::spawn(&mut command)?;
        let lifeline = process.stdin();
        let mut said = String::new();
        if let Some(stdout) = process.stdout() {
            BufReader::new(stdout).read_line(&mut said).await?;
        }
        let mut errors = process.stderr();
        if !said.starts_with("http://") {
            let mut words = String::new();
            if let Some(stderr) = &mut errors {
                stderr.read_to_string(&mut words).await?;
            }
            return Err(io::Error::other(format!("moto's server does not start: {said}{words}")));
        }
        // The server would block on a full pipe.
        if let Some(mut stderr) = errors {
            tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
        }
        Ok(Self { url: said.trim().to_owned(), _process: process, _lifeline: lifeline })
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of the operator, who may do everything.
    #[must_use]
    pub fn operator(&self, region: &str) -> Client {
        Client::new(&self.url, region, "OPERATOR")
    }
}
