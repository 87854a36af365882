//! The rollout function: takes the next safe step of a cluster's rollout and ends. It is woken by requests and approvals on the bus, by
//! CloudFormation, Auto Scaling, EC2 and Run Command, and by a tick while a rollout is open.

use std::process::ExitCode;

use serde_json::Value;
use slipway_aws::{AutoScaling, Aws, CloudFormation, EventBus, RunCommand, S3Bucket};
use slipway_flows::rollout::{
    Clock, RolloutPorts, wake_by_command, wake_by_group, wake_by_interruption, wake_by_stack, wake_or_leave,
};
use slipway_lambda::event::{Woken, woken};
use slipway_lambda::{Environment, Function, Invocation, InvocationError, environment};

struct Rollout {
    aws: Aws,
    assets: S3Bucket,
    stacks: CloudFormation,
    groups: AutoScaling,
    commands: RunCommand,
    bus: EventBus,
    variables: environment::Rollout,
}

impl Function for Rollout {
    async fn start(environment: &Environment) -> Result<Self, InvocationError> {
        let variables = environment::Rollout::read(environment)?;
        let aws = Aws::from_env().await.map_err(InvocationError::environment)?;
        let assets = aws.bucket(&variables.asset_bucket);
        let stacks = aws.stacks(&assets, &variables.cloudformation_role_arn);
        let (groups, commands) = (aws.groups(), aws.commands());
        let bus = aws.bus(&variables.bus_name);
        Ok(Self { aws, assets, stacks, groups, commands, bus, variables })
    }

    async fn handle(&self, event: Value, invocation: &Invocation) -> Result<String, InvocationError> {
        let variables = &self.variables;
        let ticks = self.aws.ticks(&variables.tick_group, &variables.tick_role_arn, &invocation.function_arn);
        let clock = || invocation.clock();
        let ports = RolloutPorts {
            assets: &self.assets,
            stacks: &self.stacks,
            groups: &self.groups,
            commands: &self.commands,
            bus: &self.bus,
            ticks: &ticks,
            clock: Clock(&clock),
        };
        let report = match woken(event)? {
            Woken::Cluster(who) => {
                invocation.about(&who.cluster);
                match wake_or_leave(&ports, &who, invocation.now).await? {
                    Ok(report) => Some(report),
                    Err(left) => return Ok(InvocationError::from(left).left_to_the_next_tick()),
                }
            }
            Woken::Stack(stack) => wake_by_stack(&ports, &stack, invocation.now).await?,
            Woken::Group(group) => wake_by_group(&ports, &group, invocation.now).await?,
            Woken::Interruption(notice) => wake_by_interruption(&ports, &notice, invocation.now).await?,
            Woken::Command(id) => wake_by_command(&ports, &id, invocation.now).await?,
            Woken::Nobody(why) => return Ok(format!("nobody is woken: {why}")),
        };
        Ok(report.map_or_else(
            || "no rollout of ours waits for that".to_owned(),
            |report| format!("{}: {}", report.state, report.message),
        ))
    }
}

fn main() -> ExitCode {
    slipway_lambda::run::<Rollout>()
}
