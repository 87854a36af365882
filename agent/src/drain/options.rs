//! The options of `drain` and `uncordon`.

use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use slipway_core::drain::{Force, Policy, Treatment};

#[derive(Debug, Clone, Args)]
pub struct Drain {
    /// The node's name
    #[arg(value_parser = node)]
    pub node: String,
    /// End after this many seconds even if pods remain: the answer lists them, and the next drain continues
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=172_800))]
    pub seconds: Option<u64>,
    /// After the drain has lasted this many seconds, delete pods that their budgets keep, by all of the rules below
    #[arg(long, value_name = "SECONDS|never", default_value = "never", value_parser = force_after)]
    pub force_after: ForceAfter,
    /// Force: minimum age of the pod in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 72 * 3600, value_parser = seconds())]
    pub force_pod_age: i64,
    /// Force: for how many seconds the healthy pods of its budget must have been healthy
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = seconds())]
    pub force_healthy: i64,
    /// Force: for how many seconds the unhealthy pods of its budget must have been unhealthy
    #[arg(long, value_name = "SECONDS", default_value_t = 6 * 3600, value_parser = seconds())]
    pub force_unhealthy: i64,
    /// Force: minimum seconds between two pods
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds())]
    pub force_interval: i64,
    /// What to do with pods with an emptyDir, whose data is lost
    #[arg(long, value_enum, default_value_t = Lossy::Evict)]
    pub empty_dir: Lossy,
    /// What to do with pods that no controller recreates
    #[arg(long, value_enum, default_value_t = Lossy::Evict)]
    pub bare_pods: Lossy,
}

#[derive(Debug, Clone, Args)]
pub struct Uncordon {
    /// The node's name
    #[arg(value_parser = node)]
    pub node: String,
}

/// `None` for `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceAfter(pub Option<i64>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lossy {
    /// Evict them like others
    Evict,
    /// Wait until somebody has deleted them
    Wait,
}

impl Drain {
    pub(super) fn policy(&self) -> Policy {
        let seconds = SignedDuration::from_secs;
        let force = self.force_after.0.map(|after| Force {
            after: seconds(after),
            pod_age: seconds(self.force_pod_age),
            healthy_for: seconds(self.force_healthy),
            unhealthy_for: seconds(self.force_unhealthy),
            interval: seconds(self.force_interval),
        });
        Policy { force, empty_dir: self.empty_dir.treatment(), bare: self.bare_pods.treatment() }
    }
}

impl Lossy {
    fn treatment(self) -> Treatment {
        match self {
            Self::Evict => Treatment::Evict,
            Self::Wait => Treatment::Wait,
        }
    }
}

fn seconds() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=31_536_000)
}

fn force_after(text: &str) -> Result<ForceAfter, String> {
    if text == "never" {
        return Ok(ForceAfter(None));
    }
    match text.parse() {
        Ok(after @ 0..=31_536_000) => Ok(ForceAfter(Some(after))),
        _ => Err("neither `never` nor a number of seconds".to_owned()),
    }
}

/// The name becomes part of a URL path.
fn node(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if text.len() <= 253 && text.chars().all(fits) && ends(text.chars().next()) && ends(text.chars().last()) {
        Ok(text.to_owned())
    } else {
        Err("not a node's name: node names are DNS names".to_owned())
    }
}
