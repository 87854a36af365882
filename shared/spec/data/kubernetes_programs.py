#!/usr/bin/env python3
"""Make the tables of what Kubernetes' programs understand, out of its own source and programs.

    python3 shared/spec/data/kubernetes_programs.py FOLDER            write the three files below beside this one
    python3 shared/spec/data/kubernetes_programs.py FOLDER --check    write nothing; fail if one would differ

- kubelet-fields.txt: the fields of KubeletConfiguration (k8s.io/kubelet, k8s.io/component-base) and their types in JSON, and the minors that
  know them. `[]` is each element of a list.
- component-flags.txt: the flags of the API server, the controller manager and the scheduler and their types, as `--help` of the release in
  FOLDER has them; then, of program `*`, those that only the source of another minor declares.
- feature-gates.txt: the feature gates that the source of each minor declares, and these minors.

FOLDER has the programs of PROGRAMS' release. The source is in Go's module cache: `go mod download k8s.io/kubernetes@v1.34.4`, and so on for
the modules and releases below.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path.home() / "go/pkg/mod/k8s.io"
RELEASES = {34: "34.4", 35: "35.4", 36: "36.3", 37: "37.0"}
MODULES = ["apiextensions-apiserver", "apimachinery", "apiserver", "client-go", "cloud-provider", "component-base", "controller-manager",
           "kube-aggregator"]
PROGRAMS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
# Types of Go that JSON has, and those that read themselves from a text.
SCALARS = {"bool": "bool", "string": "string", "int32": "int32", "int64": "int64", "uint32": "uint32", "float64": "float",
           "metav1.Duration": "duration", "TimeOrMetaDuration": "any", "resource.QuantityValue": "any", "resource.Quantity": "any"}
# pflag calls an int64 `int` in its help.
FLAG_METHODS = {"Bool": "bool", "Int": "int", "Int32": "int32", "Int64": "int", "Duration": "duration"}


def folder(module: str, minor: int) -> pathlib.Path:
    return CACHE / (f"kubernetes@v1.{RELEASES[minor]}" if module == "kubernetes" else f"{module}@v0.{RELEASES[minor]}")


def declared(text: str) -> tuple[dict, dict]:
    """The structs of a file of types, and its other names for types."""
    text = re.sub(r"//.*", "", text)
    structs = {}
    for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, re.M | re.S):
        fields = re.findall(r"^\t(?:(\w+)[ \t]+)?(\S+)[ \t]+`json:\"([^\"]*)\"", body, re.M)
        structs[name] = [(kind, tag) for _, kind, tag in fields]
    return structs, dict(re.findall(r"^type (\w+) (?!struct)([\w.\[\]]+)$", text, re.M))


def kubelet_fields(minor: int) -> dict[str, str]:
    structs, others = {}, {}
    for module, path in [("component-base", "logs/api/v1/types.go"), ("component-base", "tracing/api/v1/types.go"),
                         ("kubelet", "config/v1beta1/types.go")]:
        found = declared((folder(module, minor) / path).read_text())
        structs |= found[0]
        others |= found[1]
    out = {}

    def take(kind: str, at: str) -> None:
        if at == "logging.options":  # its fields are alpha, and embed others
            out[at] = "any"
            return
        kind = kind.lstrip("*")
        short = kind.split(".")[-1]
        if kind in SCALARS:
            out[at] = SCALARS[kind]
        elif kind.startswith("[]"):
            out[at] = "list"
            take(kind[2:], at + "[]")
        elif kind.startswith("map["):
            out[at] = "texts" if kind == "map[string]string" else "map"
        elif short in structs and short != "Taint":
            if at:
                out[at] = "group"
            for inner, tag in structs[short]:
                name = tag.split(",")[0]
                if name:
                    take(inner, f"{at}.{name}" if at else name)
                elif "inline" in tag and inner != "metav1.TypeMeta":
                    take(inner, at)
        elif short in others and others[short] != kind:
            take(others[short], at)
        else:
            out[at] = "any"

    take("KubeletConfiguration", "")
    return out


def sources(minor: int, modules: list[str]):
    for module in modules:
        root = folder(module, minor)
        if not root.exists():
            sys.exit(f"{root} is missing: go mod download k8s.io/{module}@{root.name.split('@')[1]}")
        for path in sorted(root.rglob("*.go")):
            parts = path.relative_to(root).parts
            if path.name.endswith("_test.go") or {"test", "testing", "testdata", "vendor", "third_party"} & set(parts):
                continue
            yield path.read_text()


def feature_gates(minor: int) -> set[str]:
    gates = {"AllAlpha", "AllBeta"}
    for text in sources(minor, ["kubernetes", *MODULES]):
        gates |= set(re.findall(r"\b(?:featuregate\.)?Feature = \"([A-Z]\w+)\"", text))
    return gates


def flags_of_program(program: pathlib.Path) -> dict[str, str]:
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)(\[=\S+\])?( \S+)?  ", help_text, re.M)
    return {name: (kind.strip() or ("any" if value else "bool")) for name, value, kind in found}


def flags_of_source(minor: int) -> dict[str, str]:
    flags = {}
    for text in sources(minor, ["kubernetes", *MODULES]):
        for method, name in re.findall(r"\.(\w*Var)P?\((?:[^\"\n]*?)\"([a-z][a-z0-9-]+)\"", text):
            kind = FLAG_METHODS.get(method.removesuffix("Var"), "any")
            flags[name] = kind if flags.get(name, kind) == kind else "any"
    return flags


def main() -> None:
    programs, check = pathlib.Path(sys.argv[1]), "--check" in sys.argv
    kubelet = {minor: kubelet_fields(minor) for minor in RELEASES}
    gates = {minor: feature_gates(minor) for minor in RELEASES}
    declared_flags = {minor: flags_of_source(minor) for minor in RELEASES}

    def known(tables: dict, name: str) -> str:
        return " ".join(str(minor) for minor in RELEASES if name in tables[minor])

    lines = {"kubelet-fields.txt": [], "component-flags.txt": [], "feature-gates.txt": []}
    for name in sorted(set().union(*kubelet.values())):
        kinds = {kubelet[minor][name] for minor in RELEASES if name in kubelet[minor]}
        lines["kubelet-fields.txt"].append(f"{name} {kinds.pop() if len(kinds) == 1 else 'any'} {known(kubelet, name)}")
    named = set()
    for program in PROGRAMS:
        for name, kind in sorted(flags_of_program(programs / program).items()):
            # Another type in the source of another minor: nothing is said of its values.
            others = {flags[name] for flags in declared_flags.values() if name in flags} - {"any"}
            kind = "any" if others and kind in FLAG_METHODS.values() and others != {kind} else kind
            lines["component-flags.txt"].append(f"{program} {name} {kind}")
            named.add(name)
    for name in sorted(set().union(*declared_flags.values()) - named):
        lines["component-flags.txt"].append(f"* {name} any")
    for name in sorted(set().union(*gates.values())):
        lines["feature-gates.txt"].append(f"{name} {known(gates, name)}")
    stale = []
    for file, found in lines.items():
        text = "\n".join(found) + "\n"
        if check and (HERE / file).read_text() != text:
            stale.append(file)
        elif not check:
            (HERE / file).write_text(text)
    if stale:
        sys.exit(f"{', '.join(stale)}: run {pathlib.Path(__file__).name} without --check")


if __name__ == "__main__":
    main()
