//! What the stack of an installation says of itself: for a person's commands, which nobody configured.

use std::collections::BTreeMap;

use slipway_ports::PortResult;

use crate::Aws;
use crate::error::{code, port_error, words};

impl Aws {
    /// The outputs of the CloudFormation stack `name`; `None` if there is no such stack. `cloudformation:DescribeStacks`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn outputs(&self, name: &str) -> PortResult<Option<BTreeMap<String, String>>> {
        let client = self.cloudformation();
        let described = match client.describe_stacks().stack_name(name).send().await {
            Ok(described) => described,
            Err(error) if crate::stacks::is_no_stack(code(&error), words(&error)) => return Ok(None),
            Err(error) => return Err(port_error("cloudformation:DescribeStacks", name, &error)),
        };
        let stack = described.stacks.unwrap_or_default().into_iter().next();
        Ok(stack.map(|stack| {
            let outputs = stack.outputs.unwrap_or_default().into_iter();
            outputs.filter_map(|output| Some((output.output_key?, output.output_value?))).collect()
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_ports::ErrorKind;

    use crate::testing::Server;

    const STACK: &str = "<DescribeStacksResponse><DescribeStacksResult><Stacks><member>\
        <StackName>slipway</StackName><StackStatus>UPDATE_COMPLETE</StackStatus>\
        <CreationTime>2026-11-20T12:00:00Z</CreationTime><Outputs>\
        <member><OutputKey>AssetBucketName</OutputKey><OutputValue>assets</OutputValue></member>\
        <member><OutputKey>SpecBucketName</OutputKey><OutputValue>specs</OutputValue></member>\
        </Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>";
    const NONE: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>\
        <Message>Stack with id slipway does not exist</Message></Error></ErrorResponse>";
    const DENIED: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
        <Message>no</Message></Error></ErrorResponse>";

    #[tokio::test]
    async fn an_installation_says_its_buckets_or_is_not_there_or_may_not_be_asked() {
        let server = Server::new(&[(200, STACK), (400, NONE), (403, DENIED)]);
        let aws = server.aws();
        let outputs = aws.outputs("slipway").await.unwrap().unwrap();
        assert_eq!(outputs["AssetBucketName"], "assets");
        assert_eq!(outputs["SpecBucketName"], "specs");
        assert_eq!(aws.outputs("slipway").await.unwrap(), None);
        let error = aws.outputs("slipway").await.unwrap_err();
        assert_eq!((error.kind, error.operation), (ErrorKind::Denied, "cloudformation:DescribeStacks"));
        assert!(server.requests()[0].body.contains("StackName=slipway"));
    }
}
