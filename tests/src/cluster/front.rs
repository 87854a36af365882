//! What machines reach by TLS: AWS under its own names, and the mirror. One certificate for all, by the authority that their image trusts.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State as Extract};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::{IncomingStream, Listener};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::depot::Depot;
use super::names::MIRROR;
use super::network::ROUTER;
use super::state::State;
use super::{ec2, route53};

/// A call that a machine made: for whoever wants to see what came when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCall {
    /// The machine's address.
    pub from: SocketAddr,
    /// Host and path.
    pub what: String,
    /// How it was answered.
    pub status: u16,
}

/// What it hands on to.
#[derive(Debug)]
pub struct Front {
    /// The machines.
    pub state: Arc<State>,
    /// The gateway of the embedded AWS.
    pub gateway: String,
    /// STS has no gateway: anybody may ask it.
    pub moto: String,
    /// The mirror.
    pub depot: Depot,
    /// For passing on.
    pub http: reqwest::Client,
    /// What came.
    pub seen: Mutex<Vec<MachineCall>>,
}

/// Listens at the router's address, until the task is dropped.
///
/// # Errors
/// If the port cannot be had, or the certificate is none.
pub async fn serve(front: Arc<Front>, certificate: &Path, key: &Path) -> io::Result<JoinHandle<()>> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).map_err(io::Error::other)?.collect();
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain.map_err(io::Error::other)?, key)
        .map_err(io::Error::other)?;
    let listener = Tls::listen(TcpListener::bind((ROUTER, 443)).await?, TlsAcceptor::from(Arc::new(config)));
    let app = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(front);
    Ok(tokio::spawn(async move {
        // It ends with the task.
        let _ = axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await;
    }))
}

/// Connections whose handshake is done; each has its own task for that, so that none waits for another's.
struct Tls {
    done: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl Tls {
    fn listen(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let (sender, done) = mpsc::channel(16);
        let address = listener.local_addr().unwrap_or_else(|_| (ROUTER, 443).into());
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // Nobody listens any more: nothing to do.
                        let _ = sender.send((stream, peer)).await;
                    }
                });
            }
        });
        Self { done, address }
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.done.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Tls>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Tls>) -> Self {
        Self(*stream.remote_addr())
    }
}

async fn answer(
    Extract(front): Extract<Arc<Front>>,
    ConnectInfo(Peer(from)): ConnectInfo<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().to_owned();
    let response = front.route(&host, method.clone(), &uri, headers, body.clone()).await;
    let action = form_urlencoded::parse(&body)
        .find(|(name, _)| name == "Action")
        .map(|(_, action)| format!(" {action}"));
    let what =
        format!("{method} {host}{}{}", uri.path(), action.filter(|_| uri.path() == "/").unwrap_or_default());
    let seen = MachineCall { from, what, status: response.status().as_u16() };
    front.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    response
}

impl Front {
    async fn route(
        &self,
        host: &str,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        if host == MIRROR {
            return self.depot.answer(&method, uri.path()).await;
        }
        match host.split('.').collect::<Vec<_>>()[..] {
            ["ec2", ..] => ec2::answer(&self.state, &body).await,
            ["route53", "amazonaws", "com"] => route53::answer(&self.state, &method, uri.path(), &body),
            ["sts", ..] => self.pass_on(&self.moto, method, path, headers, body).await,
            // A bucket's own name: the gateway knows paths alone.
            [bucket, "s3", ..] => {
                self.pass_on(&self.gateway, method, &format!("/{bucket}{path}"), headers, body).await
            }
            _ => self.pass_on(&self.gateway, method, path, headers, body).await,
        }
    }

    async fn pass_on(
        &self,
        to: &str,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        for hop in [
            header::HOST,
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::EXPECT,
        ] {
            headers.remove(hop);
        }
        let sent =
            self.http.request(method.clone(), format!("{to}{path}")).headers(headers).body(body).send().await;
        let answered = match sent {
            Ok(answer) => {
                let (status, headers) = (answer.status(), answer.headers().clone());
                answer.bytes().await.map(|bytes| (status, headers, bytes))
            }
            Err(error) => Err(error),
        };
        let (status, mut headers, bytes) = match answered {
            Ok(answered) => answered,
            Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        };
        for hop in ["connection", "transfer-encoding"] {
            headers.remove(HeaderName::from_static(hop));
        }
        if method != Method::HEAD {
            headers.remove(header::CONTENT_LENGTH);
        }
        (status, headers, bytes).into_response()
    }
}
