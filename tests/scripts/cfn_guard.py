#!/usr/bin/env python3
"""Holds infra/template.yaml, infra/integrations and the stacks of every example against AWS' public rules for cfn-guard, by their own names.

    tests/scripts/cfn_guard.py CFN_GUARD LINT_PYTHON SLIPWAY

The rules are in tests/cfn-guard; LINT_PYTHON has the translator of tests/scripts/transform.py. tests/cfn-guard-accepted.txt lists what fails and
why that is right: `RULE resource | reason`, where the resource may have wildcards, and is `-` where the rule names none. A failure that is not listed fails this script, and so does a
line that nothing needs any more, and a rule that no template needs. Needs no AWS.
"""

import fnmatch
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from checkov import ROOT, accepted_failures, stacks

RULES = ROOT / "tests/cfn-guard"


def resources(report):
    """The logical ids of the resources that a rule's report is about."""
    if isinstance(report, dict):
        path = report.get("path")
        found = re.match(r"/Resources/(\w+)", path) if isinstance(path, str) else None
        return set().union({found[1]} if found else (), *map(resources, report.values()))
    return set().union(*map(resources, report)) if isinstance(report, list) else set()


def main():
    guard, lint_python, slipway = sys.argv[1:]
    accepted = accepted_failures("tests/cfn-guard-accepted.txt")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path in [ROOT / "infra/template.yaml", *ROOT.glob("infra/integrations/*.yaml")]:
            done = subprocess.run([lint_python, ROOT / "tests/scripts/transform.py", path], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{path}: {done.stderr}")
            (folder / f"{path.stem}.json").write_text(done.stdout)
        stacks(slipway, folder)
        command = [guard, "validate", "--data", folder, "--rules", RULES, "--output-format", "json", "--structured", "--show-summary", "none"]
        done = subprocess.run(command, capture_output=True, text=True)
    # 19: some rules fail.
    if done.returncode not in (0, 19):
        sys.exit(f"cfn-guard ends with {done.returncode}: {done.stderr[-2000:]}")
    reports = json.loads(done.stdout)
    wrong, passed, failed, needed = set(), 0, 0, set()
    for report in reports:
        name = Path(report["name"]).name
        passed += len(report["compliant"])
        needed.update(report["compliant"])
        for rule in (one["Rule"] for one in report["not_compliant"]):
            needed.add(rule["name"])
            # A rule that looks for one resource among all says of none that it fails.
            ids = resources(rule["checks"]) or {"-"}
            failed += len(ids)
            for id in ids:
                fits = [line for line in accepted if line[0] == rule["name"] and fnmatch.fnmatchcase(id, line[1])]
                for line in fits:
                    accepted[line] += 1
                if not fits:
                    wrong.add(f"{name}: {id}: {rule['name']}")
    wrong |= {f"tests/cfn-guard-accepted.txt: nothing needs `{' '.join(line)}` any more" for line, uses in accepted.items() if not uses}
    names = {name for path in RULES.glob("*.guard") for name in re.findall(r"^rule (\w+)", path.read_text(), re.MULTILINE)}
    wrong |= {f"tests/cfn-guard: no template has what {name} is about" for name in names - needed}
    if wrong:
        sys.exit("\n".join(sorted(wrong)))
    print(
        f"{len(names)} rules of cfn-guard hold {passed} times in {len(reports)} templates: infra/template.yaml, infra/integrations and the stacks of examples; "
        f"{failed} resources fail for a reason that tests/cfn-guard-accepted.txt gives"
    )


if __name__ == "__main__":
    main()
