//! `slipway man`.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde_json::json;

use crate::failure::CliError;
use crate::local::write_atomic;
use crate::printer::Printer;
use crate::{Cli, Exit};

/// Write the manual pages of this program and of each verb.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  written
  2  wrong usage
  3  a page could not be written

Examples:
  slipway man --out ~/.local/share/man/man1 && man slipway-apply")]
pub(crate) struct Args {
    /// The directory to write the pages into, such as a `man1` that `manpath` knows. It is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    std::fs::create_dir_all(&args.out).map_err(|error| CliError::file("create", &args.out, &error))?;
    // Verbs are named as their pages: `slipway-apply`.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    write(command, "slipway", &args.out, &mut pages)?;
    let shown = args.out.display();
    let text = format!("{} pages in {shown}\n", pages.len());
    printer.result(&text, &json!({ "ok": true, "directory": shown.to_string(), "pages": pages }));
    Ok(Exit::Done)
}

/// Writes the page of `command` and those of its verbs.
fn write(command: clap::Command, name: &str, out: &Path, pages: &mut Vec<String>) -> Result<(), CliError> {
    let verbs: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    let file = format!("{name}.1");
    let path = out.join(&file);
    let mut page = Vec::new();
    clap_mangen::Man::new(command.display_name(name.to_owned()))
        .render(&mut page)
        .and_then(|()| write_atomic(&path, &page).map(drop))
        .map_err(|error| CliError::file("write", &path, &error))?;
    pages.push(file);
    for verb in verbs {
        let name = format!("{name}-{}", verb.get_name());
        write(verb, &name, out, pages)?;
    }
    Ok(())
}
