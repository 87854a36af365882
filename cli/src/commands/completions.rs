//! `slipway completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::failure::CliError;
use crate::printer::Printer;
use crate::{Cli, Exit};

/// Write the completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
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
    printer.raw(&script);
    Ok(Exit::Done)
}
