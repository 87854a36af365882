//! The single endpoint of the embedded AWS: it identifies the caller, checks IAM, counts calls, injects faults, and forwards.
//!
//! moto checks no permissions. So every function signs with its own access key, and the gateway checks each call against the policies of
//! the function's role *in the template*: a missing permission fails here as in AWS. Unknown callers (the harness, a person's AWS CLI)
//! count as the operator, who may do everything.

mod account;
mod fleet;
mod identify;
mod needs;
mod prices;
mod refuse;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use slipway_core::node::{MachineArns, is_instance};
use slipway_sim::ports::SharedWorld;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::bell::Bell;
use crate::client::{ACCOUNT, Client, ClientError};
use crate::iam::{self, Decision, Request, Statement};
use crate::observe::{Call, Observed, Observer};
use fleet::Fleet;
use identify::{Identified, identify};

pub use refuse::Refusal;

/// The name of every caller that is not one of our functions.
pub const OPERATOR: &str = "operator";

/// Below this path the simulated CloudFormation reads templates without a signature. Its caller's permission was checked when the caller
/// passed the `TemplateURL`.
const FOR_CLOUDFORMATION: &str = "/for-cloudformation";

/// The running gateway. Dropping this value stops it.
#[derive(Debug)]
pub struct Gateway {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    moto: String,
    region: String,
    observer: Observer,
    rules: RwLock<Rules>,
    faults: Mutex<Vec<Fault>>,
    /// Quotas that AWS has granted, by their codes.
    quotas: Mutex<BTreeMap<String, f64>>,
    /// Rung after every call that may have published an event.
    bell: Bell,
}

#[derive(Debug, Default)]
struct Rules {
    /// The endpoints of services, or of single actions, that moto does not serve.
    upstreams: BTreeMap<String, String>,
    /// The machines and groups whose tags conditions refer to.
    fleet: Fleet,
    /// By access key.
    principals: BTreeMap<String, Principal>,
    /// Policies of buckets, keys and queues, by ARN.
    resources: BTreeMap<String, Vec<Statement>>,
    /// Alias ARN to key ARN.
    aliases: BTreeMap<String, String>,
    /// ARNs of keys, by the ARNs of the topics that they encrypt.
    encrypted: BTreeMap<String, String>,
    /// Buckets whose events go to EventBridge.
    telling: BTreeSet<String>,
}

/// A caller with its own access key.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The name of the function, or the id of the machine.
    pub name: String,
    /// The ARN of its role, or of the user.
    pub arn: String,
    /// The permissions of its role.
    pub statements: Vec<Statement>,
}

/// A fault that a test injects.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The caller; `None`: any caller.
    pub caller: Option<String>,
    /// The action, with `*` and `?` as in IAM.
    pub action: String,
    /// Part of the resource's ARN; empty: any.
    pub resource: String,
    /// How often it happens; `None`: until it is cleared.
    pub times: Option<u32>,
    /// The effect.
    pub effect: Effect,
}

/// The effect of a [`Fault`] on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The call gets an error, and has no effect.
    Refuse(Refusal),
    /// The call gets no answer and has no effect: for killing a function before the call.
    StallBefore,
    /// The call takes effect and gets no answer: for killing a function after the call.
    StallAfter,
    /// The answer is delayed by this many milliseconds.
    Delay(u32),
}

