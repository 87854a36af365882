//! How a person signs in to AWS for one command, and what of it is shown.

use slipway_aws::{Aws, Terminal};

use crate::failure::CliError;
use crate::printer::log;
use crate::settings::Settings;

/// The heading of the options about AWS in help texts.
pub(crate) const AWS: &str = "A cluster in AWS";

/// Who signs in, where, and whether each call is shown.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SessionArgs {
    /// The AWS profile. Default: AWS_PROFILE, else the configuration file's.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    profile: Option<String>,
    /// The region of the Slipway installation. Default: AWS_REGION, else the configuration file's, else the profile's.
    #[arg(long, value_name = "REGION", help_heading = AWS)]
    region: Option<String>,
    /// Show on the standard error what is used: installation, region, profile. -vv shows each call to AWS with its result and duration as well.
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = AWS)]
    verbose: u8,
}

/// The level from which each call is shown.
const CALLS: u8 = 2;

impl SessionArgs {
    pub(crate) async fn sign_in(&self, settings: &Settings) -> Result<Aws, CliError> {
        let or = |given: &Option<String>, variables: &[&str], default: &Option<String>| {
            let is_set =
                variables.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
            // The SDK reads the variables itself.
            given.clone().or_else(|| default.clone().filter(|_| !is_set))
        };
        let terminal = Terminal {
            profile: or(&self.profile, &["AWS_PROFILE", "AWS_ACCESS_KEY_ID"], &settings.profile),
            region: or(&self.region, &["AWS_REGION", "AWS_DEFAULT_REGION"], &settings.region),
            calls: (self.verbose >= CALLS).then_some(log as fn(&str)),
        };
        let profile = terminal.profile.clone();
        let aws = Aws::at_a_terminal(terminal).await.map_err(|error| {
            let help = "name the region of the Slipway installation: --region, AWS_REGION, or `region:` in the configuration file";
            CliError::usage(error.to_string(), help)
        })?;
        let profile =
            profile.map_or_else(|| "as the environment says".to_owned(), |name| format!("profile {name}"));
        self.tell(&format!("AWS: region {}, {profile}", aws.region()));
        Ok(aws)
    }

    /// Shows a line, if the person wants to see what is used.
    pub(crate) fn tell(&self, line: &str) {
        if self.verbose > 0 {
            log(line);
        }
    }
}
