//! Creates each resource type of the template in the embedded AWS.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use serde_json::{Map, Value, json};

use super::intrinsics::CreatedResource;
use super::{DeployError, Target};
use crate::client::ACCOUNT;
use crate::gateway::Principal;
use crate::iam::{self, Statement};
use crate::lambda::{Function, Launch, Permission};
use crate::relay::{Destination, Relay};
use crate::router::Route;
use crate::tools;

/// Types that are not created, and why this hides no error.
pub(super) const RECORDED: &[(&str, &str)] = &[
    ("AWS::Logs::LogGroup", "the harness keeps what functions write, by function"),
    (
        "AWS::Logs::MetricFilter",
        "nothing measures here; cfn-lint checks it, and tests match the error types it counts",
    ),
    ("AWS::CloudWatch::Dashboard", "a page for people"),
    (
        "AWS::Scheduler::Schedule",
        "no day passes here: a test sends its input to its function, and holds its role to what that takes",
    ),
    (
        "AWS::Scheduler::ScheduleGroup",
        "the simulated Scheduler takes any group; the gateway judges the group's ARN",
    ),
];

/// IAM's limits for a managed policy, and for all inline policies of a role together. White space does not count
/// (docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const MOST_POLICY: usize = 6_144;
const MOST_INLINE: usize = 10_240;

/// Creates resources one by one, and connects them at the end.
pub(super) struct Deployer<'a> {
    pub(super) target: &'a Target<'a>,
    pub(super) region: String,
    functions: BTreeMap<String, Pending>,
    pub(super) roles: BTreeMap<String, Role>,
    queue_policies: BTreeMap<String, Vec<Statement>>,
    pub(super) policies: BTreeMap<String, Vec<Statement>>,
    pub(super) routes: Vec<Route>,
    pub(super) relays: Vec<Relay>,
    pub(super) destinations: BTreeMap<String, Destination>,
    /// Name and value of the header by which a connection signs in.
    pub(super) connections: BTreeMap<String, (String, String)>,
    pub(super) taps: Vec<(String, String)>,
    pub(super) recorded: Vec<(String, String, &'static str)>,
}

/// A role and its permissions.
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) statements: Vec<Statement>,
    pub(super) trusts: Vec<Statement>,
}

struct Pending {
    id: String,
    function: Function,
    role_arn: String,
}

/// Properties of a resource. An error is reported for every property that is not taken.
pub(super) struct Props {
    pub(super) place: String,
    pub(super) left: Map<String, Value>,
}

impl Props {
    pub(super) fn new(place: &str, value: Value) -> Result<Self, DeployError> {
        match value {
            Value::Object(left) => Ok(Self { place: place.to_owned(), left }),
            Value::Null => Ok(Self { place: place.to_owned(), left: Map::new() }),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(DeployError::new(place, &format!("an object is wanted, not {other}")))
            }
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name)
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, DeployError> {
        let value = self.take(name);
        let text = value.as_ref().and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| DeployError::new(&self.place, &format!("`{name}` must be text, is {value:?}")))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, DeployError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_u64();
        number.map(Some).ok_or_else(|| DeployError::new(&self.place, &format!("`{name}` must be a number")))
    }

    pub(super) fn nested(&mut self, name: &str) -> Result<Self, DeployError> {
        let place = format!("{}.{name}", self.place);
        Self::new(&place, self.take(name).unwrap_or_default())
    }

    /// Takes a property that makes no difference here.
    pub(super) fn ignore(&mut self, name: &str, _why: &'static str) {
        self.left.remove(name);
    }

    pub(super) fn must_be(&mut self, name: &str, wanted: &Value) -> Result<(), DeployError> {
        let value = self.take(name).unwrap_or_default();
        if value == *wanted {
            return Ok(());
        }
        Err(DeployError::new(&self.place, &format!("`{name}` is {value}; only {wanted} is modelled")))
    }

    pub(super) fn finish(self) -> Result<(), DeployError> {
        match self.left.keys().next() {
            Some(name) => Err(DeployError::new(&self.place, &format!("property `{name}` is not modelled"))),
            None => Ok(()),
        }
    }
}

