//! What is refused, and with which message.

use serde_json::json;

use super::*;

fn refused(template: &Value) -> String {
    world().create_stack(&request("s", template)).unwrap_err().to_string()
}

fn with(resource: Value) -> Value {
    json!({"Resources": {"Thing": resource}})
}

#[track_caller]
fn assert_refused(template: &Value, words: &str) {
    let error = refused(template);
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_template_cannot_pass_by_being_ignored() {
    assert_refused(
        &with(json!({"Type": "AWS::Foo::Bar"})),
        "Template format error: Unrecognized resource types: [AWS::Foo::Bar]",
    );
    assert_refused(
        &with(json!({"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "X": 1}})),
        "[/Resources/Thing/Properties/X] Encountered unsupported property X",
    );
    assert_refused(
        &with(json!({"Type": "AWS::EC2::Subnet", "Properties": {"CidrBlock": "10.0.0.0/24"}})),
        "required key [VpcId] not found",
    );
    assert_refused(
        &with(json!({"Type": "AWS::EC2::VPC", "Colour": 1})),
        "Invalid template resource property 'Colour'",
    );
    assert_refused(
        &with(json!({"Type": "AWS::EC2::VPC", "UpdatePolicy": {}})),
        "UpdatePolicy of a resource is not modelled",
    );
    assert_refused(&json!({"Resources": {}}), "At least one Resources member must be defined.");
    assert_refused(
        &json!({"Resources": {"A-b": {"Type": "AWS::EC2::VPC"}}}),
        "Resource name A-b is non alphanumeric.",
    );
    assert_refused(&json!({"Mappings": {}, "Resources": {}}), "Mappings is not modelled");
    assert_refused(&json!({"Rsources": {}}), "Invalid template property or properties [Rsources]");
    assert_refused(
        &with(
            json!({"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "{{resolve:ssm:x}}"}}),
        ),
        "dynamic reference",
    );
    assert_refused(
        &with(
            json!({"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": {"Fn::Foo": 1}}}),
        ),
        "Fn::Foo is not a function",
    );
    let asked = StackRequest {
        template: Some(TemplateSource { body: "Resources:\n  A: 1".to_owned(), from_url: false }),
        ..request("s", &json!({}))
    };
    assert!(
        world()
            .create_stack(&asked)
            .unwrap_err()
            .message
            .contains("JSON not well-formed. (line 1, column 1)")
    );
}

#[test]
fn references_must_lead_somewhere() {
    let vpc_of = |value: Value| {
        with(
            json!({"Type": "AWS::EC2::InternetGateway", "Properties": {"Tags": [{"Key": "a", "Value": value}]}}),
        )
    };
    let unresolved = "Unresolved resource dependencies [Gone] in the Resources block of the template";
    assert_refused(&vpc_of(json!({"Ref": "Gone"})), unresolved);
    assert_refused(&vpc_of(json!({"Fn::GetAtt": ["Gone", "Arn"]})), unresolved);
    assert_refused(&vpc_of(json!({"Fn::Sub": "x-${Gone}"})), unresolved);
    assert_refused(&with(json!({"Type": "AWS::EC2::InternetGateway", "DependsOn": "Gone"})), unresolved);
    assert_refused(
        &vpc_of(json!({"Fn::GetAtt": ["Thing", "Colour"]})),
        "resource Thing does not support attribute type Colour in Fn::GetAtt",
    );
    let mut outputs = vpc_of(json!("x"));
    outputs["Outputs"] = json!({"O": {"Value": {"Ref": "Gone"}}});
    assert_refused(&outputs, "[Gone] in the Outputs block of the template");
    outputs["Outputs"] = json!({"O": {"Value": "x", "Export": {"Name": {"Ref": "Thing"}}}});
    assert_refused(&outputs, "The Name field of Export must not depend on any resources");
}

#[test]
fn a_circle_is_named_without_what_only_hangs_on_it() {
    let group = |to: &str| json!({"Type": "AWS::EC2::InternetGateway", "DependsOn": to});
    assert_refused(
        &json!({"Resources": {"A": group("B"), "B": group("A"), "C": group("A")}}),
        "Circular dependency between resources: [A, B]",
    );
    assert_refused(&json!({"Resources": {"A": group("A")}}), "Circular dependency between resources: [A]");
}

#[test]
fn limits_are_aws_limits() {
    let many = |count: usize| -> Value {
        let one = json!({"Type": "AWS::EC2::InternetGateway"});
        json!({"Resources": (0..count).map(|n| (format!("R{n}"), one.clone())).collect::<serde_json::Map<_, _>>()})
    };
    assert_refused(&many(501), "Number of resources, 501, is greater than maximum allowed, 500");
    assert!(world().create_stack(&request("s", &many(500))).is_ok());
    let mut outputs = many(1);
    outputs["Outputs"] = (0..201).map(|n| (format!("O{n}"), json!({"Value": "x"}))).collect();
    assert_refused(&outputs, "Number of outputs, 201, is greater than maximum allowed, 200");

    let sized = |bytes: usize, from_url: bool| {
        let body = many(1).to_string();
        let body = format!("{body}{}", " ".repeat(bytes - body.len()));
        let asked =
            StackRequest { template: Some(TemplateSource { body, from_url }), ..request("s", &json!({})) };
        world().create_stack(&asked).map_err(|error| error.message)
    };
    assert!(sized(51_200, false).is_ok());
    assert!(sized(51_201, false).unwrap_err().contains("less than or equal to 51200"));
    assert!(sized(1_000_000, true).is_ok());
    assert!(sized(1_000_001, true).is_err());
}

#[test]
fn iam_must_be_acknowledged() {
    let role = |name: Option<&str>| {
        let mut properties = json!({"AssumeRolePolicyDocument": {}});
        if let Some(name) = name {
            properties["RoleName"] = json!(name);
        }
        with(json!({"Type": "AWS::IAM::Role", "Properties": properties}))
    };
    let ask = |template: &Value, capabilities: &[&str]| {
        let capabilities = capabilities.iter().map(|one| (*one).to_owned()).collect();
        let asked = StackRequest { capabilities, ..request("s", template) };
        world().create_change_set("c", ChangeSetKind::Create, None, &asked).map_err(|error| error.to_string())
    };
    let needs =
        |name: &str| Some(format!("InsufficientCapabilitiesException: Requires capabilities : [{name}]"));
    assert_eq!(ask(&role(None), &[]).err(), needs("CAPABILITY_IAM"));
    assert_eq!(ask(&role(Some("r")), &["CAPABILITY_IAM"]).err(), needs("CAPABILITY_NAMED_IAM"));
    assert!(ask(&role(None), &["CAPABILITY_IAM"]).is_ok());
    assert!(ask(&role(Some("r")), &["CAPABILITY_NAMED_IAM"]).is_ok());
}

#[test]
fn a_name_that_is_taken_is_refused_by_its_service() {
    let role = with(
        json!({"Type": "AWS::IAM::Role", "Properties": {"RoleName": "r", "AssumeRolePolicyDocument": {}}}),
    );
    let mut world = world();
    create(&mut world, "one", &role);
    create(&mut world, "two", &role);
    assert_eq!(status(&world, "two"), "ROLLBACK_COMPLETE");
    assert!(story(&mut world, "two").iter().any(|line| line.contains("identifier 'r' already exists")));
}

#[test]
fn a_wrong_order_in_a_vpc_shows() {
    let route = |depends: Value| {
        json!({"Resources": {
            "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
            "Gateway": {"Type": "AWS::EC2::InternetGateway"},
            "Attachment": {"Type": "AWS::EC2::VPCGatewayAttachment", "Properties": {
                "VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}}},
            "Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
            "Route": {"Type": "AWS::EC2::Route", "DependsOn": depends, "Properties": {
                "RouteTableId": {"Ref": "Table"}, "GatewayId": {"Ref": "Gateway"},
                "DestinationCidrBlock": "0.0.0.0/0"}},
        }})
    };
    let mut world = world();
    create(&mut world, "good", &route(json!(["Attachment"])));
    assert_eq!(status(&world, "good"), "CREATE_COMPLETE");
    create(&mut world, "bad", &route(json!([])));
    assert_eq!(status(&world, "bad"), "ROLLBACK_COMPLETE");
    assert!(story(&mut world, "bad").iter().any(|line| line.contains("belong to different networks")));
    create(&mut world, "outside", &network("10.0.0.0/16", "10.1.0.0/24"));
    assert_eq!(status(&world, "outside"), "ROLLBACK_COMPLETE");
}

#[test]
fn userdata_beyond_ec2s_limit_is_refused() {
    let template = |bytes: usize| {
        with(json!({"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": {
            "UserData": {"Fn::Base64": "x".repeat(bytes)}}}}))
    };
    let mut world = world();
    create(&mut world, "fits", &template(16_384));
    create(&mut world, "bursts", &template(16_385));
    assert_eq!(
        (status(&world, "fits"), status(&world, "bursts")),
        ("CREATE_COMPLETE".into(), "ROLLBACK_COMPLETE".into())
    );
}

#[test]
fn calls_can_be_throttled_and_denied() {
    let mut world = world();
    world.throttle("DescribeStacks", 1);
    world.deny("CreateStack", 1);
    assert_eq!(world.stacks(None).unwrap_err().code, "Throttling");
    assert!(world.stacks(None).unwrap().is_empty());
    assert_eq!(world.create_stack(&request("s", &json!({}))).unwrap_err().http_status, 403);
    assert_eq!((world.calls()["DescribeStacks"], world.faults_pending()), (2, false));
}

#[test]
fn stacks_and_change_sets_must_be_there() {
    let mut world = world();
    let template = network("10.0.0.0/16", "10.0.0.0/24");
    let error =
        world.create_change_set("c", ChangeSetKind::Update, None, &request("s", &template)).unwrap_err();
    assert_eq!(error.to_string(), "ValidationError: Stack [s] does not exist");
    create(&mut world, "s", &template);
    let error =
        world.create_change_set("c", ChangeSetKind::Create, None, &request("s", &template)).unwrap_err();
    assert!(
        error.message.contains("Stack [s] already exists and cannot be created again with the changeSet [c]")
    );
    let error = world.change_set(Some("s"), "c").unwrap_err();
    assert_eq!((error.code, error.http_status), ("ChangeSetNotFound", 404));
    assert_eq!(world.create_stack(&request("s", &template)).unwrap_err().code, "AlreadyExistsException");
    let mut other = template.clone();
    other["Resources"]["Group"] = json!({"Type": "AWS::EC2::InternetGateway"});
    make(&mut world, "s", "c", ChangeSetKind::Update, &request("s", &other)).unwrap();
    let change_set = world.change_set(Some("s"), "c").unwrap().1.clone();
    assert!(
        change_set.reason.unwrap().contains("modifies resource type of the following resources: [Group]")
    );
}

#[test]
fn intrinsic_functions_come_to_what_aws_makes_of_them() {
    let value = |expression: Value| {
        let mut world = world();
        let mut template = with(json!({"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}}));
        template["Parameters"] = json!({"P": {"Type": "String", "Default": "p"}, "L": {"Type": "CommaDelimitedList", "Default": "a, b"}});
        template["Conditions"] =
            json!({"Yes": {"Fn::Equals": [{"Ref": "P"}, "p"]}, "No": {"Fn::Not": [{"Condition": "Yes"}]}});
        template["Outputs"] = json!({"O": {"Value": expression}});
        create(&mut world, "s", &template);
        assert_eq!(status(&world, "s"), "CREATE_COMPLETE");
        world.live("s").unwrap().outputs["O"].value.clone()
    };
    assert_eq!(value(json!({"Fn::Sub": "${AWS::Region}-${P}-${!P}"})), "eu-central-1-p-${P}");
    assert_eq!(value(json!({"Fn::Sub": ["${X}-${P}", {"X": {"Ref": "AWS::StackName"}}]})), "s-p");
    assert!(value(json!({"Fn::Sub": "${Thing.AllocationId}"})).starts_with("eipalloc-0"));
    assert_eq!(value(json!({"Fn::Join": ["-", {"Ref": "L"}]})), "a-b");
    assert_eq!(value(json!({"Fn::Select": [1, {"Fn::Split": [".", "x.y.z"]}]})), "y");
    assert_eq!(value(json!({"Fn::Select": ["2", {"Fn::GetAZs": ""}]})), "eu-central-1c");
    assert_eq!(value(json!({"Fn::Select": [1, {"Fn::Cidr": ["10.0.0.0/16", 2, 8]}]})), "10.0.1.0/24");
    assert_eq!(value(json!({"Fn::Base64": "slip"})), "c2xpcA==");
    assert_eq!(value(json!({"Fn::If": ["No", "x", "y"]})), "y");
    assert_eq!(
        value(json!({"Fn::Join": [",", ["a", {"Fn::If": ["Yes", {"Ref": "AWS::NoValue"}, "b"]}]]})),
        "a"
    );
}

#[test]
fn pages_hold_what_they_are_told_to_hold() {
    let mut world = World::new(Config { page_size: 5, ..Config::default() });
    create(&mut world, "net", &network("10.0.0.0/16", "10.0.0.0/24"));
    let (_, page, next) = world.events("net", 0).unwrap();
    assert_eq!((page.len(), next), (5, Some(5)));
    assert_eq!(page[0].status, "CREATE_COMPLETE");
    assert_eq!(page[0].logical_id, "net");
    let (_, page, next) = world.events("net", 10).unwrap();
    assert_eq!((page.len(), next), (2, None));
}
