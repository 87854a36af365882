//! The kubelet's client certificate: the kubelet renews it while it is valid, and cannot afterwards.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use slipway_core::node::answer::KubeletRenewed;
use slipway_credentials::policy::KUBERNETES_DIR;
use tokio::time::Instant;

use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::http;
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::files;
use crate::status::client_certificates::{KUBELET_CLIENT, leaf};

/// Where a useless certificate is kept for people.
const ASIDE: &str = "/var/lib/kubelet/pki/kubelet-client-refused.pem";
const PAUSE: Duration = Duration::from_millis(250);

/// Checks the kubelet's client certificate against its date and the current authority. A useless one is put aside and the kubelet
/// restarted, which then requests another with the bootstrap token. `None` if it was valid.
pub(super) async fn renew_if_refused<C: Commands>(
    host: &Host<C>,
    patience: Duration,
) -> AgentResult<Option<KubeletRenewed>> {
    let Err(refused) = is_good(&host.root) else { return Ok(None) };
    let current = host.below(KUBELET_CLIENT);
    // It is a link to the file with certificate and key. If an earlier run died here, it is already gone.
    if fs::symlink_metadata(&current).is_ok() {
        let aside = host.below(ASIDE);
        fs::rename(&current, &aside).map_err(|error| files::failed(&aside, &error))?;
    }
    // Without the restart the kubelet would notice five minutes after the API server is back.
    host.commands.run_checked("systemctl", &["restart", "kubelet.service"]).await?;
    let begun = Instant::now();
    loop {
        match is_good(&host.root) {
            Ok(()) => break,
            Err(problem) if begun.elapsed() > patience => {
                return Err(AgentError::transient(
                    FailureCode::RefreshKubelet,
                    format!(
                        "{KUBELET_CLIENT} was not valid ({refused}), and after {} s the kubelet has no other: {problem}",
                        patience.as_secs()
                    ),
                    "see that an API server and a controller manager are healthy and accept this node's bootstrap token \
                     (`journalctl -u kubelet`), then refresh again; the new credentials are in force",
                ));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    let serial = leaf(&current).map(|facts| facts.serial).unwrap_or_default();
    Ok(Some(KubeletRenewed { refused, serial }))
}

/// Whether an API server with this node's authorities accepts the kubelet now; else why not.
fn is_good(root: &Path) -> Result<(), String> {
    let file = below(root, KUBELET_CLIENT);
    let chain = http::certificates(&file).map_err(|_| "it is missing".to_owned())?;
    let (first, rest) = chain.split_first().ok_or("it holds no certificate")?;
    let mut roots = RootCertStore::empty();
    // On a controller, kubelet-ca.pem has only the current signer; client-ca.pem has all that the API server accepts.
    let files =
        ["client-ca.pem", "kubelet-ca.pem"].map(|name| below(root, &format!("{KUBERNETES_DIR}/{name}")));
    let authority = files.iter().find(|file| file.exists()).unwrap_or(&files[1]);
    for certificate in http::certificates(authority).map_err(|failure| failure.message)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", authority.display()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), http::provider());
    let verifier = builder.build().map_err(|error| error.to_string())?;
    let seconds = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    verifier.verify_client_cert(first, rest, now).map(drop).map_err(|error| error.to_string())
}
