#!/usr/bin/env python3
"""Plants every mistake that cargo-mutants knows of in one build, and says which of them nobody sees.

cargo-mutants builds the workspace once for each mistake: hours of building for minutes of testing. Here it only lists
them. Each is written into a copy of the tree as a branch that `SLIPWAY_MUTANT=17` takes, all of them are built at once,
and each is then run: by the unit tests of its crate first, and by trials of the simulator where those see nothing.

    tests/scripts/mutants.py CARGO_MUTANTS [--shard 0/40] [--only shared/rollout/src/drain.rs] [--seeds 1000] [--at-least 95]

A mistake that the compiler refuses is not viable and does not count. One that nobody sees, and that docs/simulation.md
does not list with a reason, is named; it makes this fail, unless at least so many per cent are seen or accepted.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import tree_sitter
import tree_sitter_rust

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/mutants"
TREE = OUT / "tree"
FILES = ["shared/rollout/src/**", "shared/credentials/src/renewal/**", "shared/core/src/drain/**", "shared/core/src/deadline.rs", "shared/flows/src/rollout.rs",
         "shared/flows/src/rollout/**"]
# The packages whose unit tests judge, and the filters that keep them to what is mutated. Each judges the others' mistakes, too.
UNIT_TESTS = {"slipway-rollout": [], "slipway-core": ["drain::", "deadline::"], "slipway-credentials": ["renewal::"], "slipway-flows": []}
# `--fail-fast` is libtest's own, and still asks for this.
FAIL_FAST = ["-Zunstable-options", "--fail-fast", "--test-threads=1"]
ROLLS = ["seeds::p2_p3", "rare::", "ends::", "upgrades::"]
# The crate that all of them know: it is asked which mistake is made.
LIBRARY = "shared/core/src/lib.rs"
SWITCH = '''
/// Which mistake is made: tests/scripts/mutants.py wrote this.
pub mod mutant {
    /// Whether it is this one.
    pub fn on(number: u32) -> bool {
        static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *NUMBER.get_or_init(|| std::env::var("SLIPWAY_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(u32::MAX)) == number
    }
}
'''
LOGIC = {"&&", "||"}
COMPARISONS = {"==", "!=", "<", ">", "<=", ">="}


class Source:
    """One file with its mistakes written into it as branches."""

    def __init__(self, path, mutants):
        self.path = path
        self.text = (ROOT / path).read_bytes()
        self.lines = self.text.split(b"\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
        self.nodes = defaultdict(list)
        stack = [parser.parse(self.text).root_node]
        while stack:
            node = stack.pop()
            self.nodes[node.type].append(node)
            stack.extend(node.children)
        self.mutants = mutants
        self.on = ("crate" if path.startswith("shared/core/") else "slipway_core") + "::mutant::on"
        self.edits = {}
        self.unplaced = []
        self.arms = {mutant["number"] for mutant in mutants if mutant["genre"] == "MatchArm"}
        self.written = []  # (start, end, number) in the text that comes out

    def at(self, place):
        line = self.lines[place["line"] - 1].decode()
        return self.starts[place["line"] - 1] + len(line[: place["column"] - 1].encode())

    def branch(self, number):
        return f"{self.on}({number})"

    def place(self):
        """Turns mistakes into edits: (start, end) of what is replaced, and what writes it."""
        grouped = defaultdict(list)
        for mutant in self.mutants:
            start, end = self.at(mutant["span"]["start"]), self.at(mutant["span"]["end"])
            # One for each genre of cargo-mutants, by its name.
            place = getattr(self, mutant["genre"].lower(), lambda *_: None)(mutant, start, end)
            if place is None:
                self.unplaced.append(mutant)
            else:
                grouped[place].append(mutant)
        for (kind, start, end), mutants in grouped.items():
            self.edits[(start, end, kind)] = mutants

    def fnvalue(self, mutant, start, end):
        around = [node.child_by_field_name("body") for node in self.nodes["function_item"]]
        around = [body for body in around if body is not None and body.start_byte <= start and end <= body.end_byte]
        body = min(around, key=lambda body: body.end_byte - body.start_byte, default=None)
        if body is None:
            return None
        if "-> impl" in mutant["function"]["return_type"]:
            # It returns one type: nothing of that is what it returns otherwise without its items.
            return ("filter", body.start_byte, body.end_byte) if "iter::empty()" in mutant["replacement"] else None
        return ("value", body.start_byte + 1, body.start_byte + 1)

    def structfield(self, mutant, start, end):
        for kind in ("field_initializer", "shorthand_field_initializer"):
            for node in self.nodes[kind]:
                if node.start_byte <= start < node.end_byte:
                    return ("field", node.start_byte, node.end_byte)
        return None

    def binaryoperator(self, mutant, start, end):
        for kind in ("binary_expression", "compound_assignment_expr"):
            for node in self.nodes[kind]:
                operator = node.child_by_field_name("operator")
                if (operator.start_byte, operator.end_byte) == (start, end):
                    return (kind, node.start_byte, node.end_byte)
        return None

    def unaryoperator(self, mutant, start, end):
        for node in self.nodes["unary_expression"]:
            if node.start_byte == start:
                return ("unary", node.start_byte, node.end_byte)
        return None

    def matcharm(self, mutant, start, end):
        for node in self.nodes["match_arm"]:
            pattern = node.child_by_field_name("pattern")
            if node.start_byte <= start < pattern.end_byte and pattern.start_byte >= start and node.end_byte >= end - 1:
                return ("arm", pattern.start_byte, pattern.end_byte)
        return None

    def matcharmguard(self, mutant, start, end):
        for node in self.nodes["match_pattern"]:
            condition = node.child_by_field_name("condition")
            if condition is not None and condition.start_byte == start:
                return ("arm", node.start_byte, node.end_byte)
        return None

    def write(self):
        self.out = bytearray()
        self.emit(0, len(self.text))
        return bytes(self.out)

    def emit(self, start, end, without=None):
        position = start
        edits = sorted((e for e in self.edits if start <= e[0] and e[1] <= end and e[:3] != (without or ())[:3]), key=lambda e: (e[0], -e[1]))
        for edit in edits:
            if edit[0] < position or (edit[0] == edit[1] == end and edit[0] != start):
                continue
            self.out += self.text[position : edit[0]]
            begun = len(self.out)
            getattr(self, "emit_" + edit[2])(edit, self.edits[edit])
            self.written += [(begun, len(self.out), mutant["number"]) for mutant in self.edits[edit]]
            position = edit[1]
        self.out += self.text[position:end]

    def say(self, text):
        self.out += text.encode()

    def choose(self, mutants, write, otherwise):
        """`if` for each mistake, so that the compiler's word on one of them is about it alone."""
        for mutant in mutants:
            self.say(f"if {self.branch(mutant['number'])} {{ ")
            begun = len(self.out)
            write(mutant)
            self.written.append((begun, len(self.out), mutant["number"]))
            self.say(" } else ")
        self.say("{ ")
        otherwise()
        self.say(" }")

    def emit_value(self, edit, mutants):
        for mutant in mutants:
            self.say(f" if {self.branch(mutant['number'])} {{ return ")
            begun = len(self.out)
            self.say(mutant["replacement"])
            self.written.append((begun, len(self.out), mutant["number"]))
            self.say("; }")

    def emit_filter(self, edit, mutants):
        self.say("{ ::std::iter::Iterator::filter(")
        self.emit(edit[0], edit[1], without=edit)
        self.say(f", move |_| !{self.branch(mutants[0]['number'])}) }}")

    def emit_field(self, edit, mutants):
        shorthand = [n for n in self.nodes["shorthand_field_initializer"] if (n.start_byte, n.end_byte) == edit[:2]]
        node = shorthand[0] if shorthand else self.node("field_initializer", edit)
        base = next(one for one in node.parent.children if one.type == "base_field_initializer")
        value = node if shorthand else node.child_by_field_name("value")
        name = self.text[node.start_byte : node.end_byte].decode().split(":")[0].strip()
        self.say(f"{name}: if {self.branch(mutants[0]['number'])} {{ (")
        self.emit(base.start_byte + 2, base.end_byte)
        self.say(f").{name} }} else {{ ")
        self.emit(value.start_byte, value.end_byte, without=edit)
        self.say(" }")

    def node(self, kind, edit):
        return next(node for node in self.nodes[kind] if (node.start_byte, node.end_byte) == edit[:2])

    def emit_binary_expression(self, edit, mutants):
        node = self.node("binary_expression", edit)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = self.text[node.child_by_field_name("operator").start_byte : node.child_by_field_name("operator").end_byte].decode()

        def part(it):
            self.emit(it.start_byte, it.end_byte)

        if operator in LOGIC:
            self.say("(match (")
            part(left)
            self.say(") { __l => ")

            def with_operator(operator):
                self.say(f"__l {operator} (")
                part(right)
                self.say(")")
        else:
            by = "&" if operator in COMPARISONS else ""
            self.say(f"(match ({by}(")
            part(left)
            self.say(f"), {by}(")
            part(right)
            self.say(")) { (__l, __r) => ")

            def with_operator(operator):
                self.say(f"__l {operator} __r")

        self.choose(mutants, lambda mutant: with_operator(mutant["replacement"]), lambda: with_operator(operator))
        self.say(" })")

    def emit_compound_assignment_expr(self, edit, mutants):
        node = self.node("compound_assignment_expr", edit)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")

        def with_operator(operator):
            self.emit(left.start_byte, left.end_byte)
            self.say(f" {operator} ")
            self.emit(right.start_byte, right.end_byte)

        self.choose(mutants, lambda mutant: with_operator(mutant["replacement"]),
                    lambda: with_operator(self.text[operator.start_byte : operator.end_byte].decode()))

    def emit_unary(self, edit, mutants):
        node = self.node("unary_expression", edit)
        self.say("(")
        self.choose(mutants, lambda _: self.emit(node.start_byte + 1, node.end_byte), lambda: self.whole(node))
        self.say(")")

    def whole(self, node):
        self.out += self.text[node.start_byte : node.start_byte + 1]
        self.emit(node.start_byte + 1, node.end_byte)

    def emit_arm(self, edit, mutants):
        node = self.node("match_pattern", edit)
        guard = node.child_by_field_name("condition")
        end = guard.start_byte if guard else node.end_byte
        pattern = self.text[node.start_byte : end].decode().rstrip()
        if guard:
            pattern = pattern.removesuffix("if").rstrip()
        never = [m for m in mutants if m["genre"] == "MatchArm" or m["replacement"] == "false"]
        always = [m for m in mutants if m["genre"] == "MatchArmGuard" and m["replacement"] == "true"]
        self.say(pattern + " if ")
        self.say(" && ".join(f"!{self.branch(m['number'])}" for m in never) or "true")
        if guard:
            has_let = b"let " in self.text[guard.start_byte : guard.end_byte]
            for mutant in always if has_let else []:
                self.unplaced.append(mutant)
            if has_let or not always:
                self.say(" && " if has_let else " && (")
                self.emit(guard.start_byte, guard.end_byte)
                self.say("" if has_let else ")")
            else:
                self.say(" && (" + " || ".join(self.branch(m["number"]) for m in always) + " || (")
                self.emit(guard.start_byte, guard.end_byte)
                self.say("))")