impl Gateway {
    /// Listens on a free loopback port, in front of moto.
    ///
    /// # Errors
    /// If no port is available.
    pub async fn start(moto: &str, region: &str, observer: Observer) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            http: slipway_sim::wire::client(),
            moto: moto.to_owned(),
            region: region.to_owned(),
            observer,
            rules: RwLock::default(),
            faults: Mutex::default(),
            // As AWS raises it for an account that is in use: the default is for one machine or two.
            quotas: Mutex::new([("L-1216C47A".to_owned(), 64.0)].into()),
            bell: Bell::default(),
        });
        let app = axum::Router::new()
            .fallback(handle)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(%error, "the gateway ended");
            }
        });
        Ok(Self { url, shared, server })
    }

    /// `http://127.0.0.1:<port>`, for `AWS_ENDPOINT_URL`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// An S3 from which CloudFormation may read templates.
    #[must_use]
    pub fn templates_url(&self) -> String {
        format!("{}{FOR_CLOUDFORMATION}", self.url)
    }

    /// The bell that rings after every call that may have published an event.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.shared.bell.clone()
    }

    /// Forwards the calls of `what` (a service's signing name, or one action, `ssm:SendCommand`) to `url` instead of moto.
    pub fn serve_elsewhere(&self, what: &str, url: &str) {
        self.rules(|rules| rules.upstreams.insert(what.to_owned(), url.to_owned()));
    }

    /// Forwards the services of a simulated world to it, and from now on checks conditions against the tags of its groups and machines.
    pub fn serve_by_world(&self, world: SharedWorld, url: &str) {
        for what in ["cloudformation", "scheduler", "autoscaling", "elasticloadbalancing"] {
            self.serve_elsewhere(what, url);
        }
        // Load balancers of other clusters are moto's.
        let moto = self.shared.moto.clone();
        self.serve_elsewhere("elasticloadbalancing:DescribeLoadBalancers", &moto);
        for operation in fleet::OF_COMMANDS {
            self.serve_elsewhere(&format!("ssm:{operation}"), url);
        }
        self.rules(|rules| rules.fleet = Fleet::from_world(world));
    }

    /// From now on, the account has that much of the quota `code`.
    pub fn grant_quota(&self, code: &str, value: f64) {
        let mut quotas = self.shared.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.insert(code.to_owned(), value);
    }

    /// From now on, calls signed with `access_key` belong to `principal`.
    pub fn know(&self, access_key: &str, principal: Principal) {
        self.rules(|rules| rules.principals.insert(access_key.to_owned(), principal));
    }

    /// From now on, events about that bucket's objects go to EventBridge.
    pub fn send_events_of(&self, bucket: &str) {
        self.rules(|rules| rules.telling.insert(bucket.to_owned()));
    }

    /// What the policy of a bucket says about an unsigned call over TLS.
    #[must_use]
    pub fn anyone(&self, action: &str, resource: &str) -> Decision {
        let bucket = resource.split('/').next().unwrap_or_default();
        let context = BTreeMap::from([
            ("aws:securetransport".to_owned(), vec!["true".to_owned()]),
            ("s3:tlsversion".to_owned(), vec!["1.3".to_owned()]),
        ]);
        let request = Request { action: action.to_owned(), resource: resource.to_owned(), context };
        let rules = self.shared.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules
            .resources
            .get(bucket)
            .map_or(Decision::NotGranted, |policy| iam::decide_for(policy, "*", &request))
    }

    /// Attaches a policy to a bucket, key or queue.
    pub fn guard(&self, arn: &str, policy: Vec<Statement>) {
        self.rules(|rules| rules.resources.insert(arn.to_owned(), policy));
    }

    /// The policy that is attached to that ARN.
    #[must_use]
    pub fn policy_of(&self, arn: &str) -> Option<Vec<Statement>> {
        let rules = self.shared.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.resources.get(arn).cloned()
    }

    /// From now on, whoever publishes in that topic must be allowed to use the key.
    pub fn encrypt(&self, topic: &str, key: &str) {
        self.rules(|rules| rules.encrypted.insert(topic.to_owned(), key.to_owned()));
    }

    /// The ARN of the key that encrypts that topic.
    #[must_use]
    pub fn key_of(&self, topic: &str) -> Option<String> {
        self.shared.rules.read().unwrap_or_else(PoisonError::into_inner).encrypted.get(topic).cloned()
    }

    /// From now on, calls that name the alias concern the key.
    pub fn alias(&self, alias: &str, key: &str) {
        self.rules(|rules| rules.aliases.insert(alias.to_owned(), key.to_owned()));
    }

    /// Injects a fault from now on.
    pub fn inject(&self, fault: Fault) {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Removes all faults; calls that are stalled stay stalled.
    pub fn clear_faults(&self) {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn rules<T>(&self, change: impl FnOnce(&mut Rules) -> T) {
        change(&mut self.shared.rules.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(place) = uri.path().strip_prefix(FOR_CLOUDFORMATION) {
        return shared.read_for_cloudformation(place).await;
    }
    let fleet = shared.rules.read().unwrap_or_else(PoisonError::into_inner).fleet.clone();
    let identified = match identify(&method, &uri, &headers, &body, &fleet) {
        Ok(identified) => identified,
        Err(reason) => {
            shared.observer.record(Observed::Call(Call {
                caller: "somebody".to_owned(),
                action: format!("{method} {uri}"),
                resource: "*".to_owned(),
                status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
                refused: Some(reason.clone()),
                stalled: None,
            }));
            return refuse::NOT_MODELLED.answer("s3", "", &reason);
        }
    };
    let caller = shared.caller(&identified.access_key);
    let Some(first) = identified.needs.first().cloned() else {
        return refuse::NOT_MODELLED.answer(&identified.service, "", "the request asks for nothing");
    };
    let record = |status: StatusCode, refused: Option<String>, stalled: Option<String>| {
        shared.observer.record(Observed::Call(Call {
            caller: caller.clone(),
            action: first.action.clone(),
            resource: first.resource.clone(),
            status: status.as_u16(),
            refused,
            stalled,
        }));
    };
    let observe = |status: StatusCode, refused: Option<String>| record(status, refused, None);
    let session = || Some(identified.session.clone());
    if let Some(reason) = shared.forbidden(&identified, &caller) {
        let answer = Refusal::Denied.answer(&identified.service, &first.action, &reason);
        observe(answer.status(), Some(reason));
        return answer;
    }
    let effect = shared.fault(&caller, &first);
    match effect {
        Some(Effect::Refuse(refusal)) => {
            let reason = format!("injected fault: {refusal:?}");
            let answer = refusal.answer(&identified.service, &first.action, &reason);
            observe(answer.status(), Some(reason));
            return answer;
        }
        Some(Effect::StallBefore) => {
            let reason = "injected fault: not passed on".to_owned();
            record(StatusCode::GATEWAY_TIMEOUT, Some(reason), session());
            return std::future::pending().await;
        }
        Some(Effect::Delay(ms)) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        Some(Effect::StallAfter) | None => {}
    }
    let (status, answer) = shared.pass_on(&identified, method, &uri, headers, body).await;
    // S3 reveals that an object is missing only to callers that may list the bucket.
    if status == StatusCode::NOT_FOUND
        && first.action.starts_with("s3:GetObject")
        && let Some(reason) = shared.may_not_list(&identified, &caller, &first.resource)
    {
        let answer = Refusal::Denied.answer("s3", &first.action, &reason);
        observe(answer.status(), Some(reason));
        return answer;
    }
    let stalls = effect == Some(Effect::StallAfter);
    record(status, None, if stalls { session() } else { None });
    if shared.may_cause_event(&first) {
        shared.bell.ring();
    }
    if stalls {
        return std::future::pending().await;
    }
    answer
}

impl Shared {
    fn caller(&self, access_key: &str) -> String {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.principals.get(access_key).map_or_else(|| OPERATOR.to_owned(), |known| known.name.clone())
    }

    /// Whether EventBridge may get an event because of that call.
    fn may_cause_event(&self, need: &Request) -> bool {
        match need.action.as_str() {
            "events:PutEvents" => true,
            "s3:PutObject" | "s3:DeleteObject" => {
                let place = need.resource.strip_prefix("arn:aws:s3:::").unwrap_or(&need.resource);
                let bucket = place.split('/').next().unwrap_or_default();
                self.rules.read().unwrap_or_else(PoisonError::into_inner).telling.contains(bucket)
            }
            _ => false,
        }
    }

    /// Why the call is forbidden; `None` if it is allowed.
    fn forbidden(&self, identified: &Identified, caller: &str) -> Option<String> {
        if identified.about_nothing {
            return None;
        }
        // "No permissions are required to perform this operation" (STS API reference, GetCallerIdentity).
        if identified.needs.iter().all(|need| need.action == "sts:GetCallerIdentity") {
            return None;
        }
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let principal = rules.principals.get(&identified.access_key)?;
        // "The publisher must have kms:GenerateDataKey* and kms:Decrypt" (SNS developer guide, "Key management").
        let keys = identified.needs.iter().filter_map(|need| rules.encrypted.get(&need.resource));
        let more = keys.flat_map(|key| {
            ["kms:GenerateDataKey", "kms:Decrypt"].map(|action| needs::need(action, key.clone()))
        });
        identified.needs.iter().cloned().chain(more).find_map(|mut need| {
            if let Some(key) = rules.aliases.get(&need.resource) {
                need.resource.clone_from(key);
            }
            // "For IAM roles, the request context returns the ARN of the role, not the ARN of the user that assumed the role" (IAM user
            // guide, "AWS global condition context keys").
            need.context.insert("aws:principalarn".to_owned(), vec![principal.arn.clone()]);
            // The credentials of a machine carry its ARN, and no others do (same guide).
            if is_instance(&principal.name) {
                let machine = MachineArns::new(&self.region, ACCOUNT).arn_of(&principal.name);
                need.context.insert("ec2:sourceinstancearn".to_owned(), vec![machine]);
            }
            let because = match iam::decide(&principal.statements, &need) {
                Decision::Allowed(_) => rules.resource_objects(&need)?,
                Decision::Denied(sid) => format!("statement `{sid}` of its role denies it"),
                Decision::NotGranted => "no statement of its role grants it".to_owned(),
            };
            Some(format!(
                "{caller} is not authorized to perform {} on {}: {because}",
                need.action, need.resource
            ))
        })
    }

    fn may_not_list(&self, identified: &Identified, caller: &str, object: &str) -> Option<String> {
        let bucket = object.split('/').next().unwrap_or_default().to_owned();
        let needs =
            vec![Request { action: "s3:ListBucket".to_owned(), resource: bucket, ..Request::default() }];
        self.forbidden(&Identified { needs, ..identified.clone() }, caller)
    }

    /// The fault for this call. A call uses up one occurrence.
    fn fault(&self, caller: &str, request: &Request) -> Option<Effect> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = faults.iter_mut().find(|fault| {
            fault.times != Some(0)
                && fault.caller.as_deref().is_none_or(|wanted| wanted == caller)
                && iam::like(&fault.action, &request.action)
                && request.resource.contains(&fault.resource)
        })?;
        fault.times = fault.times.map(|times| times.saturating_sub(1));
        Some(fault.effect)
    }

    async fn read_for_cloudformation(&self, place: &str) -> Response {
        let s3 = Client::new(&self.moto, &self.region, "CLOUDFORMATION");
        match s3.s3(Method::GET, place.trim_start_matches('/'), "", Vec::new()).await {
            Ok((_, bytes)) => bytes.into_response(),
            Err(ClientError::Refused { status, body, .. }) => {
                (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), body).into_response()
            }
            Err(error @ (ClientError::Transport { .. } | ClientError::Shape { .. })) => {
                (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
            }
        }
    }

    async fn pass_on(
        &self,
        identified: &Identified,
        method: Method,
        uri: &Uri,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> (StatusCode, Response) {
        let base = {
            let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(need) = identified.needs.first() {
                let caller = rules.principals.get(&identified.access_key);
                let quotas = self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(answer) = account::answer(&need.action, caller, &rules, &quotas, &body) {
                    return (answer.status(), answer);
                }
            }
            let action = identified.needs.first().and_then(|need| rules.upstreams.get(&need.action));
            action.or_else(|| rules.upstreams.get(&identified.service)).unwrap_or(&self.moto).clone()
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        for hop in ["host", "connection", "content-length", "transfer-encoding", "expect"] {
            headers.remove(HeaderName::from_static(hop));
        }
        let sent =
            self.http.request(method.clone(), format!("{base}{path}")).headers(headers).body(body).send();
        let unreachable = |error: reqwest::Error| {
            let reason = format!("{}: {error}", identified.service);
            (StatusCode::BAD_GATEWAY, (StatusCode::BAD_GATEWAY, reason).into_response())
        };
        let response = match sent.await {
            Ok(response) => response,
            Err(error) => return unreachable(error),
        };
        let (status, mut headers) = (response.status(), response.headers().clone());
        let bytes = match response.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => return unreachable(error),
        };
        for hop in ["connection", "transfer-encoding"] {
            headers.remove(HeaderName::from_static(hop));
        }
        // A HEAD request asks for the length of a body that is not sent.
        if method != Method::HEAD {
            headers.remove(HeaderName::from_static("content-length"));
        }
        (status, (status, headers, bytes).into_response())
    }
}

impl Rules {
    /// Why the policy of the resource itself forbids a call that the caller's role allows.
    fn resource_objects(&self, need: &Request) -> Option<String> {
        let bucket_or_self = if need.action.starts_with("s3:") {
            need.resource.split('/').next().unwrap_or_default()
        } else {
            &need.resource
        };
        let policy = self.resources.get(bucket_or_self);
        if need.action.starts_with("kms:") {
            // A key's policy must first delegate to the account's IAM policies.
            let account = format!("aws:arn:aws:iam::{ACCOUNT}:root");
            return match policy.map(|policy| iam::decide_for(policy, &account, need)) {
                Some(Decision::Allowed(_)) => None,
                Some(Decision::Denied(_) | Decision::NotGranted) | None => {
                    Some("the key's policy does not let IAM decide".to_owned())
                }
            };
        }
        match iam::decide_for(policy?, "*", need) {
            Decision::Denied(sid) => Some(format!("statement `{sid}` of the resource's policy denies it")),
            Decision::Allowed(_) | Decision::NotGranted => None,
        }
    }
}
