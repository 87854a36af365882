"""Launches rendered stacks in moto's CloudFormation and prints what EC2, IAM, Route 53 and Auto Scaling then say.

    launch_in_moto.py URL REGION ZONE_ID < [{"name": …, "template": {…}}, …]

ZONE_ID is the hosted zone that the spec names; one is made for it, named example.com. Launch templates are held against
AWS' own model of EC2, which botocore carries, and moto's IAM reads policy documents as IAM does.

What moto cannot do is left out here, and is the simulated CloudFormation's to judge:
- listeners: every balancer is an application balancer there, and has no TCP;
- lifecycle hooks, and the policy that retains instances: it keeps neither;
- the type and encryption of etcd's volumes, which its CloudFormation drops;
- the hosted zone of a balancer (`CanonicalHostedZoneID`), so a record's alias has a DNS name alone;
- policy documents as CloudFormation passes them on, which it garbles: they are put again, through IAM's own API.
"""

import json
import sys

import boto3
from botocore.validate import validate_parameters

LEFT_OUT = {"AWS::ElasticLoadBalancingV2::Listener"}
ACCOUNT = "123456789012"


def without_functions(value):
    """`value` with some text in place of what CloudFormation computes."""
    if isinstance(value, list):
        return [without_functions(one) for one in value]
    if not isinstance(value, dict):
        return value
    if any(key == "Ref" or key.startswith("Fn::") for key in value):
        return "computed"
    return {key: without_functions(one) for key, one in value.items()}


class Account:
    def __init__(self, url: str, region: str):
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        client = lambda name: boto3.client(name, endpoint_url=url, region_name=region, **keys)
        self.cloudformation, self.ec2, self.iam = client("cloudformation"), client("ec2"), client("iam")
        self.route53, self.groups, self.balancers = client("route53"), client("autoscaling"), client("elbv2")
        self.region = region

    def launch(self, name: str, template: dict) -> dict:
        """Creates a stack; its physical ids by logical id."""
        resources = {id: one for id, one in template["Resources"].items() if one["Type"] not in LEFT_OUT}
        body = json.dumps(template | {"Resources": resources})
        self.cloudformation.create_stack(StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"])
        status = self.cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        if status != "CREATE_COMPLETE":
            raise SystemExit(f"{name}: {status}")
        made = self.cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return {one["LogicalResourceId"]: one.get("PhysicalResourceId") for one in made}

    def resolved(self, value):
        """`value` with the functions computed that policies have; any other is an error."""
        if isinstance(value, list):
            return [self.resolved(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "Fn::ImportValue" in value:
            exports = self.cloudformation.list_exports()["Exports"]
            return next(one["Value"] for one in exports if one["Name"] == value["Fn::ImportValue"])
        if "Fn::Sub" in value:
            text, names = value["Fn::Sub"], {}
            if isinstance(text, list):
                text, names = text
            for name, one in (names | {"AWS::AccountId": ACCOUNT, "AWS::Region": self.region}).items():
                text = text.replace("${" + name + "}", self.resolved(one))
            if "${" in text:
                raise SystemExit(f"not resolved: {text}")
            return text
        if value == {"Ref": "AWS::AccountId"}:
            return ACCOUNT
        if any(key == "Ref" or key.startswith("Fn::") for key in value):
            raise SystemExit(f"not resolved: {value}")
        return {key: self.resolved(one) for key, one in value.items()}

    def put_policies(self, name: str, properties: dict) -> list:
        """Puts a role's documents through IAM's own API, which refuses what is no policy."""
        self.iam.update_assume_role_policy(
            RoleName=name, PolicyDocument=json.dumps(self.resolved(properties["AssumeRolePolicyDocument"]))
        )
        for policy in properties["Policies"]:
            self.iam.put_role_policy(
                RoleName=name,
                PolicyName=policy["PolicyName"],
                PolicyDocument=json.dumps(self.resolved(policy["PolicyDocument"])),
            )
        return [
            self.iam.get_role_policy(RoleName=name, PolicyName=policy["PolicyName"])["PolicyDocument"]
            for policy in properties["Policies"]
        ]

    def launch_template(self, id: str, properties: dict) -> dict:
        """What EC2 has of it; and refuses what AWS' own model of the call does not know."""
        call = self.ec2.meta.service_model.operation_model("CreateLaunchTemplate")
        model = call.input_shape.members["LaunchTemplateData"]
        validate_parameters(without_functions(properties["LaunchTemplateData"]), model)
        versions = self.ec2.describe_launch_template_versions(LaunchTemplateId=id)["LaunchTemplateVersions"]
        return versions[0]["LaunchTemplateData"]


def main(url: str, region: str, zone_id: str) -> None:
    account = Account(url, region)
    made = account.route53.create_hosted_zone(Name="example.com", CallerReference="once")["HostedZone"]["Id"]
    stacks = json.loads(sys.stdin.read().replace(zone_id, made.split("/")[-1]))
    told = {"launchTemplates": {}, "roles": {}, "records": []}
    ids = {}
    for stack in stacks:
        name, template = stack["name"], stack["template"]
        ids[name] = account.launch(name, template)
        for id, resource in template["Resources"].items():
            physical = ids[name].get(id)
            if resource["Type"] == "AWS::EC2::LaunchTemplate":
                told["launchTemplates"][f"{name}.{id}"] = account.launch_template(physical, resource["Properties"])
            elif resource["Type"] == "AWS::IAM::Role":
                told["roles"][f"{name}.{id}"] = {
                    "name": physical,
                    "path": account.iam.get_role(RoleName=physical)["Role"]["Path"],
                    "policies": account.put_policies(physical, resource["Properties"]),
                }
    told["ids"] = ids
    told["profiles"] = account.iam.list_instance_profiles()["InstanceProfiles"]
    told["securityGroups"] = account.ec2.describe_security_groups()["SecurityGroups"]
    told["volumes"] = account.ec2.describe_volumes()["Volumes"]
    told["subnets"] = account.ec2.describe_subnets()["Subnets"]
    told["groups"] = account.groups.describe_auto_scaling_groups()["AutoScalingGroups"]
    told["balancers"] = account.balancers.describe_load_balancers()["LoadBalancers"]
    for zone in account.route53.list_hosted_zones()["HostedZones"]:
        records = account.route53.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
        told["records"] += [record | {"zone": zone["Name"]} for record in records]
    json.dump(told, sys.stdout, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
