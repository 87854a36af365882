#!/usr/bin/env python3
"""Holds the roles and buckets of a plain CloudFormation template (on stdin, see transform.py) to Slipway's rules.

- No statement that allows has a wildcard in an action.
- A statement that allows on the bare resource `*` has a condition.
- No managed policy is attached: what may be done is said in the template.
- Each bucket is versioned, encrypted, private, kept, and reached by TLS alone; each queue is encrypted.
- Each function has a dead-letter queue, and each rule that wakes one too; each such queue has an alarm.
- The functions' roles name no service that only CloudFormation's may call (EC2, Auto Scaling, IAM but PassRole).

The key policy is not held to this: in it, `*` is the key itself. Prints each breach; exit status 1 if there is one.
"""

import json
import sys

CLOUDFORMATION_ALONE = ("ec2:", "autoscaling:", "elasticloadbalancing:", "route53:", "iam:")


def as_list(value):
    return value if isinstance(value, list) else [value]


def statements(document):
    """The statements of a policy document, those behind an Fn::If included."""
    for statement in as_list(document["Statement"]):
        if "Fn::If" in statement:
            yield from (branch for branch in statement["Fn::If"][1:] if "Effect" in branch)
        else:
            yield statement


def policies(resources):
    """(who, document) for each IAM policy."""
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::IAM::Role":
            for policy in properties.get("Policies", []):
                yield f"{name}/{policy['PolicyName']}", policy["PolicyDocument"]
        elif resource["Type"] in ("AWS::IAM::RolePolicy", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            yield name, properties["PolicyDocument"]


def of_type(resources, kind):
    return {name: r.get("Properties", {}) for name, r in resources.items() if r["Type"] == kind}


def queue_of(arn):
    """The logical id behind a {"Fn::GetAtt": [Queue, "Arn"]}."""
    return arn["Fn::GetAtt"][0] if isinstance(arn, dict) and "Fn::GetAtt" in arn else None


def breaches(template):
    resources = template["Resources"]

    for who, document in policies(resources):
        for statement in statements(document):
            if statement["Effect"] != "Allow":
                continue
            where = f"{who}/{statement.get('Sid', '?')}"
            for action in as_list(statement.get("Action", ["NotAction"])):
                if "*" in action or action == "NotAction":
                    yield f"{where}: action {action}"
            if "*" in as_list(statement.get("Resource", "*")) and not statement.get("Condition"):
                yield f"{where}: resource * without a condition"

    for name, role in of_type(resources, "AWS::IAM::Role").items():
        if role.get("ManagedPolicyArns"):
            yield f"{name}: attaches a managed policy"

    function_roles = set()
    watched = {
        queue_of(dimension["Value"])
        for alarm in of_type(resources, "AWS::CloudWatch::Alarm").values()
        for dimension in alarm.get("Dimensions", [])
        if dimension["Name"] == "QueueName"
    }
    for name, function in of_type(resources, "AWS::Lambda::Function").items():
        function_roles.add(function["Role"]["Fn::GetAtt"][0])
        letters = queue_of(function.get("DeadLetterConfig", {}).get("TargetArn"))
        if letters is None:
            yield f"{name}: no dead-letter queue"
        elif letters not in watched:
            yield f"{name}: no alarm on {letters}"
    for name, rule in of_type(resources, "AWS::Events::Rule").items():
        for target in rule["Targets"]:
            letters = queue_of(target.get("DeadLetterConfig", {}).get("Arn"))
            if letters is None:
                yield f"{name}: no dead-letter queue"
            elif letters not in watched:
                yield f"{name}: no alarm on {letters}"

    for who, document in policies(resources):
        if who.split("/")[0] in function_roles:
            for statement in statements(document):
                for action in as_list(statement["Action"]):
                    if action.startswith(CLOUDFORMATION_ALONE) and action != "iam:PassRole":
                        yield f"{who}/{statement.get('Sid', '?')}: a function may call {action}"

    tls_only = {
        policy["Bucket"]["Ref"]
        for policy in of_type(resources, "AWS::S3::BucketPolicy").values()
        for statement in statements(policy["PolicyDocument"])
        if statement["Effect"] == "Deny"
        and statement["Condition"].get("Bool", {}).get("aws:SecureTransport") == "false"
        and statement["Principal"] == "*"
    }
    for name, bucket in of_type(resources, "AWS::S3::Bucket").items():
        if bucket.get("VersioningConfiguration", {}).get("Status") != "Enabled":
            yield f"{name}: not versioned"
        if "BucketEncryption" not in bucket:
            yield f"{name}: not encrypted"
        block = bucket.get("PublicAccessBlockConfiguration", {})
        if len(block) != 4 or not all(block.values()):
            yield f"{name}: not private"
        if resources[name].get("DeletionPolicy") != "Retain":
            yield f"{name}: deleted with the stack"
        if name not in tls_only:
            yield f"{name}: reached without TLS"
    for name, queue in of_type(resources, "AWS::SQS::Queue").items():
        if not (queue.get("SqsManagedSseEnabled") or queue.get("KmsMasterKeyId")):
            yield f"{name}: not encrypted"
    for name in of_type(resources, "AWS::KMS::Key"):
        if resources[name].get("DeletionPolicy") != "Retain":
            yield f"{name}: deleted with the stack"
        if resources[name]["Properties"].get("EnableKeyRotation") is not True:
            yield f"{name}: not rotated"


def main():
    found = list(breaches(json.load(sys.stdin)))
    for breach in found:
        print(breach, file=sys.stderr)
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
