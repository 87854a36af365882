"""Holds Kubernetes objects against Kubernetes' own schemas, unknown fields refused.

Reads from the standard input {"1.37": [[where, object], ...], ...}; prints one line a finding, and at the end how many
objects it held against how many schemas. kubernetes-validate carries the schemas, so that nothing is fetched.
"""

import json
import sys

import kubernetes_validate

findings = held = 0
for version, objects in sorted(json.load(sys.stdin).items()):
    for where, one in objects:
        held += 1
        name = f"{version} {where}: {one.get('kind')} {one.get('metadata', {}).get('name')}"
        try:
            used = kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            findings += 1
            print(f"{name}: {'/'.join(map(str, error.path))}: {error.message[:300]}")
            continue
        except kubernetes_validate.SchemaNotFoundError as error:
            findings += 1
            print(f"{name}: {error.message}")
            continue
        if used != version:
            findings += 1
            print(f"{name}: held against the schemas of {used}")
print(f"held {held}, found {findings}")
sys.exit(1 if findings else 0)
