#!/usr/bin/env python3
"""Turns a SAM template into the plain CloudFormation that AWS would make of it, on stdout as JSON.

    tests/scripts/lint-venv.sh
    .tools/lint/bin/python tests/scripts/transform.py infra/template.yaml [Parameter=value ...]

It runs the translator that CloudFormation itself runs for `Transform: AWS::Serverless-2016-10-31`, pinned in
tests/requirements-lint.txt, offline. Only local code paths are replaced, as the translator wants packaged code.
Intrinsics stay as they are (`{"Ref": ...}`), parameters keep their defaults unless given.
"""

import json
import os
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.parser.parser import Parser  # noqa: E402
from samtranslator.public.exceptions import InvalidDocumentException  # noqa: E402
from samtranslator.translator.transform import transform  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

PACKAGED = "s3://code/function.zip"


class NoManagedPolicies:
    """The template attaches no managed policy by name, so none need be fetched from IAM."""

    def load(self):
        return {}


def translate(text, parameters):
    """The plain template, as a dict, for a SAM template's text and the given parameter values."""
    template = yaml_parse(text)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = PACKAGED
    known = template.get("Parameters", {})
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise SystemExit(f"unknown parameters {unknown}; the template has {sorted(known)}")
    for name, value in parameters.items():
        known[name]["Default"] = value
    return transform(template, dict(parameters), NoManagedPolicies(), passthrough_metadata=True)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    parameters = dict(argument.split("=", 1) for argument in sys.argv[2:])
    try:
        plain = translate(text, parameters)
    except InvalidDocumentException as error:
        raise SystemExit("\n".join([error.message, *(cause.message for cause in error.causes)])) from error
    json.dump(plain, sys.stdout, indent=1, sort_keys=True, default=str)
    print()


if __name__ == "__main__":
    main()
