//! `slipway`: Kubernetes clusters on EC2 from a terminal.
//!
//! Each verb is a file in `commands`. All output goes through [`printer::Printer`]. `local` implements the ports over a directory, so
//! that rendering and planning need no AWS, and `cloud` finds an installation and a cluster in AWS. [`Exit`] defines the exit codes.

mod cloud;
mod commands;
mod failure;
mod local;
mod overview;
mod printer;
mod source;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{
    abort, apply, approve, certs, completions, destroy, init, kubeconfig, list, migrate, pause, plan,
    publish_agent, render, renew, resume, rollback, rotate_ca, scan, simulate, skip, snapshot, snapshots,
    status, upgrade, validate, watch,
};
use printer::{Format, Printer};

/// Kubernetes clusters on EC2: check a spec, render it, show what a change would do, upload it, watch the rollout. Only commands with
/// --cluster and publish-agent call AWS.
#[derive(Debug, Parser)]
#[command(name = "slipway", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    /// The format of results.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text, value_name = "FORMAT")]
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
  slipway plan cluster.yaml --against rendered
  slipway certs show rendered
  slipway certs show --cluster prod
  slipway apply cluster.yaml --cluster prod --watch
  slipway status --cluster prod";

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Validate(validate::Args),
    Render(render::Args),
    Plan(plan::Args),
    Simulate(simulate::Args),
    Apply(apply::Args),
    List(list::Args),
    Status(status::Args),
    Watch(watch::Args),
    Approve(approve::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Abort(abort::Args),
    Skip(skip::Args),
    Rollback(rollback::Args),
    Upgrade(upgrade::Args),
    Destroy(destroy::Args),
    Snapshot(snapshot::Args),
    Snapshots(snapshots::Args),
    Kubeconfig(kubeconfig::Args),
    Certs(certs::Args),
    Scan(scan::Args),
    Renew(renew::Args),
    #[command(name = "rotate-ca")]
    RotateCa(rotate_ca::Args),
    PublishAgent(publish_agent::Args),
    Migrate(migrate::Args),
    Completions(completions::Args),
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
    let cli = Cli::parse();
    let printer = Printer::of_environment(cli.output);
    let result = match &cli.command {
        Command::Init(args) => init::run(args, &printer),
        Command::Validate(args) => validate::run(args, &printer).await,
        Command::Render(args) => render::run(args, &printer).await,
        Command::Plan(args) => plan::run(args, &printer).await,
        Command::Simulate(args) => simulate::run(args, &printer),
        Command::Apply(args) => apply::run(args, &printer).await,
        Command::List(args) => list::run(args, &printer).await,
        Command::Status(args) => status::run(args, &printer).await,
        Command::Watch(args) => watch::run(args, &printer).await,
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
        Command::Kubeconfig(args) => kubeconfig::run(args, &printer).await,
        Command::Certs(args) => certs::run(args, &printer).await,
        Command::Scan(args) => scan::run(args, &printer).await,
        Command::Renew(args) => renew::run(args, &printer).await,
        Command::RotateCa(args) => rotate_ca::run(args, &printer).await,
        Command::PublishAgent(args) => publish_agent::run(args, &printer).await,
        Command::Migrate(args) => migrate::run(args, &printer),
        Command::Completions(args) => completions::run(args, &printer),
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
