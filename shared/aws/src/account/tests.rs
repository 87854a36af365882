//! Answers as the API references have them are read, of all pages, and a refusal names the permission.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::Server;

fn set<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    values.into_iter().collect()
}

#[tokio::test]
async fn a_refusal_of_each_service_names_the_permission() {
    let xml = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
    let ec2 = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>";
    let json = r#"{"__type": "AccessDeniedException", "Message": "no"}"#;
    let server = Server::new(&[(403, xml), (403, ec2), (400, json), (403, xml)]);
    let aws = server.aws();
    let errors = [
        aws.alarms(&["a"]).await.unwrap_err(),
        aws.vpcs().await.unwrap_err(),
        aws.quota("ec2", "L-1216C47A").await.unwrap_err(),
        aws.not_allowed("arn:role", &set(["s3:GetObject"]), &set(["*".to_owned()])).await.unwrap_err(),
    ];
    let told: Vec<_> = errors.iter().map(|error| (error.kind, error.operation)).collect();
    assert_eq!(
        told,
        [
            (ErrorKind::Denied, "cloudwatch:DescribeAlarms"),
            (ErrorKind::Denied, "ec2:DescribeVpcs"),
            (ErrorKind::Denied, "servicequotas:GetServiceQuota"),
            (ErrorKind::Denied, "iam:SimulatePrincipalPolicy"),
        ]
    );
    assert!(errors[0].message.contains("req-1"), "{}", errors[0].message);
    // Each is signed for its own service; IAM's for the region of its only endpoint.
    for (request, scope) in server.requests().iter().zip([
        "eu-west-1/monitoring/aws4_request",
        "eu-west-1/ec2/aws4_request",
        "eu-west-1/servicequotas/aws4_request",
        "us-east-1/iam/aws4_request",
    ]) {
        let signature = request.headers.iter().find(|header| header.starts_with("authorization: ")).unwrap();
        assert!(signature.contains(scope), "{signature}");
    }
}

