//! AWS' limits, checked when rendering, so that they are reported before CloudFormation fails, and with help.

mod table;

use serde_json::Value;
use table::ROWS;

use super::RenderError;

/// Bytes of a template given by its S3 URL, as Slipway always does: "1 MB", read as the smaller of its two meanings.
/// <https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html>
const BODY_BYTES: usize = 1_000_000;
/// Bytes of a template in the request itself. Not an error: larger templates only cannot be pasted by hand.
pub const INLINE_BODY_BYTES: usize = 51_200;
/// Resources of a template (same page).
const RESOURCES: usize = 500;
/// Outputs of a template (same page).
const OUTPUTS: usize = 200;
/// Parameters of a template (same page). Only patches can add any.
const PARAMETERS: usize = 200;
/// Bytes of a template's description (same page).
const DESCRIPTION_BYTES: usize = 1_024;
/// Characters of a stack's name (API reference of `CreateStack`).
const STACK_NAME_CHARACTERS: usize = 128;
/// Bytes of a node's configuration. This is Slipway's limit: the agent reads it as a whole, also on small machines.
const NODE_CONFIG_BYTES: usize = 1_000_000;
/// Bytes of user data before base64.
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html>
const USERDATA_BYTES: usize = 16 * 1024;
/// Characters of all inline policies of a role together, without white space.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html>
const INLINE_POLICY_CHARACTERS: usize = 10_240;
/// Characters of a managed policy (same page).
const MANAGED_POLICY_CHARACTERS: usize = 6_144;
/// Managed policies of a role by default (same page).
const MANAGED_POLICIES: usize = 10;
/// Characters of a role's name (same page).
const ROLE_NAME_CHARACTERS: usize = 64;
/// Tags of a resource.
/// <https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html>
const TAGS: usize = 50;
/// Rules of a security group by default.
/// <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html>
const SECURITY_GROUP_RULES: usize = 60;
/// Security groups of a network interface by default (same page).
const SECURITY_GROUPS: usize = 5;

/// All limits of AWS that the template of the stack `stack` exceeds. CloudFormation adds the `stack_tags` tags of the stack to each
/// resource.
pub(super) fn check(stack: &str, template: &Value, body_bytes: usize, stack_tags: usize) -> Vec<RenderError> {
    let mut check = Check { stack, stack_tags, errors: Vec::new() };
    check.at_most(
        "the template's size in bytes",
        body_bytes,
        BODY_BYTES,
        "have fewer of what this stack is made of",
    );
    let entries = |key: &str| template[key].as_object().map_or(0, serde_json::Map::len);
    check.at_most(
        "the number of resources",
        entries("Resources"),
        RESOURCES,
        "have fewer subnets, API endpoints or roles for service accounts",
    );
    check.at_most("the number of outputs", entries("Outputs"), OUTPUTS, "have fewer managed subnets");
    check.at_most(
        "the number of parameters",
        entries("Parameters"),
        PARAMETERS,
        "write values where they are used: nobody is there to give parameters",
    );
    check.at_most(
        "the description in bytes",
        template["Description"].as_str().map_or(0, str::len),
        DESCRIPTION_BYTES,
        "shorten the description in your patch",
    );
    check.at_most(
        "the stack's name in characters",
        stack.chars().count(),
        STACK_NAME_CHARACTERS,
        "shorten clusterName",
    );
    for (id, resource) in template["Resources"].as_object().into_iter().flatten() {
        check.resource(id, resource);
    }
    check.errors
}

/// Whether the configuration of `role`'s nodes in the stack `stack` is too large.
pub(super) fn check_config(stack: &str, role: &str, bytes: usize) -> Option<RenderError> {
    (bytes > NODE_CONFIG_BYTES).then(|| RenderError::Limit {
        stack: stack.to_owned(),
        what: format!("the configuration of {role} nodes in bytes"),
        actual: bytes,
        limit: NODE_CONFIG_BYTES,
        help: "have fewer or shorter customFiles, and fetch what is large from a bucket of your own",
    })
}

