#!/usr/bin/env python3
"""Runs the tests of the workspace where cargo-nextest is not there: several test binaries at a time, the longest first.

    tests/scripts/run_tests.py [FILTER]      only what has FILTER in its name, as `cargo test FILTER`

`cargo test` runs one binary after the other, and much of what the larger ones do is to wait for servers of theirs: a sixth
of two processors' time is nobody's. Which binaries there are is what cargo says. What one prints is printed whole when it
has ended; RUST_TEST_THREADS is for each, as ever.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

CARGO = os.environ.get("CARGO", "cargo")
# Begun in this order, so that nothing long begins last; every other one after them. Only the order is at stake.
LONGEST = [
    "etcd", "verbs_in_aws", "kubernetes", "launch", "render_faults", "launching", "simulating", "slipway_core",
    "rendering", "templates", "draining", "blast_radius", "node", "keeping", "rollout_faults",
]
# What libtest says at the end of a binary, and what a test says that could not run (tests/src/tools.rs, `not_tested`).
RESULT = re.compile(rb"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
NOT_TESTED = re.compile(rb"!!! NOT TESTED: ([\w:]+): ")
# A word in between, so that whoever waits sees that it goes on.
PATIENCE_S = 60


def binaries():
    """Every test binary, built: the name of its target, how cargo is asked for it, its path, and its package's folder."""
    build = subprocess.run(
        [CARGO, "test", "--locked", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"],
        stdout=subprocess.PIPE, check=False)
    if build.returncode:
        sys.exit(build.returncode)
    found = []
    for line in build.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            target = message["target"]
            which = "--lib" if target["kind"] == ["lib"] else f"--{target['kind'][0]} {target['name']}"
            found.append((target["name"], which, message["executable"], os.path.dirname(message["manifest_path"])))
    if not found:
        sys.exit("cargo names no test binary: that cannot be")
    return sorted(found, key=lambda one: LONGEST.index(one[0]) if one[0] in LONGEST else len(LONGEST))


class Run:
    """What is still to be run, what runs, and what failed."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.running = {}
        self.failed = []
        self.passed_tests = self.failed_tests = self.ignored_tests = 0
        self.skipped_tests = set()
        self.ended = 0
        self.lock = threading.Lock()
        self.began = time.monotonic()

    def lane(self):
        """One after the other, until there is none left."""
        while True:
            with self.lock:
                if not self.jobs:
                    return
                name, which, command, folder = self.jobs.pop(0)
                self.running[name] = time.monotonic()
            # As `cargo test` runs it: in its package's folder.
            environment = {**os.environ, "CARGO": CARGO, "CARGO_MANIFEST_DIR": folder}
            with tempfile.TemporaryFile() as output:
                code = subprocess.run(
                    command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, check=False).returncode
                output.seek(0)
                printed = output.read()
                with self.lock:
                    self.count(name, printed)
                    took = time.monotonic() - self.running.pop(name)
                    said = "passed" if code == 0 else f"FAILED ({code})"
                    print(f"=== {name}: {said} after {took:.0f} s", flush=True)
                    sys.stdout.buffer.write(printed)
                    sys.stdout.buffer.flush()
                    self.ended += 1
                    if code:
                        self.failed.append((name, which))

    def count(self, name, printed):
        """A test that could not run ends as libtest's "passed": it is counted as skipped instead."""
        for passed, failed, ignored in RESULT.findall(printed):
            self.passed_tests += int(passed)
            self.failed_tests += int(failed)
            self.ignored_tests += int(ignored)
        self.skipped_tests |= {f"{name}: {test.decode()}" for test in NOT_TESTED.findall(printed)}

    def watch(self, lanes):
        """Until all have ended."""
        while any(lane.is_alive() for lane in lanes):
            deadline = time.monotonic() + PATIENCE_S
            for lane in lanes:
                lane.join(max(0, deadline - time.monotonic()))
            with self.lock:
                now = time.monotonic()
                running = ", ".join(f"{name} for {now - since:.0f} s" for name, since in self.running.items())
            if running:
                print(f"... after {now - self.began:.0f} s: {running}", flush=True)


def main():
    filters = sys.argv[1:]
    jobs = [(name, which, [executable, *filters], folder) for name, which, executable, folder in binaries()]
    jobs.append(("documentation", "--doc", [CARGO, "test", "--locked", "--workspace", "--doc", *filters], os.getcwd()))
    processors = len(os.sched_getaffinity(0))
    os.environ.setdefault("RUST_TEST_THREADS", str(processors))
    run = Run(jobs)
    lanes = [threading.Thread(target=run.lane, daemon=True) for _ in range(processors + 1)]
    count = len(jobs)
    for lane in lanes:
        lane.start()
    run.watch(lanes)
    print(f"=== {count} test binaries in {time.monotonic() - run.began:.0f} s, {len(run.failed)} failed")
    for name, which in run.failed:
        print(f"FAILED: {name}; again: cargo test --locked --workspace {which}")
    for test in sorted(run.skipped_tests):
        print(f"SKIPPED: {test}; its reason is told above")
    skipped = len(run.skipped_tests)
    print(f"=== {run.passed_tests - skipped} passed, {run.failed_tests} failed, {skipped + run.ignored_tests} skipped")
    # A lane that breaks, as on a full disk, takes what it ran and perhaps the rest with it.
    if run.ended < count:
        sys.exit(f"{count - run.ended} test binaries have not ended: what broke is told above")
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()
