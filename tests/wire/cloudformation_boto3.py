#!/usr/bin/env python3
"""A second client on the simulated CloudFormation and Scheduler: boto3, which parses answers by AWS' own models.

    tests/wire/cloudformation_boto3.py http://127.0.0.1:5001

Lives through a whole life: change set, execution, events, update with replacement, a failed export change, deletion;
and a schedule. Needs an empty world whose clock runs fast. Exits with an error at the first thing that is not as AWS
has it.
"""

import json
import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
SETTINGS = {
    "endpoint_url": ENDPOINT,
    "region_name": "eu-central-1",
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
    "config": Config(retries={"max_attempts": 1}),
}
cloudformation = boto3.client("cloudformation", **SETTINGS)
scheduler = boto3.client("scheduler", **SETTINGS)


def template(subnet: str, tags: int = 0, export: bool = True) -> str:
    resources = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": subnet},
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {"RoleName": "wire", "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
        },
    }
    if tags:
        resources["Vpc"]["Properties"]["Tags"] = [{"Key": f"k{n}", "Value": "<&>"} for n in range(tags)]
    outputs = {"Subnet": {"Value": {"Ref": "Subnet"}}}
    if export:
        outputs["Subnet"]["Export"] = {"Name": "wire-subnet"}
    return json.dumps({"Description": "a & b < c", "Resources": resources, "Outputs": outputs})


def refused(code: str, words: str, call, **arguments) -> None:
    try:
        call(**arguments)
    except ClientError as error:
        told = error.response["Error"]
        assert told["Code"] == code, told
        assert words in told["Message"], told
        return
    raise AssertionError(f"{call.__name__} was not refused")


def change_set(stack: str, name: str, kind: str, body: str, **more) -> dict:
    cloudformation.create_change_set(
        StackName=stack, ChangeSetName=name, ChangeSetType=kind, TemplateBody=body,
        Capabilities=["CAPABILITY_NAMED_IAM"], **more,
    )
    for _ in range(600):
        told = cloudformation.describe_change_set(StackName=stack, ChangeSetName=name, IncludePropertyValues=True)
        if told["Status"] in ("CREATE_COMPLETE", "FAILED"):
            return told
        assert told["Status"] in ("CREATE_PENDING", "CREATE_IN_PROGRESS"), told["Status"]
        time.sleep(0.01)
    raise AssertionError("the change set was never made")


def until(stack: str, status: str) -> dict:
    for _ in range(1_200):
        told = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        if told["StackStatus"] == status:
            return told
        assert told["StackStatus"].endswith("_IN_PROGRESS"), told
        time.sleep(0.01)
    raise AssertionError(f"{stack} never came to {status}")


