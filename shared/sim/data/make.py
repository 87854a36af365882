#!/usr/bin/env python3
"""Make the update rules and resource types out of AWS' own resource schemas, as cfn-lint's wheel carries them.

    shared/sim/data/make.py [WHEEL]       write shared/sim/data/resource-types.json and shared/plan/data/update-rules.json
    shared/sim/data/make.py --check [WHEEL]   write nothing; fail if a file differs from what would be written

Without WHEEL the pinned one is fetched from PyPI with pip. Its digest is verified either way, so the same bytes come
out on every machine.
"""

import ast
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

VERSION = "1.58.0"
SHA256 = "9d9f06043160756a6158f5c3f92a44ce38254b1c578127461608305bc8262987"
REGION = "us-east-1"

HERE = pathlib.Path(__file__).resolve().parent
TYPES_FILE = HERE / "resource-types.json"
RULES_FILE = HERE.parents[1] / "plan" / "data" / "update-rules.json"

TYPES = {
    "AWS::AutoScaling": ["AutoScalingGroup", "LifecycleHook"],
    "AWS::EC2": [
        "EIP", "InternetGateway", "LaunchTemplate", "NatGateway", "Route", "RouteTable", "SecurityGroup",
        "SecurityGroupEgress", "SecurityGroupIngress", "Subnet", "SubnetRouteTableAssociation", "VPC",
        "VPCEndpoint", "VPCGatewayAttachment", "Volume",
    ],
    "AWS::ElasticLoadBalancingV2": ["Listener", "LoadBalancer", "TargetGroup"],
    "AWS::Events": ["Rule"],
    "AWS::IAM": ["InstanceProfile", "ManagedPolicy", "OIDCProvider", "Policy", "Role", "RolePolicy"],
    "AWS::KMS": ["Alias", "Key"],
    "AWS::Route53": ["HostedZone", "RecordSet", "RecordSetGroup"],
    "AWS::S3": ["Bucket", "BucketPolicy"],
    "AWS::SSM": ["Parameter"],
}

# What the schemas leave out and the CloudFormation template reference says, property by property
# (docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-….html, "Update requires").
CREATE_ONLY_TOO = {
    # "Name … Update requires: Replacement"; the schema has it in the primary identifier alone.
    "AWS::Route53::RecordSet": ["Name"],
}
# "Update requires: Updates are not supported": an update of these fails.
NOT_UPDATABLE = {
    "AWS::EC2::Volume": ["AvailabilityZone", "Encrypted", "KmsKeyId", "OutpostArn", "SnapshotId"],
    "AWS::KMS::Key": ["KeySpec", "KeyUsage", "MultiRegion", "Origin"],
}

# Of a schema and, recursively, of a property: what decides whether a value is accepted.
KEPT = {
    "$ref", "additionalProperties", "anyOf", "const", "dependentExcluded", "dependentRequired", "enum",
    "enumCaseInsensitive", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "oneOf",
    "pattern", "patternProperties", "properties", "required", "requiredOr", "requiredXor", "type", "uniqueItems",
}
MAPS_OF_SCHEMAS = {"properties", "patternProperties"}


def all_property_types(source: str) -> set[str]:
    """The types of which Fn::GetAtt gives every property, not only the read-only ones."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_all_property_types":
            return set(ast.literal_eval(node.value))
    raise SystemExit("the wheel no longer says which types give every property")


def wheel(argument: str | None) -> pathlib.Path:
    """The pinned wheel, verified."""
    if argument:
        path = pathlib.Path(argument)
    else:
        folder = tempfile.mkdtemp(prefix="slipway-cfn-lint-")
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"cfn-lint=={VERSION}"],
            check=True,
        )
        path = next(pathlib.Path(folder).glob("*.whl"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path.name}: SHA-256 is {digest}, pinned is {SHA256}")
    return path


def pruned(schema):
    """`schema` without descriptions and whatever else decides nothing."""
    if isinstance(schema, list):
        return [pruned(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "dependencies":
            key = "dependentRequired"
        if key not in KEPT:
            continue
        if key in MAPS_OF_SCHEMAS:
            out[key] = {name: pruned(inner) for name, inner in value.items()}
        elif key in ("items", "anyOf", "oneOf"):
            out[key] = pruned(value)
        else:
            out[key] = value
    return out


def used_definitions(node, definitions, found):
    """The definitions that `node` reaches."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix("#/definitions/")
            if name not in found:
                found[name] = pruned(definitions[name])
                used_definitions(found[name], definitions, found)
        for value in node.values():
            used_definitions(value, definitions, found)
    elif isinstance(node, list):
        for value in node:
            used_definitions(value, definitions, found)
    return found


def paths(pointers) -> list[str]:
    """`/properties/A/B` as `A.B`, sorted."""
    return sorted(pointer.removeprefix("/properties/").replace("/", ".") for pointer in pointers or [])


def resource(name: str, schema: dict) -> dict:
    """What the simulator keeps of a type's schema."""
    out = pruned(schema)
    definitions = used_definitions(out, schema.get("definitions", {}), {})
    out["definitions"] = definitions
    out["createOnly"] = sorted(set(paths(schema.get("createOnlyProperties"))) | set(CREATE_ONLY_TOO.get(name, [])))
    out["conditionalCreateOnly"] = paths(schema.get("conditionalCreateOnlyProperties"))
    out["notUpdatable"] = NOT_UPDATABLE.get(name, [])
    out["readOnly"] = paths(schema.get("readOnlyProperties"))
    out["writeOnly"] = paths(schema.get("writeOnlyProperties"))
    out["primaryIdentifier"] = [p.removeprefix("/properties/") for p in schema["primaryIdentifier"]]
    out["deleteThenCreate"] = schema.get("replacementStrategy") == "delete_then_create"
    tagging = schema.get("tagging") or {}
    taggable = tagging.get("taggable", schema.get("taggable", True))
    tag_property = tagging.get("tagProperty", "/properties/Tags").removeprefix("/properties/")
    updatable = taggable and tagging.get("tagUpdatable", True) and tag_property in schema["properties"]
    out["tagProperty"] = tag_property if updatable else None
    return out


def main() -> None:
    arguments = sys.argv[1:]
    check = "--check" in arguments
    rest = [argument for argument in arguments if argument != "--check"]
    types, rules = {}, {}
    with zipfile.ZipFile(wheel(rest[0] if rest else None)) as archive:
        index = json.loads(archive.read(f"cfnlint/data/schemas/providers/{REGION}.json"))
        everything = all_property_types(archive.read("cfnlint/schema/_getatts.py").decode())
        for service, names in TYPES.items():
            for short in names:
                name = f"{service}::{short}"
                schema = json.loads(archive.read(f"cfnlint/data/schemas/resources/{index[name]}.json"))
                types[name] = resource(name, schema)
                types[name]["everyPropertyIsAttribute"] = name in everything
                rules[name] = {
                    "always": types[name]["createOnly"],
                    "conditional": types[name]["conditionalCreateOnly"],
                }
    source = f"cfn-lint {VERSION}"
    outputs = {
        TYPES_FILE: json.dumps({"source": source, "types": types}, sort_keys=True, separators=(",", ":")) + "\n",
        RULES_FILE: json.dumps({"source": source, "types": rules}, sort_keys=True, indent=1) + "\n",
    }
    stale = [path for path, text in outputs.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        raise SystemExit("differs from what make.py makes: " + ", ".join(path.name for path in stale))
    if not check:
        for path, text in outputs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    print(", ".join(f"{path.name} {len(text)} bytes" for path, text in outputs.items()))


if __name__ == "__main__":
    main()
