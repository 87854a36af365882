#!/usr/bin/env python3
"""Holds infra/template.yaml, infra/integrations and the stacks of every example against the rules of checkov (PyPI), by their own names.

    tests/scripts/checkov.py CHECKOV SLIPWAY

tests/checkov-accepted.txt lists what fails and why that is right: `CHECK resource | reason`, where the resource may have wildcards.
A failure that is not listed fails this script, and so does a line that nothing needs any more. Needs no AWS.
"""

import fnmatch
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def stacks(slipway, folder):
    """Renders every example, and puts its stacks into `folder`. Those that import an authority have files that are not in the repository."""
    count = 0
    for spec in sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("examples/*/cluster.yaml")]):
        if "source: imported" in spec.read_text():
            continue
        name = spec.stem if spec.stem != "cluster" else spec.parent.name
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run([slipway, "render", spec, "--out", f"{out}/r"], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{spec}: {done.stderr}")
            for stack in Path(out, "r/stacks").glob("*.json"):
                shutil.copy(stack, folder / f"{name}--{stack.name}")
                count += 1
    return count


def accepted_failures(name):
    """The lines of a list of failures that are right, each with how often it was needed: never yet."""
    accepted = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith("#"):
            what, _, reason = line.partition(" | ")
            if not reason.strip():
                sys.exit(f"{name}: no reason: {line}")
            accepted[tuple(what.split())] = 0
    return accepted


def main():
    checkov, slipway = sys.argv[1:]
    accepted = accepted_failures("tests/checkov-accepted.txt")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(ROOT / "infra/template.yaml", folder)
        for template in ROOT.glob("infra/integrations/*.yaml"):
            shutil.copy(template, folder / f"integrations--{template.name}")
        count = stacks(slipway, folder)
        command = [checkov, "--directory", folder, "--framework", "cloudformation", "--compact", "--quiet", "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"checkov says nothing that can be read: {done.stdout[:2000]}{done.stderr[-2000:]}")
    summary, wrong = report["summary"], []
    if summary["parsing_errors"] or not summary["passed"]:
        sys.exit(f"checkov cannot read everything: {summary}")
    for failed in report["results"]["failed_checks"]:
        check, resource = failed["check_id"], failed["resource"].split(".")[-1]
        fits = [line for line in accepted if line[0] == check and fnmatch.fnmatchcase(resource, line[1])]
        for line in fits:
            accepted[line] += 1
        if not fits:
            wrong.append(f"{failed['file_path'].lstrip('/')}: {resource}: {check}, {failed['check_name']}")
    wrong += [f"tests/checkov-accepted.txt: nothing needs `{' '.join(line)}` any more" for line, uses in accepted.items() if not uses]
    if wrong:
        sys.exit("\n".join(sorted(set(wrong))))
    print(
        f"checkov {summary['checkov_version']}: {summary['passed']} checks of {summary['resource_count']} resources pass in infra/template.yaml, infra/integrations and "
        f"{count} stacks of examples; {summary['failed']} fail for a reason that tests/checkov-accepted.txt gives"
    )


if __name__ == "__main__":
    main()