#[tokio::test]
async fn a_quota_without_a_granted_value_has_the_default() {
    let none = r#"{"__type": "NoSuchResourceException", "Message": "no"}"#;
    let default = r#"{"Quota": {"QuotaName": "Running On-Demand Standard instances", "Value": 5.0, "UsageMetric": {
        "MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricStatisticRecommendation": "Maximum",
        "MetricDimensions": {"Class": "Standard/OnDemand", "Resource": "vCPU", "Service": "EC2", "Type": "Resource"}}}}"#;
    let points = "<R><GetMetricStatisticsResult><Datapoints><member><Maximum>8.0</Maximum></member>\
                  <member><Maximum>12.0</Maximum></member></Datapoints></GetMetricStatisticsResult></R>";
    let server = Server::new(&[(400, none), (200, default), (200, points), (400, none), (400, none)]);
    let aws = server.aws();
    let quota = aws.quota("ec2", "L-1216C47A").await.unwrap().unwrap();
    assert!((quota.value - 5.0).abs() < f64::EPSILON);
    let now = "2026-11-26T12:00:00.123Z".parse().unwrap();
    assert!((aws.usage(&quota.usage.unwrap(), now).await.unwrap() - 12.0).abs() < f64::EPSILON);
    assert_eq!(aws.quota("ec2", "L-0").await.unwrap(), None);
    let requests = server.requests();
    let target = |at: usize| {
        let header = requests[at].headers.iter().find(|header| header.starts_with("x-amz-target: "));
        header.unwrap().clone()
    };
    assert!(target(0).ends_with("ServiceQuotasV20190624.GetServiceQuota"));
    assert!(target(1).ends_with("ServiceQuotasV20190624.GetAWSDefaultServiceQuota"));
    let body = &requests[2].body;
    for part in
        ["StartTime=2026-11-26T11%3A45%3A00Z", "Dimensions.member.1.Name=Class", "Value=Standard%2FOnDemand"]
    {
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn all_pages_are_read() {
    let first = "<R><instanceTypeSet><item><instanceType>m7g.large</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo></item>\
                 </instanceTypeSet><nextToken>more</nextToken></R>";
    let second = "<R><instanceTypeSet><item><instanceType>m7g.xlarge</instanceType><vCpuInfo><defaultVCpus>4</defaultVCpus></vCpuInfo></item>\
                  </instanceTypeSet></R>";
    let server = Server::new(&[(200, first), (200, second)]);
    let names = set(["m7g.large", "m7g.xlarge"].map(str::to_owned));
    let vcpus = server.aws().vcpus(&names).await.unwrap();
    assert_eq!(vcpus, [("m7g.large".to_owned(), 2), ("m7g.xlarge".to_owned(), 4)].into());
    assert!(server.requests()[1].body.contains("NextToken=more"));
}

#[tokio::test]
async fn what_has_more_pages_than_are_read_is_an_error_and_not_a_part_of_it() {
    let page = "<R><vpcSet><item><vpcId>v</vpcId></item></vpcSet><nextToken>more</nextToken></R>";
    let server = Server::new(&vec![(200, page); MOST_PAGES]);
    let error = server.aws().vpcs().await.unwrap_err();
    assert!(error.message.contains("more than 100 pages"), "{error}");
    let page = "<R><SimulatePrincipalPolicyResult><IsTruncated>true</IsTruncated><Marker>m</Marker><EvaluationResults/>\
                </SimulatePrincipalPolicyResult></R>";
    let server = Server::new(&vec![(200, page); MOST_PAGES]);
    let resources = set(["*".to_owned()]);
    let error = server.aws().not_allowed("arn:role", &set(["s3:GetObject"]), &resources).await.unwrap_err();
    assert!(error.message.contains("more than 100 pages"), "{error}");
}

#[tokio::test]
async fn gateways_count_in_the_zones_of_their_subnets_unless_they_are_gone() {
    let nats = "<R><natGatewaySet><item><subnetId>a</subnetId><state>available</state></item>\
                <item><subnetId>a</subnetId><state>deleted</state></item><item><subnetId>b</subnetId><state>pending</state></item>\
                </natGatewaySet></R>";
    let subnets = "<R><subnetSet><item><subnetId>a</subnetId><availabilityZone>eu-west-1a</availabilityZone></item>\
                   <item><subnetId>b</subnetId><availabilityZone>eu-west-1b</availabilityZone></item></subnetSet></R>";
    let server = Server::new(&[(200, nats), (200, subnets)]);
    let counts = server.aws().nat_gateways().await.unwrap();
    assert_eq!(counts, [("eu-west-1a".to_owned(), 1), ("eu-west-1b".to_owned(), 1)].into());
}

#[tokio::test]
async fn a_simulation_is_read_for_each_resource() {
    // As the IAM API reference has it ("SimulatePrincipalPolicy", examples), with two resources, on two pages.
    let first = "<R><SimulatePrincipalPolicyResult><IsTruncated>true</IsTruncated><Marker>m</Marker><EvaluationResults><member>\
        <EvalActionName>s3:GetObject</EvalActionName><EvalResourceName>arn:aws:s3:::${BucketName}/${KeyName}</EvalResourceName>\
        <EvalDecision>implicitDeny</EvalDecision><ResourceSpecificResults>\
        <member><EvalResourceName>arn:aws:s3:::a/x</EvalResourceName><EvalResourceDecision>allowed</EvalResourceDecision></member>\
        <member><EvalResourceName>arn:aws:s3:::b/x</EvalResourceName><EvalResourceDecision>explicitDeny</EvalResourceDecision></member>\
        </ResourceSpecificResults></member></EvaluationResults></SimulatePrincipalPolicyResult></R>";
    let second = "<R><SimulatePrincipalPolicyResult><IsTruncated>false</IsTruncated><EvaluationResults>\
        <member><EvalActionName>ssm:ListCommands</EvalActionName><EvalResourceName>*</EvalResourceName><EvalDecision>implicitDeny</EvalDecision></member>\
        <member><EvalActionName>s3:ListBucket</EvalActionName><EvalResourceName>*</EvalResourceName><EvalDecision>allowed</EvalDecision></member>\
        </EvaluationResults></SimulatePrincipalPolicyResult></R>";
    let server = Server::new(&[(200, first), (200, second)]);
    let resources = set(["arn:aws:s3:::a/x", "arn:aws:s3:::b/x"].map(str::to_owned));
    let missing = server.aws().not_allowed("arn:role", &set(["s3:GetObject"]), &resources).await.unwrap();
    let expected = [("s3:GetObject", "arn:aws:s3:::b/x"), ("ssm:ListCommands", "*")];
    assert_eq!(missing, set(expected.map(|(action, on)| (action.to_owned(), on.to_owned()))));
    assert!(server.requests()[1].body.ends_with("&Marker=m"), "{}", server.requests()[1].body);
}

#[tokio::test]
async fn an_alarm_says_whether_it_notifies_anybody() {
    let answer = "<R><DescribeAlarmsResult><MetricAlarms><member><AlarmName>a</AlarmName><AlarmDescription>look</AlarmDescription>\
        <ActionsEnabled>true</ActionsEnabled><AlarmActions><member>arn:topic</member></AlarmActions><OKActions/>\
        <StateValue>ALARM</StateValue><StateReason>too many</StateReason></member></MetricAlarms></DescribeAlarmsResult></R>";
    let server = Server::new(&[(200, answer)]);
    let alarms = server.aws().alarms(&["a", "b"]).await.unwrap();
    let expected = InstalledAlarm {
        name: "a".to_owned(),
        description: "look".to_owned(),
        enabled: true,
        actions: vec!["arn:topic".to_owned()],
        state: "ALARM".to_owned(),
        reason: "too many".to_owned(),
    };
    assert_eq!(alarms, [expected]);
    assert!(server.requests()[0].body.contains("AlarmNames.member.2=b"));
}
