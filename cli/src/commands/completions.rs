//! `slipway completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::failure::CliError;
use crate::printer::Printer;
use crate::{Cli, Exit};

/// Write the completion script for a shell. In bash, zsh and fish it completes the names of clusters, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The names of clusters come from `slipway list --names`, which reads the installation that the environment or the
configuration file names.

Exit codes:
  0  written
  2  wrong usage
  3  the script could not be written

Examples:
  slipway completions bash > /etc/bash_completion.d/slipway
  slipway completions zsh > \"${fpath[1]}/_slipway\"
  slipway completions fish > ~/.config/fish/completions/slipway.fish")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "slipway", &mut script);
    let script = String::from_utf8_lossy(&script);
    printer.raw(with_clusters(args.shell, &script).as_bytes());
    Ok(Exit::Done)
}

/// The script in which the value of `--cluster` is the name of a cluster, not of a file.
fn with_clusters(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => script.replace(
            "--cluster)\n                    COMPREPLY=($(compgen -f \"${cur}\"))",
            "--cluster)\n                    COMPREPLY=($(compgen -W \"$(slipway list --names 2>/dev/null)\" -- \"${cur}\"))",
        ),
        Shell::Zsh => {
            let lines = script.lines().map(|line| {
                let is_cluster = line.trim_start().starts_with("'--cluster=");
                let line = if is_cluster { line.replace(":NAME:_default", ":NAME:_slipway_clusters") } else { line.to_owned() };
                line + "\n"
            });
            let function = "_slipway_clusters() {\n    compadd -- ${(f)\"$(slipway list --names 2>/dev/null)\"}\n}\n\n";
            lines.collect::<String>().replacen("_slipway() {", &format!("{function}_slipway() {{"), 1)
        }
        Shell::Fish => {
            let lines = script.lines().map(|line| {
                let is_cluster = line.contains(" -l cluster ") && line.ends_with(" -r");
                if is_cluster { format!("{line} -f -a '(slipway list --names 2>/dev/null)'\n") } else { format!("{line}\n") }
            });
            lines.collect()
        }
        Shell::Elvish | Shell::PowerShell => script.to_owned(),
        // Those that a later clap knows.
        _ => script.to_owned(),
    }
}
