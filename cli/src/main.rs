//! `slipway`: Kubernetes clusters on EC2 from a terminal.
//!
//! Each verb is a file in `commands`. All output goes through [`printer::Printer`]. `local` implements the ports over a directory, so
//! that rendering and planning need no AWS, and `cloud` finds an installation and a cluster in AWS. [`Exit`] defines the exit codes.

mod cloud;
mod commands;
mod failure;
mod local;
mod members;
mod overview;
mod printer;
mod session;
mod settings;
mod source;
mod upload;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand, ValueEnum as _};

use commands::{
    abort, apply, approve, certs, completions, cost, defragment, destroy, diff, doctor, export, history,
    init, kubeconfig, list, logs, man, migrate, pause, plan, publish_agent, render, renew, restore, resume,
    rollback, rotate_ca, scan, simulate, skip, snapshot, snapshots, status, upgrade, validate, version,
    watch,
};
use failure::CliError;
use printer::{Format, Printer};

/// Kubernetes clusters on EC2: check a spec, render it, show what a change would do, upload it, watch the rollout. `validate`, `render`,
/// `migrate`, `simulate` and `plan --against` work without AWS.
#[derive(Debug, Parser)]
#[command(name = "slipway", version = version::LONG, after_help = AFTER_HELP)]
struct Cli {
    /// The format of results.
    #[arg(short, long, value_enum, global = true, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  the spec was refused, or the request cannot be carried out in the present state
  2  wrong usage
  3  something could not be read or written

Colour is used on a terminal, unless NO_COLOR is set.

Examples:
  slipway init --cluster-name prod --region eu-west-1 --dns-name api.example.com
  slipway validate cluster.yaml
  slipway render cluster.yaml --out rendered
  slipway plan cluster.yaml
  slipway certs show rendered
  slipway certs show --cluster prod
  slipway apply cluster.yaml --watch
  slipway status --cluster prod

The name of the cluster may come from SLIPWAY_CLUSTER or from ~/.config/slipway/config.yaml as well: docs/cli.md.";

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Validate(validate::Args),
    Render(render::Args),
    Plan(plan::Args),
    Cost(cost::Args),
    Simulate(simulate::Args),
    #[command(visible_aliases = ["create", "update"])]
    Apply(apply::Args),
    #[command(visible_alias = "get")]
    List(list::Args),
    #[command(visible_alias = "describe")]
    Status(status::Args),
    Watch(watch::Args),
    Logs(logs::Args),
    Diff(diff::Args),
    History(history::Args),
    Doctor(doctor::Args),
    Approve(approve::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Abort(abort::Args),
    Skip(skip::Args),
    Rollback(rollback::Args),
    Upgrade(upgrade::Args),
    #[command(visible_alias = "delete")]
    Destroy(destroy::Args),
    Snapshot(snapshot::Args),
    Snapshots(snapshots::Args),
    Restore(restore::Args),
    Defragment(defragment::Args),
    Kubeconfig(kubeconfig::Args),
    Export(export::Args),
    Certs(certs::Args),
    Scan(scan::Args),
    Renew(renew::Args),
    #[command(name = "rotate-ca")]
    RotateCa(rotate_ca::Args),
    PublishAgent(publish_agent::Args),
    Migrate(migrate::Args),
    Completions(completions::Args),
    Man(man::Args),
    Version(version::Args),
}

/// How a command ended, besides [`CliError`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// Done.
    Done,
    /// The spec was refused, or the answer is no.
    Findings,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unusable(&tip(error)),
    };
    let printer = Printer::of_environment(cli.output);
    let result = match &cli.command {
        Command::Init(args) => init::run(args, &printer),
        Command::Validate(args) => validate::run(args, &printer).await,
        Command::Render(args) => render::run(args, &printer).await,
        Command::Plan(args) => plan::run(args, &printer).await,
        Command::Cost(args) => cost::run(args, &printer).await,
        Command::Simulate(args) => simulate::run(args, &printer),
        Command::Apply(args) => apply::run(args, &printer).await,
        Command::List(args) => list::run(args, &printer).await,
        Command::Status(args) => status::run(args, &printer).await,
        Command::Watch(args) => watch::run(args, &printer).await,
        Command::Logs(args) => logs::run(args, &printer).await,
        Command::Diff(args) => diff::run(args, &printer).await,
        Command::History(args) => history::run(args, &printer).await,
        Command::Doctor(args) => doctor::run(args, &printer).await,
        Command::Approve(args) => approve::run(args, &printer).await,
        Command::Pause(args) => pause::run(args, &printer).await,
        Command::Resume(args) => resume::run(args, &printer).await,
        Command::Abort(args) => abort::run(args, &printer).await,
        Command::Skip(args) => skip::run(args, &printer).await,
        Command::Rollback(args) => rollback::run(args, &printer).await,
        Command::Upgrade(args) => upgrade::run(args, &printer).await,
        Command::Destroy(args) => destroy::run(args, &printer).await,
        Command::Snapshot(args) => snapshot::run(args, &printer).await,
        Command::Snapshots(args) => snapshots::run(args, &printer).await,
        Command::Restore(args) => restore::run(args, &printer).await,
        Command::Defragment(args) => defragment::run(args, &printer).await,
        Command::Kubeconfig(args) => kubeconfig::run(args, &printer).await,
        Command::Export(args) => export::run(args, &printer).await,
        Command::Certs(args) => certs::run(args, &printer).await,
        Command::Scan(args) => scan::run(args, &printer).await,
        Command::Renew(args) => renew::run(args, &printer).await,
        Command::RotateCa(args) => rotate_ca::run(args, &printer).await,
        Command::PublishAgent(args) => publish_agent::run(args, &printer).await,
        Command::Migrate(args) => migrate::run(args, &printer),
        Command::Completions(args) => completions::run(args, &printer),
        Command::Man(args) => man::run(args, &printer),
        Command::Version(args) => version::run(args, &printer),
    };
    let result = match printer.lost() {
        Some(lost) => result.and(Err(lost)),
        None => result,
    };
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Findings) => ExitCode::from(1),
        Err(failure) => {
            printer.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Arguments that cannot be read, or a request for help. Programs get the error as a document, as for every other failure.
fn unusable(error: &clap::Error) -> ExitCode {
    let format = asked_format(std::env::args().skip(1));
    let Some(format @ (Format::Json | Format::Yaml)) = format.filter(|_| error.use_stderr()) else {
        error.exit()
    };
    let text = error.render().to_string();
    let (problem, help) = text.split_once("\n\n").unwrap_or((&text, "see slipway --help"));
    let failure = CliError::usage(problem.trim_start_matches("error: ").trim(), help.trim());
    Printer::of_environment(format).failure(&failure);
    ExitCode::from(failure.code())
}

/// The format of results that arguments ask for, if they cannot be read as a whole.
fn asked_format(mut arguments: impl Iterator<Item = String>) -> Option<Format> {
    let mut found = None;
    while let Some(argument) = arguments.next() {
        let value = match argument.as_str() {
            "-o" | "--output" => arguments.next(),
            _ => argument
                .strip_prefix("--output=")
                .or_else(|| argument.strip_prefix("-o").map(|value| value.trim_start_matches('=')))
                .map(str::to_owned),
        };
        found = value.and_then(|value| Format::from_str(&value, false).ok()).or(found);
    }
    found
}

/// Other tools name the cluster, or a kind of thing, as an argument: the error then says how it is done here.
fn tip(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') || !word.bytes().all(is_name) {
        return error;
    }
    let tip = match word.as_str() {
        "cluster" | "clusters" => format!("leave out '{word}': every verb is about clusters"),
        "node" | "nodes" | "nodegroup" | "nodegroups" => {
            "'slipway status' shows the nodes of a cluster".to_owned()
        }
        _ => format!("name a cluster with '--cluster {word}'"),
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::{Path, PathBuf};

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_format_is_known_although_other_arguments_are_wrong() {
        let asked = |line: &str| asked_format(line.split(' ').map(str::to_owned));
        for line in
            ["validate c.yaml --bogus -o json", "validate --output=json --bogus", "-ojson x", "-o=json x"]
        {
            assert_eq!(asked(line), Some(Format::Json), "{line}");
        }
        assert_eq!(asked("validate -o yaml"), Some(Format::Yaml));
        assert_eq!((asked("validate --out dir"), asked("validate -o")), (None, None));
    }

    /// The sources in a folder and below it, without tests.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "testdata", "target", "snapshots"].contains(&name.as_str()) {
                found.extend(sources(&path));
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
        found
    }

    /// The commands in backquotes in the texts of a source.
    fn commands(source: &str) -> Vec<String> {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let mut text = source.lines().filter(is_code).collect::<Vec<_>>().join("\n");
        // A text that continues in the next line.
        while let Some(at) = text.find("\\\n") {
            let rest = text[at + 2..].trim_start().to_owned();
            text.truncate(at);
            text.push_str(&rest);
        }
        let parts =
            text.split('`').skip(1).filter(|part| part.starts_with("slipway ") && !part.contains('\n'));
        parts.map(str::to_owned).collect()
    }

    #[test]
    fn every_command_that_a_message_names_is_one() {
        Cli::command().debug_assert();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut count = 0;
        for folder in ["shared", "functions", "cli/src"] {
            for path in sources(&root.join(folder)) {
                for command in commands(&std::fs::read_to_string(&path).unwrap()) {
                    let words = command.split_whitespace().map(|word| match word.split_once('{') {
                        Some((before, _)) => format!("{before}x1"),
                        None => word.to_owned(),
                    });
                    count += 1;
                    let Err(error) = Cli::try_parse_from(words) else { continue };
                    // Where only the verb is named, its arguments are missing; and a placeholder is no value.
                    let is_fine = matches!(
                        error.kind(),
                        ErrorKind::MissingRequiredArgument
                            | ErrorKind::ValueValidation
                            | ErrorKind::InvalidValue
                            | ErrorKind::DisplayHelp
                            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    );
                    assert!(is_fine, "{}: `{command}`: {error}", path.display());
                }
            }
        }
        assert!(count > 30, "{count} commands are named");
    }

    /// The scripts in a file of CI jobs: the texts below `script`, `before_script` and `run`.
    fn scripts(node: &slipway_spec::Node, found: &mut Vec<String>) {
        use slipway_spec::Kind;
        let lines = |node: &slipway_spec::Node, found: &mut Vec<String>| match &node.kind {
            Kind::Scalar { text, .. } => found.push(text.clone()),
            Kind::List(parts) => found.extend(parts.iter().filter_map(|part| match &part.kind {
                Kind::Scalar { text, .. } => Some(text.clone()),
                Kind::List(_) | Kind::Map(_) => None,
            })),
            Kind::Map(_) => panic!("{node:?} is not a script"),
        };
        match &node.kind {
            Kind::Map(entries) => {
                for entry in entries {
                    match entry.key.as_str() {
                        "run" | "script" | "before_script" => lines(&entry.value, found),
                        _ => scripts(&entry.value, found),
                    }
                }
            }
            Kind::List(parts) => parts.iter().for_each(|part| scripts(part, found)),
            Kind::Scalar { .. } => {}
        }
    }

    #[test]
    fn the_jobs_of_ci_are_yaml_and_run_commands_that_there_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/integrations");
        for file in ["github-actions.yml", "gitlab-ci.yml"] {
            let tree = slipway_spec::read_tree(&std::fs::read(folder.join(file)).unwrap());
            let tree = tree.unwrap_or_else(|findings| panic!("{file}: {findings:?}"));
            let mut found = Vec::new();
            scripts(&tree, &mut found);
            let mut verbs = Vec::new();
            for script in &found {
                let checked = std::process::Command::new("bash").args(["-n", "-c", script]).output().unwrap();
                assert!(checked.status.success(), "{file}: {script}: {checked:?}");
                for line in script.lines().map(|line| line.trim_start().trim_start_matches("{ ")) {
                    if !line.starts_with("slipway ") {
                        continue;
                    }
                    // What follows is for the shell.
                    let command = line.split([';', '>', '&', '|']).next().unwrap().replace('"', "");
                    let words: Vec<&str> = command.split_whitespace().collect();
                    let cli = Cli::try_parse_from(words.iter().copied());
                    cli.unwrap_or_else(|error| panic!("{file}: `{line}`: {error}"));
                    verbs.push(words[1].to_owned());
                }
            }
            assert_eq!(verbs, ["validate", "plan", "apply"], "{file}");
        }
    }
}
