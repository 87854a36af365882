//! The report of a healthy machine that S3 did not take after the bootstrap. It is kept on the machine, and published with the status.

use std::path::{Path, PathBuf};

use slipway_ports::PortResult;

use crate::credentials::below;
use crate::machine::files::{self, Owner};
use crate::node_files::HOME;

fn unpublished(root: &Path) -> PathBuf {
    below(root, &format!("{HOME}/unpublished-report.json"))
}

/// Keeps a report that S3 did not take.
pub(crate) fn keep(root: &Path, report: &[u8]) {
    // If it cannot be written, the next boot reports again.
    let _ = files::write(&unpublished(root), 0o600, Owner::ROOT, report);
}

/// S3 has taken a newer report, or this one.
pub(crate) fn forget(root: &Path) {
    let _ = std::fs::remove_file(unpublished(root));
}

/// Publishes the report, if there is one. The hourly unit cannot delete the file, and publishes it again each time, which changes nothing.
pub(super) async fn publish(root: &Path, put: impl AsyncFnOnce(Vec<u8>) -> PortResult<()>) {
    let Ok(report) = std::fs::read(unpublished(root)) else { return };
    if put(report).await.is_ok() {
        forget(root);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_ports::{ErrorKind, PortError};

    use super::*;

    fn refused() -> PortError {
        let (subject, message) = ("the bucket".to_owned(), "503".to_owned());
        PortError { kind: ErrorKind::Transient, operation: "s3:PutObject", subject, message }
    }

    #[tokio::test]
    async fn p6_a_report_that_s3_did_not_take_is_published_later_until_it_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        publish(root, async |_| panic!("there is none")).await;
        std::fs::create_dir_all(below(root, HOME)).unwrap();
        keep(root, b"healthy");
        for taken in [false, true] {
            let mut told = None;
            publish(root, async |report| {
                told = Some(report);
                if taken { Ok(()) } else { Err(refused()) }
            })
            .await;
            assert_eq!(told.unwrap(), b"healthy");
        }
        publish(root, async |_| panic!("it was taken")).await;
    }
}