pub(super) fn made(reference: &str, attributes: &[(&'static str, &str)]) -> CreatedResource {
    CreatedResource {
        reference: reference.to_owned(),
        attributes: attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
    }
}

pub(super) fn policy(place: &str, document: &Value) -> Result<Vec<Statement>, DeployError> {
    iam::parse(document).map_err(|error| DeployError::new(place, &error.to_string()))
}

impl<'a> Deployer<'a> {
    pub(super) fn new(target: &'a Target<'a>) -> Self {
        Self {
            target,
            region: target.client.region().to_owned(),
            functions: BTreeMap::new(),
            roles: BTreeMap::new(),
            queue_policies: BTreeMap::new(),
            policies: BTreeMap::new(),
            routes: Vec::new(),
            relays: Vec::new(),
            destinations: BTreeMap::new(),
            connections: BTreeMap::new(),
            taps: Vec::new(),
            recorded: Vec::new(),
        }
    }

    pub(super) async fn create(
        &mut self,
        id: &str,
        resource: &Value,
        value: Value,
    ) -> Result<CreatedResource, DeployError> {
        let kind = resource["Type"].as_str().unwrap_or_default();
        if let Some((_, why)) = RECORDED.iter().find(|(recorded, _)| *recorded == kind) {
            self.recorded.push((id.to_owned(), kind.to_owned(), why));
            let named = value["Name"].as_str().or(value["LogGroupName"].as_str());
            let name = named.map_or_else(|| self.physical(id), str::to_owned);
            let arn = match kind {
                "AWS::Scheduler::ScheduleGroup" => self.arn("scheduler", &format!("schedule-group/{name}")),
                _ => self.arn("logs", &format!("log-group:{name}:*")),
            };
            return Ok(made(&name, &[("Arn", &arn)]));
        }
        let mut props = Props::new(id, value)?;
        let created = match kind {
            "AWS::S3::Bucket" => self.bucket(id, &mut props).await?,
            "AWS::S3::BucketPolicy" => self.bucket_policy(id, &mut props)?,
            "AWS::KMS::Key" => self.key(id, &mut props).await?,
            "AWS::KMS::Alias" => self.alias(id, &mut props).await?,
            "AWS::Events::EventBus" => self.bus(id, &mut props).await?,
            "AWS::Events::Rule" => self.rule(id, &mut props).await?,
            "AWS::Events::EventBusPolicy" => self.bus_policy(&mut props)?,
            "AWS::Events::Connection" => self.connection(id, &mut props)?,
            "AWS::Events::ApiDestination" => self.destination(id, &mut props)?,
            "AWS::CloudWatch::Alarm" => self.alarm(id, &mut props).await?,
            "AWS::SNS::Topic" => self.topic(id, &mut props).await?,
            "AWS::SNS::TopicPolicy" => self.topic_policy(id, &mut props)?,
            "AWS::SNS::Subscription" => self.subscription(id, &mut props).await?,
            "AWS::StepFunctions::StateMachine" => self.state_machine(id, &mut props).await?,
            "AWS::SQS::Queue" => self.queue(id, &mut props).await?,
            "AWS::SQS::QueuePolicy" => self.queue_policy(id, &mut props)?,
            "AWS::IAM::Role" => self.role(id, &mut props)?,
            "AWS::IAM::RolePolicy" => self.role_policy(id, &mut props)?,
            "AWS::IAM::ManagedPolicy" => self.managed_policy(id, &mut props)?,
            "AWS::SSM::Document" => self.document(id, &mut props).await?,
            "AWS::Lambda::Function" => self.function(id, &resource["Metadata"], &mut props)?,
            "AWS::Lambda::Permission" => self.permission(id, &mut props)?,
            "AWS::Lambda::EventInvokeConfig" => self.event_invoke(id, &mut props)?,
            other => return Err(DeployError::new(id, &format!("type `{other}` is not modelled"))),
        };
        props.finish()?;
        Ok(created)
    }

    pub(super) fn arn(&self, service: &str, rest: &str) -> String {
        format!("arn:aws:{service}:{}:{ACCOUNT}:{rest}", self.region)
    }

    /// A name as CloudFormation would generate it.
    pub(super) fn physical(&self, id: &str) -> String {
        format!("{}-{}-1a2b3c4d5e6f", self.target.stack_name, id)
    }

    pub(super) async fn json(
        &self,
        id: &str,
        service: &str,
        target: &str,
        body: Value,
    ) -> Result<Value, DeployError> {
        let answer = self.target.client.json(service, target, body).await;
        answer.map_err(|source| DeployError::Create { place: id.to_owned(), source })
    }

    async fn s3(&self, id: &str, path: &str, query: &str, body: String) -> Result<(), DeployError> {
        let answer = self.target.client.s3(Method::PUT, path, query, body.into_bytes()).await;
        answer.map(|_| ()).map_err(|source| DeployError::Create { place: id.to_owned(), source })
    }

    async fn bucket(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let name = self.physical(id).to_lowercase();
        let place = format!(
            "<CreateBucketConfiguration><LocationConstraint>{}</LocationConstraint></CreateBucketConfiguration>",
            self.region
        );
        self.s3(id, &name, "", if self.region == "us-east-1" { String::new() } else { place }).await?;
        let mut versioning = props.nested("VersioningConfiguration")?;
        let status = versioning.text("Status")?;
        versioning.finish()?;
        let body = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        self.s3(id, &name, "versioning", body).await?;
        props.must_be(
            "BucketEncryption",
            &json!({"ServerSideEncryptionConfiguration": [
                {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}),
        )?;
        let body = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256\
                    </SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
        self.s3(id, &name, "encryption", body.to_owned()).await?;
        // All four settings, or all except those for policies: the gateway then says what a public policy allows.
        let mut block = props.nested("PublicAccessBlockConfiguration")?;
        block.must_be("BlockPublicAcls", &json!(true))?;
        block.must_be("IgnorePublicAcls", &json!(true))?;
        let by_policy = block.take("BlockPublicPolicy");
        if by_policy.as_ref().and_then(Value::as_bool).is_none()
            || block.take("RestrictPublicBuckets") != by_policy
        {
            return Err(DeployError::new(id, "a policy that is public and reaches nobody is not modelled"));
        }
        block.finish()?;
        let by_policy = by_policy == Some(Value::Bool(true));
        let body = format!(
            "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>\
             <BlockPublicPolicy>{by_policy}</BlockPublicPolicy><RestrictPublicBuckets>{by_policy}</RestrictPublicBuckets>\
             </PublicAccessBlockConfiguration>"
        );
        self.s3(id, &name, "publicAccessBlock", body).await?;
        props
            .must_be("OwnershipControls", &json!({"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}))?;
        props.ignore("LifecycleConfiguration", "no world here lives long enough to forget anything");
        if let Some(notification) = props.take("NotificationConfiguration") {
            let wanted = json!({"EventBridgeConfiguration": {"EventBridgeEnabled": true}});
            if notification != wanted {
                return Err(DeployError::new(
                    id,
                    &format!("only {wanted} is modelled of NotificationConfiguration"),
                ));
            }
            let body = "<NotificationConfiguration><EventBridgeConfiguration/></NotificationConfiguration>";
            self.s3(id, &name, "notification", body.to_owned()).await?;
            self.target.gateway.send_events_of(&name);
        }
        let regional = format!("{name}.s3.{}.amazonaws.com", self.region);
        Ok(made(
            &name,
            &[
                ("Arn", &format!("arn:aws:s3:::{name}")),
                ("DomainName", &format!("{name}.s3.amazonaws.com")),
                ("RegionalDomainName", &regional),
            ],
        ))
    }

    async fn document(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let name = props.text("Name")?;
        props.must_be("DocumentType", &json!("Command"))?;
        // A document with a custom name cannot be replaced.
        props.must_be("UpdateMethod", &json!("NewVersion"))?;
        let asked = json!({
            "Name": name,
            "Content": props.take("Content").unwrap_or_default().to_string(),
            "DocumentType": "Command",
            "DocumentFormat": "JSON",
            "TargetType": props.text("TargetType")?,
        });
        self.json(id, "ssm", "AmazonSSM.CreateDocument", asked).await?;
        Ok(made(&name, &[]))
    }

    fn bucket_policy(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let bucket = props.text("Bucket")?;
        let statements = policy(id, &props.take("PolicyDocument").unwrap_or_default())?;
        self.target.gateway.guard(&format!("arn:aws:s3:::{bucket}"), statements);
        Ok(made(&bucket, &[]))
    }

    async fn key(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let document = props.take("KeyPolicy").unwrap_or_default();
        let statements = policy(id, &document)?;
        props.must_be("EnableKeyRotation", &json!(true))?;
        props.number("PendingWindowInDays")?;
        let request = json!({"Description": props.text("Description")?, "Policy": document.to_string()});
        let answer = self.json(id, "kms", "TrentService.CreateKey", request).await?;
        let (key, arn) = (&answer["KeyMetadata"]["KeyId"], &answer["KeyMetadata"]["Arn"]);
        self.json(id, "kms", "TrentService.EnableKeyRotation", json!({"KeyId": key})).await?;
        let (key, arn) = (key.as_str().unwrap_or_default(), arn.as_str().unwrap_or_default());
        self.target.gateway.guard(arn, statements);
        Ok(made(key, &[("Arn", arn), ("KeyId", key)]))
    }

    async fn alias(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let (name, key) = (props.text("AliasName")?, props.text("TargetKeyId")?);
        let request = json!({"AliasName": name, "TargetKeyId": key});
        self.json(id, "kms", "TrentService.CreateAlias", request).await?;
        self.target.gateway.alias(&self.arn("kms", &name), &self.arn("kms", &format!("key/{key}")));
        Ok(made(&name, &[]))
    }

    async fn bus(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        let name = props.text("Name")?;
        self.json(id, "events", "AWSEvents.CreateEventBus", json!({"Name": name})).await?;
        self.tap(id, &name).await?;
        Ok(made(&name, &[("Arn", &self.arn("events", &format!("event-bus/{name}"))), ("Name", &name)]))
    }

    async fn queue(&self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let name = self.physical(id);
        let retention = props.number("MessageRetentionPeriod")?.unwrap_or(345_600).to_string();
        props.must_be("SqsManagedSseEnabled", &json!(true))?;
        let attributes = json!({"MessageRetentionPeriod": retention, "SqsManagedSseEnabled": "true"});
        let request = json!({"QueueName": name, "Attributes": attributes});
        self.json(id, "sqs", "AmazonSQS.CreateQueue", request).await?;
        let url = self.target.client.queue_url(&name);
        Ok(made(&url, &[("Arn", &self.arn("sqs", &name)), ("QueueName", &name), ("QueueUrl", &url)]))
    }

    fn queue_policy(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let statements = policy(id, &props.take("PolicyDocument").unwrap_or_default())?;
        for url in props.take("Queues").as_ref().and_then(Value::as_array).into_iter().flatten() {
            let name = url.as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            self.queue_policies.insert(self.arn("sqs", name), statements.clone());
        }
        Ok(made(id, &[]))
    }

    fn role(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        let name = self.physical(id);
        let trusts = policy(id, &props.take("AssumeRolePolicyDocument").unwrap_or_default())?;
        let (mut statements, mut length) = (Vec::new(), 0);
        for inline in props.take("Policies").as_ref().and_then(Value::as_array).into_iter().flatten() {
            length += inline["PolicyDocument"].to_string().len();
            statements.extend(policy(id, &inline["PolicyDocument"])?);
        }
        if length > MOST_INLINE {
            let what = format!("its inline policies have {length} characters, and IAM allows {MOST_INLINE}");
            return Err(DeployError::new(id, &what));
        }
        for managed in
            props.take("ManagedPolicyArns").as_ref().and_then(Value::as_array).into_iter().flatten()
        {
            let arn = managed.as_str().unwrap_or_default();
            let attached = self.policies.get(arn);
            statements
                .extend(attached.ok_or_else(|| DeployError::new(id, &format!("no policy {arn}")))?.clone());
        }
        let arn = format!("arn:aws:iam::{ACCOUNT}:role/{name}");
        self.roles.insert(name.clone(), Role { arn: arn.clone(), statements, trusts });
        Ok(made(&name, &[("Arn", &arn)]))
    }

    /// A policy that a role of the template has attached, or a permissions boundary.
    fn managed_policy(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        let path = props.text("Path")?;
        let document = props.take("PolicyDocument").unwrap_or_default();
        let length = document.to_string().len();
        if length > MOST_POLICY {
            let what = format!("its document has {length} characters, and IAM allows {MOST_POLICY}");
            return Err(DeployError::new(id, &what));
        }
        let arn = format!("arn:aws:iam::{ACCOUNT}:policy{path}{}", self.physical(id));
        self.policies.insert(arn.clone(), policy(id, &document)?);
        Ok(made(&arn, &[("PolicyArn", &arn), ("Arn", &arn)]))
    }

    fn role_policy(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let name = props.text("PolicyName")?;
        let statements = policy(id, &props.take("PolicyDocument").unwrap_or_default())?;
        let role = props.text("RoleName")?;
        let role =
            self.roles.get_mut(&role).ok_or_else(|| DeployError::new(id, &format!("no role `{role}`")))?;
        role.statements.extend(statements);
        Ok(made(&name, &[]))
    }

    fn function(
        &mut self,
        id: &str,
        metadata: &Value,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        let name = props.text("FunctionName")?;
        props.must_be("Runtime", &json!("provided.al2023"))?;
        props.must_be("Handler", &json!("bootstrap"))?;
        for (ignored, why) in [
            ("Description", "said to people"),
            ("Code", "what is packaged is built by cargo; `Metadata.BuildProperties.Binary` says which"),
            ("Architectures", "the machine here is what it is"),
            ("Tags", "nothing reads them"),
        ] {
            props.ignore(ignored, why);
        }
        let binary = metadata["BuildProperties"]["Binary"].as_str();
        let binary =
            binary.ok_or_else(|| DeployError::new(id, "Metadata.BuildProperties.Binary is not there"))?;
        let program = tools::binary(binary).map_err(|error| DeployError::new(id, &error.to_string()))?;
        let timeout_s = props.number("Timeout")?.unwrap_or(3);
        let memory_mib = props.number("MemorySize")?.unwrap_or(128);
        let concurrency = props.number("ReservedConcurrentExecutions")?;
        props.must_be("TracingConfig", &json!({"Mode": "Active"}))?;
        let mut logging = props.nested("LoggingConfig")?;
        let (format, level) = (logging.text("LogFormat")?, logging.text("ApplicationLogLevel")?);
        let (group, _) = (logging.text("LogGroup")?, logging.text("SystemLogLevel")?);
        logging.finish()?;
        let mut letters = props.nested("DeadLetterConfig")?;
        let dead_letters = letters.take("TargetArn").and_then(|arn| arn.as_str().map(str::to_owned));
        letters.finish()?;
        let mut environment = self.lambda_environment(&name, memory_mib);
        environment.insert("AWS_LAMBDA_LOG_FORMAT".to_owned(), format);
        environment.insert("AWS_LAMBDA_LOG_LEVEL".to_owned(), level);
        environment.insert("AWS_LAMBDA_LOG_GROUP_NAME".to_owned(), group);
        let variables = props.take("Environment").unwrap_or_default();
        for (key, value) in variables["Variables"].as_object().into_iter().flatten() {
            let value =
                value.as_str().ok_or_else(|| DeployError::new(id, &format!("variable {key} is not text")))?;
            environment.insert(key.clone(), value.to_owned());
        }
        environment.extend(self.target.extra_environment.clone());
        let function = Function {
            launch: Launch { function: name.clone(), program, arguments: Vec::new(), environment },
            timeout: Duration::from_secs(timeout_s),
            memory_mib,
            retries: 2,
            max_age: Duration::from_secs(21_600),
            concurrency: concurrency.and_then(|places| usize::try_from(places).ok()),
            dead_letters,
            role: Vec::new(),
            permissions: Vec::new(),
        };
        let role_arn = props.text("Role")?;
        self.functions.insert(name.clone(), Pending { id: id.to_owned(), function, role_arn });
        Ok(made(&name, &[("Arn", &self.target.lambda.arn(&name))]))
    }

    /// The environment variables that Lambda itself sets.
    fn lambda_environment(&self, name: &str, memory_mib: u64) -> BTreeMap<String, String> {
        let task_root = self.target.work_folder.display().to_string();
        let variables = [
            ("_HANDLER", "bootstrap".to_owned()),
            ("AWS_ACCESS_KEY_ID", access_key(name)),
            ("AWS_SECRET_ACCESS_KEY", "embedded".to_owned()),
            ("AWS_SESSION_TOKEN", "embedded".to_owned()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_DEFAULT_REGION", self.region.clone()),
            ("AWS_LAMBDA_FUNCTION_NAME", name.to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", memory_mib.to_string()),
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand".to_owned()),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "embedded".to_owned()),
            ("AWS_ENDPOINT_URL", self.target.gateway.url().to_owned()),
            ("LAMBDA_TASK_ROOT", task_root.clone()),
            ("LAMBDA_RUNTIME_DIR", task_root),
            ("LANG", "en_US.UTF-8".to_owned()),
            ("PATH", "/usr/local/bin:/usr/bin/:/bin".to_owned()),
            ("TZ", ":UTC".to_owned()),
        ];
        variables.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn permission(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.must_be("Action", &json!("lambda:InvokeFunction"))?;
        let (function, principal) = (props.text("FunctionName")?, props.text("Principal")?);
        let source_arn = props.take("SourceArn").and_then(|arn| arn.as_str().map(str::to_owned));
        self.pending(id, &function)?.function.permissions.push(Permission { principal, source_arn });
        Ok(made(id, &[]))
    }

    fn event_invoke(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let function = props.text("FunctionName")?;
        let (retries, age) =
            (props.number("MaximumRetryAttempts")?, props.number("MaximumEventAgeInSeconds")?);
        props.must_be("DestinationConfig", &json!({}))?;
        props.must_be("Qualifier", &json!("$LATEST"))?;
        let pending = self.pending(id, &function)?;
        pending.function.retries = retries.and_then(|retries| u32::try_from(retries).ok()).unwrap_or(2);
        pending.function.max_age = Duration::from_secs(age.unwrap_or(21_600));
        Ok(made(id, &[]))
    }

    fn pending(&mut self, id: &str, function: &str) -> Result<&mut Pending, DeployError> {
        let name = function.rsplit(':').next().unwrap_or_default();
        self.functions.get_mut(name).ok_or_else(|| DeployError::new(id, &format!("no function `{name}`")))
    }

    /// Connects functions with their roles, and rules with the policies of their queues.
    pub(super) async fn finish(&mut self) -> Result<(), DeployError> {
        self.tap("default bus", "default").await?;
        let of_routes = self.routes.iter_mut().map(|route| &mut route.dead_letters);
        let of_relays = self.relays.iter_mut().map(|relay| &mut relay.dead_letters);
        for letters in of_routes.chain(of_relays).flatten() {
            letters.policy = self.queue_policies.get(&letters.arn).cloned().unwrap_or_default();
        }
        for (name, mut pending) in std::mem::take(&mut self.functions) {
            let role = self.roles.values().find(|role| role.arn == pending.role_arn);
            let role = role.ok_or_else(|| DeployError::new(&pending.id, "its role does not exist"))?;
            let assume = iam::Request { action: "sts:AssumeRole".to_owned(), ..iam::Request::default() };
            let trust = iam::decide_for(&role.trusts, "service:lambda.amazonaws.com", &assume);
            if !matches!(trust, iam::Decision::Allowed(_)) {
                return Err(DeployError::new(&pending.id, "its role does not trust lambda.amazonaws.com"));
            }
            let statements = role.statements.clone();
            let principal =
                Principal { name: name.clone(), arn: role.arn.clone(), statements: statements.clone() };
            self.target.gateway.know(&access_key(&name), principal);
            pending.function.role = statements;
            self.target.lambda.register(pending.function);
        }
        Ok(())
    }
}

/// The access key of a function, by which the gateway recognizes its calls.
fn access_key(function: &str) -> String {
    format!("ASIA{}", function.to_uppercase().replace('-', ""))
}
