"""What a JSON Schema says of specs, as an editor that knows it does: jsonschema's judgement, not ours.

Arguments: the schema. On stdin a JSON list of texts of YAML; prints a JSON list with the first complaint about each, or null.
"""

import json
import re
import sys

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match


class Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):
    """YAML 1.2's core schema, which editors read by: `yes` is text, `0644` a number in decimal, no dates."""

    yaml_implicit_resolvers = {}


for tag, pattern, first in [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
]:
    Loader.add_implicit_resolver("tag:yaml.org,2002:" + tag, re.compile(f"^(?:{pattern})$"), first)
Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))


def named(value):
    """Keys are text in JSON, whatever they look like."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): named(below) for key, below in value.items()}
    return [named(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    told = []
    for text in json.load(sys.stdin):
        value = json.loads(text) if text.startswith("{") else named(yaml.load(text, Loader))
        error = None if validator.is_valid(value) else best_match(validator.iter_errors(value))
        told.append(None if error is None else f"{error.json_path}: {error.message[:200]}")
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