def copy_tree(planted):
    """Everything but what is planted, which is written with its mistakes. What did not change keeps its time, so that it is not built anew."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    names = {name for name in files.decode().split("\0") if name and (ROOT / name).is_file()}
    # A file that is gone here would still be built there.
    for path in TREE.rglob("*.rs"):
        if str(path.relative_to(TREE)) not in names and TREE / "target" not in path.parents:
            path.unlink()
    for name in sorted(names):
        source, target = ROOT / name, TREE / name
        if name and name not in planted and source.is_file():
            write_if_changed(target, source.read_bytes())
            shutil.copymode(source, target)


def write_if_changed(path, text):
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def plant(files, mutants, constant):
    """Writes all of them into the copy of these files. Gives what was written where, and those that have no place."""
    # A file without a mistake is written, too: the one that it had may be what the compiler refused.
    by_file = {path: [] for path in files}
    for mutant in mutants:
        by_file[mutant["file"]].append(mutant)
    sources, unplaced = {}, []
    for path, these in by_file.items():
        source = Source(path, these)
        source.place()
        text = source.write()
        unplaced += source.unplaced
        sources[path] = source
        # A constant function cannot ask which mistake is made; where nothing needs it to be one, it is none.
        text = re.sub(rb"const (fn (\w+))", lambda it: it[0] if it[2].decode() in constant else b"      " + it[1], text)
        write_if_changed(TREE / path, text)
    write_if_changed(TREE / LIBRARY, (ROOT / LIBRARY).read_bytes() + SWITCH.encode())
    return sources, unplaced


def build(sources, env):
    """The executables, or what the compiler refused: numbers of mistakes, names of functions that have to be constant."""
    command = ["cargo", "test", "--offline", "--locked", "--profile", "simulate", "--no-run", "--message-format=json", "--no-default-features",
               "--features", "slipway-sim/mimalloc", "--lib", "--test", "simulating", "-p", "slipway-sim"]
    command += [word for package in UNIT_TESTS for word in ("-p", package)]
    done = subprocess.run(command, cwd=TREE, env=env, capture_output=True, text=True)
    executables, refused, constant, strange = {}, set(), set(), []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            executables[message["target"]["name"]] = message["executable"]
        if message["reason"] != "compiler-message" or message["message"]["level"] != "error" or not message["message"]["spans"]:
            continue
        found = False
        non_const = re.search(r"non-const (?:fn|associated function|method) `(?:.*::)?(\w+)", message["message"]["message"])
        if non_const and non_const.group(1) != "on":
            constant.add(non_const.group(1))
            continue
        for span in sorted(message["message"]["spans"], key=lambda span: not span["is_primary"]):
            source = sources.get(os.path.relpath(TREE / span["file_name"], TREE))
            around = [w for w in source.written if w[0] <= span["byte_start"] and span["byte_end"] <= w[1]] if source else []
            if around:
                refused.add(min(around, key=lambda w: w[1] - w[0])[2])
            elif source and message["message"]["code"]["code"] == "E0004":
                # An arm without which not every case is there: those of that `match`.
                refused |= {n for start, _, n in source.written if 0 < start - span["byte_end"] < 2000 and n in source.arms}
            else:
                continue
            found = True
            break
        if not found:
            strange.append(message["message"]["rendered"])
    if done.returncode != 0 and not refused and not constant:
        sys.exit("\n".join(strange) or done.stderr)
    return executables if done.returncode == 0 else None, refused, constant


def run(executable, arguments, number, patience, **more):
    folder = TREE / more.pop("folder", "shared/sim")
    env = {**os.environ, "SLIPWAY_MUTANT": str(number), "RUST_BACKTRACE": "0", "RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(folder), **more}
    try:
        done = subprocess.run([executable, *FAIL_FAST, *arguments], cwd=folder, env=env, capture_output=True, timeout=patience)
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main():
    options = argparse.ArgumentParser()
    options.add_argument("cargo_mutants")
    options.add_argument("--shard", default="0/1")
    options.add_argument("--only", action="append")
    options.add_argument("--seeds", type=int, default=1000)
    options.add_argument("--at-least", type=float, default=100)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options = options.parse_args()

    command = [str(Path(options.cargo_mutants).resolve()), "mutants", "--list", "--json", "--workspace"]
    for files in options.only or FILES:
        command += ["--file", files]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    part, parts = map(int, options.shard.split("/"))
    mutants = [dict(mutant, number=number) for number, mutant in enumerate(listed) if number % parts == part]
    print(f"{len(mutants)} of {len(listed)} mistakes", flush=True)

    files = sorted({mutant["file"] for mutant in listed})
    copy_tree({*files, LIBRARY})
    env = {**os.environ, "CARGO_TARGET_DIR": str(OUT / "target"), "RUSTFLAGS": "--cap-lints allow"}
    alive, refused, constant = mutants, {}, set()
    while True:
        sources, unplaced = plant(files, alive, constant)
        for mutant in unplaced:
            refused[mutant["number"]] = "no place"
        executables, wrong, needed = build(sources, env)
        if executables is not None:
            break
        print(f"the compiler refuses {len(wrong)}, and {len(needed)} functions have to stay constant", flush=True)
        constant |= needed
        for number in wrong:
            refused[number] = "does not compile"
        alive = [mutant for mutant in alive if mutant["number"] not in refused]
    alive = [mutant for mutant in alive if mutant["number"] not in refused]
    OUT.mkdir(exist_ok=True)
    names = {mutant["number"]: mutant["name"] for mutant in mutants}
    (OUT / "unviable.txt").write_text("".join(f"{names[number]} | {why}\n" for number, why in sorted(refused.items())))
    print(f"{len(alive)} are viable", flush=True)

    simulating = executables["simulating"]
    library = {package: executables[package.replace("-", "_")] for package in UNIT_TESTS}
    folders = {package: f"shared/{package.removeprefix('slipway-')}" for package in UNIT_TESTS}
    stages = [("60 seeds", ROLLS[:1], "60"), ("15 seeds of each kind", ROLLS, "15"), (f"{options.seeds} seeds", ROLLS[:1], str(options.seeds))]

    def judge(mutant):
        package = mutant["package"]
        number = mutant["number"]
        for judging in dict.fromkeys([package, "slipway-rollout", *UNIT_TESTS]):
            if run(library[judging], UNIT_TESTS[judging], number, patience[judging], folder=folders[judging]):
                return mutant, "unit tests"
        for name, arguments, seeds in stages if options.seeds else []:
            if run(simulating, arguments, number, 1200, SLIPWAY_SEEDS=seeds):
                return mutant, name
        return mutant, None

    begun = time.time()
    patience = {}
    for package, executable in library.items():
        since = time.time()
        if run(executable, UNIT_TESTS[package], 2**31, 600, folder=folders[package]):
            sys.exit(f"the unit tests of {package} fail without any mistake")
        # Tests that do not come to an end see the mistake, too.
        patience[package] = 5 + 5 * (time.time() - since)
    if options.seeds and run(simulating, stages[1][1], 2**31, 1200, SLIPWAY_SEEDS=stages[1][2]):
        sys.exit("the simulator fails without any mistake")
    print(f"without a mistake {time.time() - begun:.0f} s", flush=True)

    caught, missed = defaultdict(list), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, open(OUT / "judged.txt", "w") as log:
        for count, (mutant, by) in enumerate(pool.map(judge, alive), 1):
            (caught[by] if by else missed).append(mutant["name"])
            print(f"{by or 'MISSED'} | {mutant['name']}", file=log, flush=True)
            if count % 50 == 0:
                print(f"{count} judged, {len(missed)} missed, {time.time() - begun:.0f} s", flush=True)
    for by, these in caught.items():
        print(f"{len(these)} seen by {by}")
    (OUT / "missed.txt").write_text("".join(name + "\n" for name in missed))
    print(f"{len(missed)} missed: {100 * (1 - len(missed) / max(len(alive), 1)):.1f} % of {len(alive)} are seen; {len(refused)} not viable")

    def unplaced(name):
        return re.sub(r":\d+:\d+: ", ": ", name)

    accepted = set(re.findall(r"^- `(shared/[^`]+)`: ", (ROOT / "docs/simulation.md").read_text(), re.MULTILINE))
    if not accepted:
        sys.exit("docs/simulation.md: its list of accepted survivors was not found")
    unknown = [name for name in missed if unplaced(name) not in accepted]
    if unknown:
        print("not accepted in docs/simulation.md:\n" + "\n".join(unknown))
    if 100 * len(unknown) > (100 - options.at_least) * len(alive):
        sys.exit(f"fewer than {options.at_least:g} % are seen")


if __name__ == "__main__":
    main()
