//! The reports of nodes: their bootstrap, and what they serve.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use slipway_core::keys::{ReportKind, report_key};
use slipway_core::node::{BootstrapReport, NodeStatus};
use slipway_core::role::Role;
use slipway_ports::{Listed, Objects as _};

use crate::cloud::Cloud;
use crate::failure::CliError;

/// The maximum number of reports listed: those of a cluster of a thousand nodes after several replacements of all.
const MOST_LISTED: usize = 20_000;
/// The maximum number of reports read, the newest first: two for each node, for twice as many nodes.
const MOST_READ: usize = 4_000;
/// How many reads run at the same time. S3 answers one in some 20 ms.
const AT_A_TIME: usize = 32;
/// The largest status that is read; it usually has some 4 KiB.
const MOST_BYTES: u64 = 256 * 1024;

/// The content of a report.
#[derive(Debug, Clone)]
pub(super) enum ReportContent {
    /// A report about its bootstrap.
    Boot(Box<BootstrapReport>),
    /// A report about what it serves.
    Serves(Box<NodeStatus>),
    /// A report that cannot be understood, with the reason.
    Not(String),
}

/// One report.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) role: String,
    pub(super) instance: String,
    /// When the bucket received it, because a node's clock may be wrong.
    pub(super) received_at: Timestamp,
    pub(super) content: ReportContent,
}

/// A report that could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) key: String,
    pub(super) why: String,
}

/// All reports.
#[derive(Debug, Default)]
pub(super) struct AllReports {
    pub(super) reports: Vec<Report>,
    pub(super) unreadable: Vec<Unreadable>,
    /// How many were skipped, the oldest.
    pub(super) unread: usize,
}

/// The reports that were read before, by key, with their etags.
#[derive(Debug, Default)]
pub(crate) struct Reports(BTreeMap<String, (String, ReportContent)>);

/// Whether a machine of the cluster ever reported anything. If there are more reports than are listed, this is unknown and counts as yes.
pub(crate) async fn has_reported(cloud: &Cloud, instance: &str) -> Result<bool, CliError> {
    let listed = cloud.list("nodes/", MOST_LISTED).await?;
    let all = listed.len() < MOST_LISTED;
    Ok(!all
        || listed
            .iter()
            .filter_map(|object| report_key(&cloud.cluster, &object.key))
            .any(|report| report.instance == instance))
}

/// Where a machine has reported, however long ago.
#[derive(Debug)]
pub(crate) struct Reporter {
    /// The role in whose folder it did.
    pub(crate) role: String,
    /// The key of its report about its bootstrap.
    pub(crate) bootstrap: Option<String>,
}

/// Where a machine has reported; `None`: nowhere. `role`: its role, if that is known.
pub(crate) async fn reporter(
    cloud: &Cloud,
    role: Option<&Role>,
    instance: &str,
) -> Result<Option<Reporter>, CliError> {
    let folder = role.map_or_else(|| "nodes/".to_owned(), |role| format!("nodes/{role}/"));
    let mut found: Option<Reporter> = None;
    for object in cloud.list(&folder, MOST_LISTED).await? {
        let Some(report) = report_key(&cloud.cluster, &object.key) else { continue };
        if report.instance != instance {
            continue;
        }
        let (role, is_bootstrap) = (report.role.to_owned(), report.kind == ReportKind::Bootstrap);
        let reporter = found.get_or_insert(Reporter { role, bootstrap: None });
        if is_bootstrap {
            reporter.bootstrap = Some(object.key);
        }
    }
    Ok(found)
}

impl Reports {
    /// The last reports of all nodes.
    pub(super) async fn read_all(&mut self, cloud: &Cloud) -> Result<AllReports, CliError> {
        let mut listed = cloud.list("nodes/", MOST_LISTED).await?;
        listed.retain(|object| report_key(&cloud.cluster, &object.key).is_some());
        listed.sort_by(|one, other| other.modified.cmp(&one.modified).then_with(|| one.key.cmp(&other.key)));
        let mut heard =
            AllReports { unread: listed.len().saturating_sub(MOST_READ), ..AllReports::default() };
        listed.truncate(MOST_READ);
        let before = std::mem::take(&mut self.0);
        let reads = listed.iter().map(|object| {
            let known = before.get(&object.key).filter(|(etag, _)| *etag == object.etag);
            let known = known.map(|(_, content)| content.clone());
            let kind = report_key(&cloud.cluster, &object.key).map(|report| report.kind);
            async move {
                match (known, kind) {
                    (Some(content), _) => Some(content),
                    (None, Some(kind)) => read(cloud, object, kind).await,
                    (None, None) => None,
                }
            }
        });
        let content: Vec<Option<ReportContent>> = stream::iter(reads).buffered(AT_A_TIME).collect().await;
        for (object, content) in listed.into_iter().zip(content) {
            let (Some(report), Some(content)) = (report_key(&cloud.cluster, &object.key), content) else {
                continue;
            };
            let (role, instance) = (report.role.to_owned(), report.instance.to_owned());
            if let ReportContent::Not(why) = &content {
                heard.unreadable.push(Unreadable { key: object.key, why: why.clone() });
                continue;
            }
            let heard_at = object.modified.min(Timestamp::now());
            self.0.insert(object.key, (object.etag, content.clone()));
            heard.reports.push(Report { role, instance, received_at: heard_at, content });
        }
        Ok(heard)
    }
}

/// One report; `None` if it was deleted since it was listed.
async fn read(cloud: &Cloud, listed: &Listed, kind: ReportKind) -> Option<ReportContent> {
    if listed.size > MOST_BYTES {
        return Some(ReportContent::Not(format!("{} bytes are more than any node says", listed.size)));
    }
    let object = match cloud.assets().get(&listed.key).await {
        Ok(object) => object?,
        Err(error) => return Some(ReportContent::Not(error.to_string())),
    };
    let content = match kind {
        ReportKind::Bootstrap => parse(&object.bytes).map(|report| ReportContent::Boot(Box::new(report))),
        ReportKind::Status => parse(&object.bytes).map(|status| ReportContent::Serves(Box::new(status))),
    };
    Some(content.unwrap_or_else(ReportContent::Not))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    serde_json::from_slice(bytes).map_err(|error| match serde_json::from_slice::<Format>(bytes) {
        Ok(Format { format }) if format > 1 => {
            format!("it has the format {format}, which this slipway does not know: {error}")
        }
        Ok(_) | Err(_) => format!("{} bytes that are not a report: {error}", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_says_why() {
        let error = parse::<BootstrapReport>(br#"{"format":2,"state":"dancing"}"#).unwrap_err();
        assert!(error.contains("the format 2"), "{error}");
        let error = parse::<NodeStatus>(b"{}").unwrap_err();
        assert!(error.contains("not a report"), "{error}");
    }
}
