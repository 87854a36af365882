//! Creates rules of EventBridge, and what they may deliver to besides functions: topics, addresses of others, state machines, buses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::DeployError;
use super::intrinsics::CreatedResource;
use super::resources::{Deployer, Props, made, policy};
use crate::client::{ACCOUNT, Client};
use crate::gateway::Principal;
use crate::iam;
use crate::operator::between;
use crate::relay::{Destination, Lent, Relay, Transformer};
use crate::router::{DeadLetters, Route};

/// The access key with which moto's Step Functions calls AWS: `tests/scripts/embedded_moto.py`.
const STATE_MACHINE: &str = "ASIASTATEMACHINE";

impl Deployer<'_> {
    /// A rule that matches everything, for observers.
    pub(super) async fn tap(&mut self, id: &str, bus: &str) -> Result<(), DeployError> {
        let pattern = json!({"source": [{"exists": true}]});
        let queue_url = self.rule_queue(id, bus, &format!("watch-{bus}"), &pattern).await?;
        self.taps.push((bus.to_owned(), queue_url));
        Ok(())
    }

    /// A rule with its own queue.
    async fn rule_queue(
        &self,
        id: &str,
        bus: &str,
        name: &str,
        pattern: &Value,
    ) -> Result<String, DeployError> {
        let queue = format!("embedded-{name}");
        let rule = json!({"Name": name, "EventBusName": bus, "EventPattern": pattern.to_string(), "State": "ENABLED"});
        self.json(id, "events", "AWSEvents.PutRule", rule).await?;
        self.json(id, "sqs", "AmazonSQS.CreateQueue", json!({"QueueName": queue})).await?;
        let targets = json!({"Rule": name, "EventBusName": bus,
                             "Targets": [{"Id": "queue", "Arn": self.arn("sqs", &queue)}]});
        self.json(id, "events", "AWSEvents.PutTargets", targets).await?;
        Ok(self.target.client.queue_url(&queue))
    }

    /// An alarm, whose properties are the parameters of `PutMetricAlarm` (CloudFormation template reference, `AWS::CloudWatch::Alarm`). Nothing
    /// measures here: it is raised only by `SetAlarmState`.
    pub(super) async fn alarm(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        let name = self.physical(id);
        let mut alarm = std::mem::take(&mut props.left);
        alarm.insert("AlarmName".to_owned(), json!(name));
        self.json(id, "monitoring", "GraniteServiceVersion20100801.PutMetricAlarm", Value::Object(alarm))
            .await?;
        Ok(made(&name, &[("Arn", &self.arn("cloudwatch", &format!("alarm:{name}")))]))
    }

    pub(super) async fn rule(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        let bus = props.take("EventBusName").and_then(|bus| bus.as_str().map(str::to_owned));
        let bus = bus.unwrap_or_else(|| "default".to_owned());
        let bus = bus.rsplit('/').next().unwrap_or_default().to_owned();
        let name = self.physical(id);
        let pattern = props.take("EventPattern").unwrap_or_default();
        if props.left.contains_key("State") {
            props.must_be("State", &json!("ENABLED"))?;
        }
        let queue_url = self.rule_queue(id, &bus, &name, &pattern).await?;
        let rest = if bus == "default" { format!("rule/{name}") } else { format!("rule/{bus}/{name}") };
        let rule_arn = self.arn("events", &rest);
        let targets = props.take("Targets").unwrap_or_default();
        let [target] = targets.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(DeployError::new(id, "exactly one target is modelled"));
        };
        let mut target = Props::new(&format!("{id}.Targets[0]"), target.clone())?;
        target.text("Id")?;
        let target_arn = target.text("Arn")?;
        let mut retry = target.nested("RetryPolicy")?;
        retry.number("MaximumRetryAttempts")?;
        retry.number("MaximumEventAgeInSeconds")?;
        retry.finish()?;
        let mut letters = target.nested("DeadLetterConfig")?;
        let dead_letters = letters.take("Arn").and_then(|arn| arn.as_str().map(str::to_owned));
        letters.finish()?;
        let dead_letters = dead_letters.map(|arn| DeadLetters { arn, policy: Vec::new() });
        if target_arn.split(':').nth(2) == Some("lambda") {
            target.finish()?;
            let (rule_arn, function_arn) = (rule_arn.clone(), target_arn);
            self.routes.push(Route { bus, rule_arn, queue_url, function_arn, dead_letters });
        } else {
            let role_arn = target.take("RoleArn").and_then(|arn| arn.as_str().map(str::to_owned));
            let role = self.roles.values().find(|role| Some(&role.arn) == role_arn.as_ref());
            let role =
                role.map(|role| Lent { trusts: role.trusts.clone(), statements: role.statements.clone() });
            let input = target.take("InputTransformer").map(|value| Transformer::new(&value)).transpose();
            let input = input.map_err(|what| DeployError::new(id, &what))?;
            target.finish()?;
            let rule_arn = rule_arn.clone();
            self.relays.push(Relay { rule_arn, queue_url, target_arn, role, input, dead_letters });
        }
        Ok(made(&name, &[("Arn", &rule_arn)]))
    }

    /// The policy of a bus of this template, or of an earlier one.
    pub(super) fn bus_policy(&mut self, props: &mut Props) -> Result<CreatedResource, DeployError> {
        let (bus, id) = (props.text("EventBusName")?, props.text("StatementId")?);
        let statements = policy(&id, &json!({ "Statement": [props.take("Statement").unwrap_or_default()] }))?;
        self.target.gateway.guard(&self.arn("events", &format!("event-bus/{bus}")), statements);
        Ok(made(&id, &[]))
    }

    pub(super) fn connection(&mut self, id: &str, props: &mut Props) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        let kind = props.text("AuthorizationType")?;
        let mut parameters = props.nested("AuthParameters")?;
        let (name, value) = match kind.as_str() {
            "API_KEY" => {
                let mut key = parameters.nested("ApiKeyAuthParameters")?;
                let header = (key.text("ApiKeyName")?, key.text("ApiKeyValue")?);
                key.finish()?;
                header
            }
            "BASIC" => {
                let mut basic = parameters.nested("BasicAuthParameters")?;
                let pair = format!("{}:{}", basic.text("Username")?, basic.text("Password")?);
                basic.finish()?;
                ("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(pair)))
            }
            other => return Err(DeployError::new(id, &format!("connections by {other} are not modelled"))),
        };
        parameters.finish()?;
        let arn = self.arn("events", &format!("connection/{}/1a2b3c4d", self.physical(id)));
        self.connections.insert(arn.clone(), (name, value));
        Ok(made(&self.physical(id), &[("Arn", &arn)]))
    }

    pub(super) fn destination(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        props.ignore("Description", "said to people");
        props.must_be("HttpMethod", &json!("POST"))?;
        props.number("InvocationRateLimitPerSecond")?;
        let (connection, url) = (props.text("ConnectionArn")?, props.text("InvocationEndpoint")?);
        let header = self.connections.get(&connection).cloned();
        let header = header.ok_or_else(|| DeployError::new(id, &format!("no connection {connection}")))?;
        let arn = self.arn("events", &format!("api-destination/{}/1a2b3c4d", self.physical(id)));
        self.destinations.insert(arn.clone(), Destination { url, header });
        Ok(made(&self.physical(id), &[("Arn", &arn)]))
    }

    pub(super) async fn topic(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        let (shown, key) = (props.text("DisplayName")?, props.text("KmsMasterKeyId")?);
        let name = self.physical(id);
        let asked = [
            ("Name", name.as_str()),
            ("Attributes.entry.1.key", "DisplayName"),
            ("Attributes.entry.1.value", &shown),
            ("Attributes.entry.2.key", "KmsMasterKeyId"),
            ("Attributes.entry.2.value", &key),
        ];
        let answer = self.sns(id, "CreateTopic", &asked).await?;
        let arn = between(&answer, "<TopicArn>").to_owned();
        self.target.gateway.encrypt(&arn, &key);
        Ok(made(&arn, &[("TopicArn", &arn), ("TopicName", &name)]))
    }

    pub(super) fn topic_policy(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        let statements = policy(id, &props.take("PolicyDocument").unwrap_or_default())?;
        for topic in props.take("Topics").as_ref().and_then(Value::as_array).into_iter().flatten() {
            self.target.gateway.guard(topic.as_str().unwrap_or_default(), statements.clone());
        }
        Ok(made(id, &[]))
    }

    pub(super) async fn subscription(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        let (topic, protocol, endpoint) =
            (props.text("TopicArn")?, props.text("Protocol")?, props.text("Endpoint")?);
        let asked = [("TopicArn", topic.as_str()), ("Protocol", &protocol), ("Endpoint", &endpoint)];
        let answer = self.sns(id, "Subscribe", &asked).await?;
        Ok(made(between(&answer, "<SubscriptionArn>"), &[]))
    }

    async fn sns(&self, id: &str, action: &str, asked: &[(&str, &str)]) -> Result<String, DeployError> {
        let answer = self.target.client.query("sns", Client::SNS, action, asked).await;
        answer.map_err(|source| DeployError::Create { place: id.to_owned(), source })
    }

    /// moto runs it. Its calls come to the gateway, with the access key that belongs to its role.
    pub(super) async fn state_machine(
        &mut self,
        id: &str,
        props: &mut Props,
    ) -> Result<CreatedResource, DeployError> {
        props.must_be("StateMachineType", &json!("STANDARD"))?;
        let role_arn = props.text("RoleArn")?;
        let mut definition = props.text("DefinitionString")?;
        let substitutions = props.take("DefinitionSubstitutions");
        for (name, value) in substitutions.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            definition = definition.replace(&format!("${{{name}}}"), &value);
        }
        let role = self.roles.values().find(|role| role.arn == role_arn);
        let role = role.ok_or_else(|| DeployError::new(id, "its role does not exist"))?;
        if !iam::trusts(&role.trusts, "states.amazonaws.com", ACCOUNT) {
            return Err(DeployError::new(id, "its role does not trust states.amazonaws.com"));
        }
        let (name, statements) = (self.physical(id), role.statements.clone());
        let principal = Principal { name: name.clone(), arn: role_arn.clone(), statements };
        self.target.gateway.know(STATE_MACHINE, principal);
        let asked = self.target.client.state_machines_call(self.target.gateway.url(), STATE_MACHINE).await;
        asked.map_err(|source| DeployError::Create { place: id.to_owned(), source })?;
        let request = json!({"name": name, "definition": definition, "roleArn": role_arn});
        let answer = self.json(id, "states", "AWSStepFunctions.CreateStateMachine", request).await?;
        let arn = answer["stateMachineArn"].as_str().unwrap_or_default();
        Ok(made(arn, &[("Arn", arn), ("Name", &name)]))
    }
}
