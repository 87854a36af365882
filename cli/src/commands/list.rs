//! `slipway list`.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use slipway_core::status::RolloutState;
use slipway_core::words::{count, moment};

use crate::Exit;
use crate::cloud::{Cloud, InstallationArgs};
use crate::failure::CliError;
use crate::overview::{Expiry, Gravity, Overview, Reports, Serving, plain};
use crate::printer::{Colour, Printer};

/// List the clusters of an installation: whether each one serves, the state of its rollout, its nodes, the certificate that expires first, and what is wrong.
///
/// Each line is a summary of `slipway status`. Only the installation's asset bucket is read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown; with --exit-code: nothing is wrong, and every cluster serves (or was destroyed)
  1  with --exit-code: something is wrong, or a cluster's machines do not say that it serves
  2  wrong usage
  3  the asset bucket could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway list
  slipway list --exit-code
  slipway list --output json | jq '.clusters[] | select(.wrong > 0).cluster'")]
pub(crate) struct Args {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Exit with 1 if anything is wrong.
    #[arg(long)]
    exit_code: bool,
    /// List only the names of the clusters, without reading their states.
    #[arg(long, conflicts_with = "exit_code")]
    names: bool,
}

/// How many clusters are read at a time.
const AT_A_TIME: usize = 8;

/// A cluster in one line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    cluster: String,
    state: RolloutState,
    serving: Serving,
    nodes_up: usize,
    nodes: usize,
    /// The certificate that expires first.
    expires: Option<Expiry>,
    /// When the open rollout began, or the last one ended.
    since: Option<Timestamp>,
    wrong: usize,
    /// The first thing that is wrong, with the command that helps.
    first: Option<String>,
}

impl Line {
    fn new(view: Overview) -> Self {
        let up = |words: &String| words == "up";
        let nodes: Vec<String> = view.nodes.iter().filter_map(crate::overview::Node::words).collect();
        let wrong = || view.findings.iter().filter(|finding| finding.gravity == Gravity::Wrong);
        Self {
            nodes_up: nodes.iter().filter(|words| up(words)).count(),
            nodes: nodes.len(),
            since: view.rollout.ended_at.or(view.rollout.started_at),
            wrong: wrong().count(),
            first: wrong().next().map(|finding| plain(&format!("{}: {}", finding.about, finding.message))),
            state: view.rollout.state,
            serving: view.serving,
            cluster: view.cluster,
            expires: view.certificates.into_iter().next(),
        }
    }

    fn is_well(&self) -> bool {
        self.wrong == 0 && self.serving.is_well()
    }

    fn cells(&self) -> [String; 6] {
        let since = self.since.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
        let expires = match &self.expires {
            Some(one) => format!("{} ends in {} d", one.name, one.days_left),
            None => "no certificates".to_owned(),
        };
        [
            self.cluster.clone(),
            self.serving.word().to_owned(),
            format!("{}{since}", self.state),
            format!("{} of {} up", self.nodes_up, count(self.nodes, "node")),
            expires,
            if self.wrong == 0 { "nothing wrong".to_owned() } else { format!("{} wrong", self.wrong) },
        ]
    }
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.names {
        let names = args.installation.find().await?.clusters().await?;
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        printer.result(&text, &json!({ "ok": true, "clusters": names }));
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let clusters = Cloud::all(&args.installation).await?;
    let read = clusters.into_iter().map(|cloud| async move {
        let view = Overview::read(&cloud, &mut Reports::default(), now).await?;
        Ok::<_, CliError>(Line::new(view))
    });
    let lines: Vec<Line> = stream::iter(read).buffered(AT_A_TIME).try_collect().await?;
    printer.result(&text(&lines, printer), &json!({ "ok": true, "clusters": lines }));
    let well = lines.iter().all(Line::is_well);
    Ok(if args.exit_code && !well { Exit::Findings } else { Exit::Done })
}

fn text(lines: &[Line], printer: &Printer) -> String {
    if lines.is_empty() {
        return "there is no cluster; upload a spec: slipway apply cluster.yaml --cluster NAME\n".to_owned();
    }
    let cells: Vec<[String; 6]> = lines.iter().map(Line::cells).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for (line, row) in lines.iter().zip(&cells) {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        let colour = if line.is_well() { Colour::Green } else { Colour::Red };
        let _ = writeln!(text, "{}", printer.paint(colour, &row[5]));
        if let Some(first) = &line.first {
            let _ = writeln!(text, "  {first}\n  slipway status --cluster {}", line.cluster);
        }
    }
    text
}
