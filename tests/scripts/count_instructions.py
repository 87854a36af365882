#!/usr/bin/env python3
"""Counts the instructions of a first render and of an unchanged one by valgrind's callgrind, and fails above their bounds.

    tests/scripts/count_instructions.py target/debug      where slipway-bench and slipway are

Durations differ from run to run; the instructions of one build of one release of Rust differ by less than a hundredth. The build is
the unoptimised one, because CI has it anyway: whatever is copied, parsed or rendered once more counts there, too. In memory, an
upload costs what `slipway-bench --uploads N` executes more than with one upload less. A process of the CLI counts from its
start to its end. Status 3: valgrind cannot be had.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = ROOT / "examples/production.yaml"
# Millions, a tenth above what was measured last (docs/benchmarks.md).
MOST = {"first": 890, "unchanged": 335, "cli": 520}
WHAT = {
    "first": "first render with all PKI, in memory",
    "unchanged": "the same upload again, in memory",
    "cli": "`slipway render` into a folder that is rendered, a process",
}


def valgrind():
    """The command and its environment; what Debian's package holds does not look for its tools in .tools/."""
    tool = subprocess.run(
        [ROOT / "tests/scripts/debian_tool.sh", "valgrind", "valgrind"], stdout=subprocess.PIPE, check=False)
    if tool.returncode:
        sys.exit(tool.returncode)
    path = pathlib.Path(tool.stdout.decode().strip())
    tools = path.parents[1] / "libexec/valgrind"
    return path, {**os.environ, **({"VALGRIND_LIB": str(tools)} if tools.is_dir() else {})}


def millions(tool, command):
    """How many million instructions a command executes."""
    path, environment = tool
    run = subprocess.run(
        [path, "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = run.stdout.decode(errors="replace")
    counted = re.search(r"Collected : (\d+)", said)
    if run.returncode or not counted:
        sys.exit(f"{' '.join(map(str, command))} under valgrind failed ({run.returncode}):\n{said}")
    return int(counted[1]) / 1e6


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    bench, cli = folder / "slipway-bench", folder / "slipway"
    tool = valgrind()
    uploads = [millions(tool, [bench, "--uploads", str(count)]) for count in range(4)]
    # The second reads what the first left, as the third does. Only the third finds all that it may leave in turn.
    found = {"first": uploads[1] - uploads[0], "unchanged": uploads[3] - uploads[2]}
    with tempfile.TemporaryDirectory() as out:
        render = [cli, "render", SPEC, "--out", out]
        subprocess.run(render, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        found["cli"] = millions(tool, render)
    too_many = []
    for name, count in found.items():
        print(f"{WHAT[name]:<60} {count:>8.1f} million instructions   at most {MOST[name]}")
        if count > MOST[name]:
            too_many.append(WHAT[name])
    if too_many:
        sys.exit(
            f"more instructions than allowed: {'; '.join(too_many)}\n"
            f"help: `valgrind --tool=callgrind {bench} --uploads 3` and callgrind_annotate --inclusive=yes show what they are spent on; "
            f"if they are worth it, or another release of Rust made them, raise MOST in {sys.argv[0]} and say so in docs/benchmarks.md")


main()