def life() -> None:
    body = template("10.0.0.0/24")
    refused("InsufficientCapabilitiesException", "[CAPABILITY_NAMED_IAM]", cloudformation.create_change_set,
            StackName="wire", ChangeSetName="first", ChangeSetType="CREATE", TemplateBody=body)
    told = change_set("wire", "first", "CREATE", body, Tags=[{"Key": "team", "Value": "a b+c"}], OnStackFailure="ROLLBACK")
    assert told["ExecutionStatus"] == "AVAILABLE" and told["OnStackFailure"] == "ROLLBACK", told
    assert [one["ResourceChange"]["Action"] for one in told["Changes"]] == ["Add"] * 3, told["Changes"]
    assert until("wire", "REVIEW_IN_PROGRESS")["StackName"] == "wire"
    cloudformation.execute_change_set(StackName="wire", ChangeSetName="first", ClientRequestToken="token-1")
    stack = until("wire", "CREATE_COMPLETE")
    assert stack["Description"] == "a & b < c" and stack["Tags"] == [{"Key": "team", "Value": "a b+c"}], stack
    assert stack["Outputs"][0]["ExportName"] == "wire-subnet", stack
    cloudformation.get_waiter("stack_create_complete").wait(StackName="wire", WaiterConfig={"Delay": 1})
    resources = cloudformation.describe_stack_resources(StackName="wire")["StackResources"]
    subnet = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in resources}["Subnet"]
    assert subnet.startswith("subnet-") and subnet == stack["Outputs"][0]["OutputValue"], resources

    refused("ValidationError", "already exists", cloudformation.create_change_set,
            StackName="wire", ChangeSetName="again", ChangeSetType="CREATE", TemplateBody=body,
            Capabilities=["CAPABILITY_NAMED_IAM"])
    same = change_set("wire", "same", "UPDATE", body, Tags=[{"Key": "team", "Value": "a b+c"}])
    assert same["Status"] == "FAILED" and "didn't contain changes" in same["StatusReason"], same
    cloudformation.delete_change_set(StackName="wire", ChangeSetName="same")

    told = change_set("wire", "second", "UPDATE", template("10.0.1.0/24", tags=2))
    changes = {one["ResourceChange"]["LogicalResourceId"]: one["ResourceChange"] for one in told["Changes"]}
    assert changes["Subnet"]["Replacement"] == "True" and changes["Vpc"]["Replacement"] == "False", changes
    target = changes["Subnet"]["Details"][0]["Target"]
    assert (target["BeforeValue"], target["AfterValue"]) == ("10.0.0.0/24", "10.0.1.0/24"), target
    assert target["RequiresRecreation"] == "Always" and target["Path"] == "/Properties/CidrBlock", target
    assert changes["Vpc"]["Scope"] == ["Tags"], changes["Vpc"]
    cloudformation.execute_change_set(ChangeSetName=told["ChangeSetId"])
    until("wire", "UPDATE_COMPLETE")
    refused("InvalidChangeSetStatus", "EXECUTE_COMPLETE", cloudformation.execute_change_set,
            StackName="wire", ChangeSetName="second")

    events = [event for page in cloudformation.get_paginator("describe_stack_events").paginate(StackName="wire")
              for event in page["StackEvents"]]
    assert events[0]["ResourceStatus"] == "UPDATE_COMPLETE" and events[-1]["ResourceStatus"] == "REVIEW_IN_PROGRESS"
    assert all(left["Timestamp"] >= right["Timestamp"] for left, right in zip(events, events[1:]))
    gone = [event for event in events if event["ResourceStatus"] == "DELETE_COMPLETE"]
    assert [event["PhysicalResourceId"] for event in gone] == [subnet], gone
    assert any(event.get("ClientRequestToken") == "token-1" for event in events)

    user = json.dumps({"Resources": {"Route": {"Type": "AWS::EC2::SubnetRouteTableAssociation", "Properties": {
        "RouteTableId": "rtb-1", "SubnetId": {"Fn::ImportValue": "wire-subnet"}}}}})
    cloudformation.create_stack(StackName="user", TemplateBody=user)
    until("user", "CREATE_COMPLETE")
    assert [one["Name"] for one in cloudformation.list_exports()["Exports"]] == ["wire-subnet"]
    cloudformation.update_stack(StackName="wire", TemplateBody=template("10.0.1.0/24", export=False),
                                Capabilities=["CAPABILITY_NAMED_IAM"])
    until("wire", "UPDATE_ROLLBACK_COMPLETE")
    reasons = [event.get("ResourceStatusReason", "") for event in
               cloudformation.describe_stack_events(StackName="wire")["StackEvents"]]
    assert "Export wire-subnet cannot be deleted as it is in use by user" in reasons, reasons

    refused("ValidationError", "Unrecognized resource types: [AWS::Foo::Bar]", cloudformation.validate_template,
            TemplateBody=json.dumps({"Resources": {"A": {"Type": "AWS::Foo::Bar"}}}))
    refused("ValidationError", "not modelled", cloudformation.describe_type, TypeName="AWS::EC2::VPC", Type="RESOURCE")
    drift()
    refused("ChangeSetNotFound", "does not exist", cloudformation.describe_change_set,
            StackName="wire", ChangeSetName="none")
    told = cloudformation.get_template(StackName="wire")["TemplateBody"]
    assert told["Resources"]["Subnet"]["Properties"]["CidrBlock"] == "10.0.1.0/24", told

    for name in ("user", "wire"):
        stack_id = cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        cloudformation.delete_stack(StackName=name)
        until(stack_id, "DELETE_COMPLETE")
        refused("ValidationError", "does not exist", cloudformation.describe_stacks, StackName=name)
    deleted = cloudformation.list_stacks(StackStatusFilter=["DELETE_COMPLETE"])["StackSummaries"]
    assert {one["StackName"] for one in deleted} == {"user", "wire"}, deleted


def drift() -> None:
    """Nothing was changed by hand here, which AWS says per resource; a detection takes a while."""
    detection = cloudformation.detect_stack_drift(StackName="wire")["StackDriftDetectionId"]
    refused("ValidationError", "already in progress", cloudformation.detect_stack_drift, StackName="wire")
    ended = time.monotonic() + 20
    while True:
        told = cloudformation.describe_stack_drift_detection_status(StackDriftDetectionId=detection)
        if told["DetectionStatus"] != "DETECTION_IN_PROGRESS":
            break
        assert told["StackDriftStatus"] == "NOT_CHECKED" and time.monotonic() < ended, told
        time.sleep(0.01)
    assert told["DetectionStatus"] == "DETECTION_COMPLETE" and told["StackDriftStatus"] == "IN_SYNC", told
    assert told["DriftedStackResourceCount"] == 0, told
    drifts = cloudformation.describe_stack_resource_drifts(StackName="wire")["StackResourceDrifts"]
    assert {one["StackResourceDriftStatus"] for one in drifts} == {"IN_SYNC"}, drifts
    subnet = next(one for one in drifts if one["LogicalResourceId"] == "Subnet")
    assert json.loads(subnet["ExpectedProperties"])["CidrBlock"] == "10.0.1.0/24", subnet
    shown = cloudformation.describe_stacks(StackName="wire")["Stacks"][0]["DriftInformation"]
    assert shown["StackDriftStatus"] == "IN_SYNC" and shown["LastCheckTimestamp"], shown


def ticks() -> None:
    made = {
        "GroupName": "slipway", "Name": "slipway-wire", "ScheduleExpression": "rate(1 minutes)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": "arn:aws:lambda:eu-central-1:123456789012:function:f",
                   "RoleArn": "arn:aws:iam::123456789012:role/r", "Input": "{}",
                   "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}},
    }
    assert scheduler.create_schedule(**made)["ScheduleArn"].endswith("schedule/slipway/slipway-wire")
    refused("ConflictException", "already exists", scheduler.create_schedule, **made)
    told = scheduler.get_schedule(GroupName="slipway", Name="slipway-wire")
    assert told["State"] == "ENABLED" and told["Target"] == made["Target"], told
    scheduler.delete_schedule(GroupName="slipway", Name="slipway-wire")
    refused("ResourceNotFoundException", "does not exist", scheduler.delete_schedule,
            GroupName="slipway", Name="slipway-wire")


life()
ticks()
print("a whole life, and a schedule: as AWS has it")