struct Check<'a> {
    stack: &'a str,
    stack_tags: usize,
    errors: Vec<RenderError>,
}

impl Check<'_> {
    fn at_most(&mut self, what: impl Into<String>, actual: usize, limit: usize, help: &'static str) {
        if actual > limit {
            let (stack, what) = (self.stack.to_owned(), what.into());
            self.errors.push(RenderError::Limit { stack, what, actual, limit, help });
        }
    }

    fn resource(&mut self, id: &str, resource: &Value) {
        let properties = &resource["Properties"];
        for row in ROWS.iter().filter(|row| resource["Type"] == row.kind) {
            let actual = properties.pointer(row.pointer).map_or(0, |value| row.measure.size(value));
            self.at_most(format!("{} of {id}", row.what), actual, row.limit, row.help);
        }
        self.at_most(
            format!("the number of tags of {id}"),
            len(&properties["Tags"]) + self.stack_tags,
            TAGS,
            "have fewer stackTags, or in a pool that is scaled automatically fewer nodeLabels and taints",
        );
        match resource["Type"].as_str().unwrap_or_default() {
            "AWS::EC2::LaunchTemplate" => self.launch_template(id, &properties["LaunchTemplateData"]),
            "AWS::IAM::Role" => self.role(id, properties),
            "AWS::IAM::ManagedPolicy" => self.at_most(
                format!("the policy {id} in characters"),
                properties["PolicyDocument"].to_string().len(),
                MANAGED_POLICY_CHARACTERS,
                "split the policy",
            ),
            "AWS::EC2::SecurityGroup" => self.at_most(
                format!("the number of rules of {id}"),
                len(&properties["SecurityGroupIngress"]),
                SECURITY_GROUP_RULES,
                "name fewer, larger ranges in apiAccessAllowedSourceCIDRs, or bring a security group",
            ),
            _ => {}
        }
    }

    fn launch_template(&mut self, id: &str, data: &Value) {
        self.at_most(
            format!("the userdata of {id} in bytes"),
            userdata_bytes(&data["UserData"]["Fn::Base64"]),
            USERDATA_BYTES,
            "shorten the cluster's name or the asset bucket's",
        );
        self.at_most(
            format!("the number of security groups of {id}"),
            len(&data["SecurityGroupIds"]),
            SECURITY_GROUPS,
            "name fewer securityGroupIds, or have the quota raised and merge them until then",
        );
        for specification in data["TagSpecifications"].as_array().into_iter().flatten() {
            self.at_most(
                format!("the number of tags of a node of {id}"),
                len(&specification["Tags"]),
                TAGS,
                "have fewer stackTags",
            );
        }
    }

    fn role(&mut self, id: &str, properties: &Value) {
        let policies = properties["Policies"].as_array().into_iter().flatten();
        self.at_most(
            format!("the inline policies of {id} in characters"),
            policies.map(|policy| policy["PolicyDocument"].to_string().len()).sum(),
            INLINE_POLICY_CHARACTERS,
            "move what the spec adds into managed policies",
        );
        self.at_most(
            format!("the number of managed policies of {id}"),
            len(&properties["ManagedPolicyArns"]),
            MANAGED_POLICIES,
            "merge some of iam.role.managedPolicies",
        );
        self.at_most(
            format!("the name of {id} in characters"),
            properties["RoleName"].as_str().map_or(0, |name| name.chars().count()),
            ROLE_NAME_CHARACTERS,
            "shorten iam.role.name, or leave it out and CloudFormation chooses",
        );
    }
}

