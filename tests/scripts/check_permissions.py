#!/usr/bin/env python3
"""Holds the roles and buckets of a plain CloudFormation template (on stdin, see transform.py) to Slipway's rules.

- No statement that allows has a wildcard in an action; but CloudFormation's role may look at all that is in its region.
- A statement that allows on the bare resource `*` has a condition, unless it only tells the names of zones.
- A condition asks for nothing that is absent from every call of the role: `aws:CalledVia` and its like, of a role that
  a service assumes.
- CloudFormation's role may do what AWS' own handlers of the resources that Slipway renders ask for, but for what our
  templates never make them do; and it attaches and passes only what is named.
- No managed policy is attached that is not in the template: what may be done is said there.
- Each bucket is versioned, encrypted, private, kept, and reached by TLS alone; each queue is encrypted. But anyone may
  read the two documents of each cluster's issuer, from a bucket that holds nothing else.
- Each function's events wait as long as Lambda lets them; it has a dead-letter queue, and each rule that wakes one too; each such queue has an alarm.
- The functions' roles name no service that only CloudFormation's may call (EC2, Auto Scaling, IAM), but for handing over a
  role and for what a rollout does to machines.
- Commands go to nodes of ours alone, by documents of ours alone; groups are changed by their tag alone.

The key policy is not held to this: in it, `*` is the key itself. Prints each breach; exit status 1 if there is one.
"""

import fnmatch
import functools
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What CloudFormation's service role may read, all of it, in its own region: its handlers' reads change without notice.
READS = {"ec2:Describe*", "ec2:GetSecurityGroupsForVpc", "autoscaling:Describe*", "elasticloadbalancing:Describe*"}

# What services ask of their caller though no handler's schema says so, by resource type.
ASKED_TOO = {
    # Of a balancer with security groups; unless the account's service-linked role stands in (aws-load-balancer-controller,
    # issue 3917 and pull request 3921; AWS' managed policy ElasticLoadBalancingFullAccess has it).
    "AWS::ElasticLoadBalancingV2::LoadBalancer": ["ec2:GetSecurityGroupsForVpc"],
}

# Actions that know neither resources nor conditions, and tell the names of zones.
TELL_NAMES = {"route53:ListHostedZones", "route53:ListHostedZonesByName"}

# "Not present if the service uses a service role to make a call on the principal's behalf" (IAM's list of global
# condition keys). A statement with such a condition grants a service role nothing.
ABSENT = {"aws:calledvia", "aws:calledviafirst", "aws:calledvialast", "aws:viaawsservice"}

# What handlers ask for and the templates never make them do, by what does. Patterns.
UNASKED = [
    "autoscaling:AttachTrafficSources", "autoscaling:DetachTrafficSources",  # TrafficSources
    "autoscaling:StartInstanceRefresh", "autoscaling:CancelInstanceRefresh",  # an update policy
    "autoscaling:*NotificationConfiguration",  # NotificationConfigurations
    "ec2:Get[*]",  # InstanceRequirements; the handler itself asks with a wildcard
    "ssm:Get*",  # an image by parameter: the lock pins its id
    "cloudwatch:PutMetricAlarm", "managed-fleets:*",  # AWS' own fleets
    "vpc-lattice:*",  # VPC Lattice
    "ec2:AcceptAddressTransfer", "ec2:AssociateAddress",  # an address from elsewhere; to an instance
    "ec2:*NatGatewayAddress",  # second addresses of a NAT gateway
    "ec2:AssociateSubnetCidrBlock", "ec2:DisassociateSubnetCidrBlock",  # IPv6
    "ec2:CreateVpcEncryptionControl", "ec2:ModifyVpcTenancy",  # InstanceTenancy, encryption controls
    "vpce:AllowMultiRegion",  # an endpoint of another region
    "ec2:AttachVpnGateway", "ec2:DetachVpnGateway",  # VPN gateways
    "ec2:CopyVolumes",  # SourceVolumeId
    "cognito-idp:DescribeUserPoolClient",  # listeners that authenticate
    "elasticloadbalancing:ModifyCapacityReservation", "elasticloadbalancing:ModifyIpPools",  # capacity units, IPAM
    "iam:DeleteRolePermissionsBoundary",  # no update takes a boundary off: refused on purpose, also to rollbacks (docs/upgrading.md)
    "route53:CreateQueryLoggingConfig", "route53:DeleteQueryLoggingConfig",  # QueryLoggingConfig
    "route53:UpdateHostedZoneFeatures",  # HostedZoneFeatures
]

# The longest that Lambda keeps an event it could not deliver. Nothing repeats an upload, a request or an approval.
MOST_PATIENCE_S = 21600

# What anyone may read: what an issuer is, and its public keys. And how private a bucket with these is: nothing is public
# by an ACL.
PUBLIC = {"clusters/*/.well-known/openid-configuration", "clusters/*/openid/v1/jwks"}
BLOCKS = {
    "BlockPublicAcls": True, "BlockPublicPolicy": False, "IgnorePublicAcls": True, "RestrictPublicBuckets": False,
}