fn len(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// Bytes of user data. An intrinsic function counts with the length of its JSON, which is longer than the id that replaces it.
fn userdata_bytes(userdata: &Value) -> usize {
    match userdata["Fn::Join"][1].as_array() {
        Some(parts) => parts.iter().map(part_bytes).sum(),
        None => part_bytes(userdata),
    }
}

fn part_bytes(part: &Value) -> usize {
    part.as_str().map_or_else(|| part.to_string().len(), str::len)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(kind: &str, properties: Value) -> Value {
        json!({ "Resources": { "Thing": { "Type": kind, "Properties": properties } } })
    }

    fn errors(template: &Value) -> Vec<RenderError> {
        check("prod-etcd", template, template.to_string().len(), 3)
    }

    fn only(template: &Value) -> String {
        let errors = errors(template);
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].to_string()
    }

    /// A property of that size.
    fn sized(measure: table::Measure, size: usize) -> Value {
        match measure {
            table::Measure::Items => Value::Array(vec![json!({}); size]),
            table::Measure::Characters => json!("ä".repeat(size)),
            // `{"a":"…"}`
            table::Measure::Document => json!({ "a": "x".repeat(size - 8) }),
        }
    }

    #[test]
    fn each_limit_of_the_table_lets_its_figure_pass_and_names_one_more_with_its_cure() {
        for row in &ROWS {
            let with = |size: usize| {
                let steps: Vec<&str> = row.pointer.split('/').skip(1).collect();
                let value = sized(row.measure, size);
                assert_eq!(row.measure.size(&value), size, "{row:?}");
                let properties = steps.iter().rev().fold(value, |below, step| json!({ *step: below }));
                one(row.kind, properties)
            };
            assert_eq!(errors(&with(row.limit)), [], "{row:?}");
            let error = only(&with(row.limit + 1));
            let figures = format!("is {}, and AWS allows {}; {}", row.limit + 1, row.limit, row.help);
            assert!(
                error.contains("prod-etcd") && error.contains("Thing") && error.ends_with(&figures),
                "{error}"
            );
        }
    }

    #[test]
    fn a_template_as_a_whole_is_measured() {
        let many = |count: usize| {
            (0..count).map(|n| (format!("P{n}"), json!({}))).collect::<serde_json::Map<_, _>>()
        };
        let parameters = |count: usize| json!({ "Resources": {}, "Parameters": many(count) });
        assert_eq!(errors(&parameters(200)), []);
        assert!(
            only(&parameters(201)).contains("the number of parameters is 201, and AWS allows 200; write")
        );
        let description = |bytes: usize| json!({ "Resources": {}, "Description": "x".repeat(bytes) });
        assert_eq!(errors(&description(1_024)), []);
        assert!(
            only(&description(1_025))
                .contains("the description in bytes is 1025, and AWS allows 1024; shorten")
        );
        let named = |length: usize| check(&"n".repeat(length), &json!({ "Resources": {} }), 2, 0);
        assert_eq!(named(128), []);
        assert!(named(129)[0].to_string().contains("is 129, and AWS allows 128; shorten clusterName"));
        let body = |bytes: usize| check("s", &json!({ "Resources": {} }), bytes, 0);
        assert_eq!(body(1_000_000), []);
        assert!(body(1_000_001)[0].to_string().contains("is 1000001, and AWS allows 1000000; have fewer"));
    }

    #[test]
    fn a_nodes_configuration_is_measured() {
        assert_eq!(check_config("prod-etcd", "etcd-0", 1_000_000), None);
        let error = check_config("prod-etcd", "etcd-0", 1_000_001).map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(
            error.contains("the configuration of etcd-0 nodes in bytes is 1000001")
                && error.contains("customFiles")
        );
    }

    #[test]
    fn the_older_limits_let_their_figure_pass_too() {
        let many = |count: usize| Value::Array(vec![json!({}); count]);
        let policy =
            |length: usize| json!({ "PolicyName": "p", "PolicyDocument": { "a": "x".repeat(length - 8) } });
        for (kind, properties) in [
            ("AWS::EC2::SecurityGroup", json!({ "SecurityGroupIngress": many(60) })),
            ("AWS::EC2::Subnet", json!({ "Tags": many(47) })),
            ("AWS::IAM::Role", json!({ "RoleName": "x".repeat(64) })),
            ("AWS::IAM::Role", json!({ "ManagedPolicyArns": many(10) })),
            ("AWS::IAM::Role", json!({ "Policies": [policy(5_120), policy(5_120)] })),
            ("AWS::IAM::ManagedPolicy", json!({ "PolicyDocument": { "a": "x".repeat(6_136) } })),
            ("AWS::EC2::LaunchTemplate", json!({ "LaunchTemplateData": { "SecurityGroupIds": many(5) } })),
            (
                "AWS::EC2::LaunchTemplate",
                json!({ "LaunchTemplateData": { "TagSpecifications": [{ "Tags": many(50) }] } }),
            ),
        ] {
            assert_eq!(errors(&one(kind, properties.clone())), [], "{kind} {properties}");
        }
    }

    #[test]
    fn userdata_may_have_16384_bytes_and_no_more() {
        let with = |bytes: usize| {
            let data = json!({ "UserData": { "Fn::Base64": "x".repeat(bytes) } });
            one("AWS::EC2::LaunchTemplate", json!({ "LaunchTemplateData": data }))
        };
        assert_eq!(errors(&with(16_384)), []);
        let error = only(&with(16_385));
        assert!(error.contains("16385") && error.contains("16384") && error.contains("shorten"), "{error}");
    }

    #[test]
    fn joined_userdata_counts_all_its_parts() {
        let parts = json!(["x".repeat(16_000), { "Fn::ImportValue": "zone" }, "y".repeat(400)]);
        let data = json!({ "UserData": { "Fn::Base64": { "Fn::Join": ["", parts] } } });
        let body = one("AWS::EC2::LaunchTemplate", json!({ "LaunchTemplateData": data }));
        assert!(only(&body).contains("userdata"));
    }

    #[test]
    fn a_roles_inline_policies_are_counted_together() {
        let policy = json!({ "PolicyName": "p", "PolicyDocument": { "Statement": "x".repeat(5_110) } });
        let two = one("AWS::IAM::Role", json!({ "Policies": [policy.clone(), policy] }));
        assert!(only(&two).contains("10240"));
    }

    #[test]
    fn a_managed_policy_may_have_6144_characters() {
        let body =
            one("AWS::IAM::ManagedPolicy", json!({ "PolicyDocument": { "Statement": "x".repeat(6_144) } }));
        assert!(only(&body).contains("6144"));
    }

    #[test]
    fn resources_and_outputs_are_counted() {
        let many = |count: usize| {
            (0..count).map(|n| (format!("R{n}"), json!({}))).collect::<serde_json::Map<_, _>>()
        };
        assert_eq!(errors(&json!({ "Resources": many(500), "Outputs": many(200) })), []);
        assert!(only(&json!({ "Resources": many(501) })).contains("501"));
        assert!(only(&json!({ "Resources": {}, "Outputs": many(201) })).contains("201"));
    }

    #[test]
    fn a_body_may_have_a_megabyte() {
        let body = json!({ "Resources": {}, "Metadata": "x".repeat(1_000_000) });
        assert!(only(&body).contains("bytes"));
    }

    #[test]
    fn rules_tags_names_and_groups_are_counted() {
        let many = |count: usize| Value::Array(vec![json!({}); count]);
        for (kind, properties) in [
            ("AWS::EC2::SecurityGroup", json!({ "SecurityGroupIngress": many(61) })),
            ("AWS::EC2::Subnet", json!({ "Tags": many(48) })),
            ("AWS::IAM::Role", json!({ "RoleName": "x".repeat(65) })),
            ("AWS::IAM::Role", json!({ "ManagedPolicyArns": many(11) })),
            ("AWS::EC2::LaunchTemplate", json!({ "LaunchTemplateData": { "SecurityGroupIds": many(6) } })),
            (
                "AWS::EC2::LaunchTemplate",
                json!({ "LaunchTemplateData": { "TagSpecifications": [{ "Tags": many(51) }] } }),
            ),
        ] {
            only(&one(kind, properties));
        }
    }
}