CLOUDFORMATION_ALONE = ("ec2:", "autoscaling:", "elasticloadbalancing:", "route53:", "iam:")

# What functions may do of it all the same, each on what it is limited to below.
FUNCTIONS_TOO = {
    "iam:PassRole",
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:RecordLifecycleActionHeartbeat",
    "elasticloadbalancing:DescribeTargetHealth",
}

# By what a node, and a group of nodes, is known to be ours.
OURS = {
    "ssm:SendCommand": {"ssm:resourceTag/slipway:cluster": "?*"},
    "autoscaling": {"aws:ResourceTag/slipway:cluster": "?*"},
}


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
    """(who, document) for each IAM policy. One that a role attaches is that role's."""
    attached = {policy for name in of_type(resources, "AWS::IAM::Role") for policy in attaches(resources, name)}
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::IAM::Role":
            for policy in properties.get("Policies", []):
                yield f"{name}/{policy['PolicyName']}", policy["PolicyDocument"]
            for policy in attaches(resources, name):
                yield f"{name}/{policy}", resources[policy]["Properties"]["PolicyDocument"]
        elif resource["Type"] in ("AWS::IAM::RolePolicy", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy") and name not in attached:
            yield name, properties["PolicyDocument"]


def attaches(resources, role):
    """The managed policies of this template that a role attaches."""
    named = [arn.get("Ref") for arn in resources[role]["Properties"].get("ManagedPolicyArns", []) if isinstance(arn, dict)]
    return [name for name in named if resources.get(name, {}).get("Type") == "AWS::IAM::ManagedPolicy"]


def of_type(resources, kind):
    return {name: r.get("Properties", {}) for name, r in resources.items() if r["Type"] == kind}


def assumed_by(role, service):
    """Whether `service` may assume the role, and nobody else."""
    who = [statement["Principal"] for statement in statements(role["AssumeRolePolicyDocument"])]
    return bool(who) and all(principal == {"Service": service} for principal in who)


def condition_keys(statement):
    return {key.lower() for keys in statement.get("Condition", {}).values() for key in keys}


def reads_its_region(statement):
    """Whether a statement allows nothing but `READS`, in the template's own region."""
    region = statement.get("Condition", {}).get("StringEquals", {}).get("aws:RequestedRegion")
    return region == {"Ref": "AWS::Region"} and set(as_list(statement["Action"])) <= READS


@functools.cache
def handlers():
    """What AWS' handlers ask for, by resource type, as cfn-lint's wheel carries their schemas; listing left aside."""
    import cfnlint

    found = {}
    for path in (pathlib.Path(cfnlint.__file__).parent / "data" / "schemas" / "resources").glob("*.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        asked = found.setdefault(schema.get("typeName"), set())
        for verb, handler in schema.get("handlers", {}).items():
            if verb != "list":
                asked.update(handler.get("permissions", []))
    return found


@functools.cache
def rendered_types():
    """The resource types of the clusters' templates."""
    sources = (ROOT / "shared" / "render" / "src").rglob("*.rs")
    texts = (path.read_text(encoding="utf-8") for path in sources)
    return sorted({kind for text in texts for kind in re.findall(r'Resource::new\("(AWS::\w+::\w+)"\)', text)})


def shortcomings(name, granted):
    """What CloudFormation's role lacks, which is granted the actions `granted` on some resources."""
    if len(rendered_types()) < 20:
        yield f"{name}: shared/render/src names {rendered_types()} alone: is it still read aright?"
    for kind in rendered_types():
        asked = handlers().get(kind)
        if not asked:
            yield f"{name}: cfn-lint does not tell what the handler of {kind} asks for"
        for action in sorted([*(asked or []), *ASKED_TOO.get(kind, [])]):
            may = any(fnmatch.fnmatch(action.lower(), mine.lower()) for mine in granted)
            if not may and not any(fnmatch.fnmatch(action, pattern) for pattern in UNASKED):
                yield f"{name}: the handler of {kind} asks for {action}"


def queue_of(arn):
    """The logical id behind a {"Fn::GetAtt": [Queue, "Arn"]}."""
    return arn["Fn::GetAtt"][0] if isinstance(arn, dict) and "Fn::GetAtt" in arn else None


def breaches(template):
    resources = template["Resources"]
    roles = of_type(resources, "AWS::IAM::Role")
    of_cloudformation = {name for name, role in roles.items() if assumed_by(role, "cloudformation.amazonaws.com")}

    # They grant nothing, and no role may have them attached (below).
    boundaries = set(of_type(resources, "AWS::IAM::ManagedPolicy"))
    for who, document in policies(resources):
        for statement in statements(document):
            if statement["Effect"] != "Allow" or who in boundaries:
                continue
            where = f"{who}/{statement.get('Sid', '?')}"
            for action in as_list(statement.get("Action", ["NotAction"])):
                wild = "*" in action or action == "NotAction"
                if wild and not (who.split("/")[0] in of_cloudformation and reads_its_region(statement)):
                    yield f"{where}: action {action}"
            if "*" in as_list(statement.get("Resource", "*")) and not statement.get("Condition"):
                if not set(as_list(statement["Action"])) <= TELL_NAMES:
                    yield f"{where}: resource * without a condition"
            for key in sorted(condition_keys(statement) & ABSENT):
                yield f"{where}: {key} is absent from every call under a service role"
            if "iam:AttachRolePolicy" in as_list(statement.get("Action", [])):
                if statement.get("Condition", {}).get("ArnEquals", {}).get("iam:PolicyARN") != {"Ref": "ManagedPolicyArns"}:
                    yield f"{where}: attaches policies that nobody named"
            if "kms:CreateGrant" in as_list(statement.get("Action", [])):
                if statement.get("Condition", {}).get("Bool", {}).get("kms:GrantIsForAWSResource") != "true":
                    yield f"{where}: grants a key to others than AWS' services"

    for role in of_cloudformation:
        granted = set()
        for who, document in policies(resources):
            if who.split("/")[0] == role:
                for statement in statements(document):
                    granted.update(as_list(statement["Action"]) if statement["Effect"] == "Allow" else [])
        yield from shortcomings(role, granted)
    if not of_cloudformation:
        yield "no role is CloudFormation's alone"

    for role in of_cloudformation:
        for who, document in policies(resources):
            for statement in statements(document):
                if who.split("/")[0] == role and "iam:CreateRole" in as_list(statement["Action"]):
                    named = statement.get("Condition", {}).get("StringEquals", {}).get("iam:PermissionsBoundary", [])
                    if not named or not set(re.findall(r'"Ref": "(\w+)"', json.dumps(named))) <= boundaries | {"AWS::NoValue"}:
                        yield f"{who}/{statement.get('Sid', '?')}: makes roles without a boundary of this template"
    for name, role in of_type(resources, "AWS::IAM::Role").items():
        if len(role.get("ManagedPolicyArns", [])) != len(attaches(resources, name)):
            yield f"{name}: attaches a managed policy that is not of this template"

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

    for name, invocation in of_type(resources, "AWS::Lambda::EventInvokeConfig").items():
        if invocation.get("MaximumEventAgeInSeconds") != MOST_PATIENCE_S:
            yield f"{name}: a throttled event is dead before its time"

    for who, document in policies(resources):
        if who.split("/")[0] in function_roles:
            for statement in statements(document):
                where = f"{who}/{statement.get('Sid', '?')}"
                tagged = statement.get("Condition", {}).get("StringLike")
                for action in as_list(statement["Action"]):
                    if action.startswith(CLOUDFORMATION_ALONE) and action not in FUNCTIONS_TOO:
                        yield f"{where}: a function may call {action}"
                    if action.startswith("autoscaling:") and "Describe" not in action and tagged != OURS["autoscaling"]:
                        yield f"{where}: {action} on groups that are not ours"
                    if action == "ssm:SendCommand":
                        targets = [resource.get("Fn::Sub", "") for resource in as_list(statement["Resource"])]
                        documents = [t for t in targets if re.search(r":document/\$\{\w+Document\}$", t)]
                        if documents != targets and tagged != OURS["ssm:SendCommand"]:
                            yield f"{where}: commands to machines that are not ours, or by documents that are not"

    tls_only = {
        policy["Bucket"]["Ref"]
        for policy in of_type(resources, "AWS::S3::BucketPolicy").values()
        for statement in statements(policy["PolicyDocument"])
        if statement["Effect"] == "Deny"
        and statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport") == "false"
        and statement["Principal"] == "*"
    }
    public = {}
    for name, policy in of_type(resources, "AWS::S3::BucketPolicy").items():
        for statement in statements(policy["PolicyDocument"]):
            if statement["Effect"] == "Allow":
                bucket = policy["Bucket"]["Ref"]
                shown = {resource.get("Fn::Sub") for resource in as_list(statement["Resource"])}
                public[bucket] = shown
                if statement["Action"] != "s3:GetObject" or shown != {f"${{{bucket}.Arn}}/{path}" for path in PUBLIC}:
                    yield f"{name}/{statement.get('Sid', '?')}: shows more than the public keys"
    writable = {
        action
        for who, document in policies(resources)
        for statement in statements(document)
        if statement["Effect"] == "Allow"
        and any(bucket in json.dumps(statement["Resource"]) for bucket in public)
        for action in as_list(statement["Action"])
        if action.startswith("s3:Put") and not set(s["Fn::Sub"] for s in as_list(statement["Resource"])) <= set.union(*public.values())
    }
    for action in sorted(writable):
        yield f"{action} reaches beyond the public keys of a public bucket"
    for name, bucket in of_type(resources, "AWS::S3::Bucket").items():
        if bucket.get("VersioningConfiguration", {}).get("Status") != "Enabled":
            yield f"{name}: not versioned"
        if "BucketEncryption" not in bucket:
            yield f"{name}: not encrypted"
        block = bucket.get("PublicAccessBlockConfiguration", {})
        if block != (BLOCKS if name in public else dict.fromkeys(BLOCKS, True)):
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
