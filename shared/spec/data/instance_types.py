#!/usr/bin/env python3
"""Make the table of EC2 instance types out of AWS' own answers, as moto and botocore of `.tools` carry them.

    .tools/python/bin/python shared/spec/data/instance_types.py            write shared/spec/data/instance-types.txt
    .tools/python/bin/python shared/spec/data/instance_types.py --check    write nothing; fail if it would differ

moto's wheel holds DescribeInstanceTypes as EC2 gave it; botocore's the names alone, some of which moto lacks. A family
with `-` for its architecture is one of those: it exists, and nothing more is said of it.
Both wheels are pinned in tests/tools/requirements.txt.
"""

import gzip
import importlib.metadata
import json
import pathlib
import sys

import botocore
import moto

FILE = pathlib.Path(__file__).resolve().parent / "instance-types.txt"
ARCHITECTURES = {"arm64": "arm64", "x86_64": "x86_64", "i386": "x86_64", "arm64_mac": "mac", "x86_64_mac": "mac"}


def described() -> dict:
    path = pathlib.Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


def named() -> list[str]:
    folder = pathlib.Path(botocore.__file__).parent / "data/ec2"
    newest = max(path for path in folder.iterdir() if path.is_dir())
    model = next(newest.glob("service-2.json*"))
    body = model.read_bytes()
    return json.loads(gzip.decompress(body) if model.suffix == ".gz" else body)["shapes"]["InstanceType"]["enum"]


def line(family: str, sizes: list[str], types: dict) -> str:
    """`g5 x86_64 nvidia 48xlarge:2x3800 xlarge:1x250`: family, architecture, accelerators, sizes with their NVMe disks."""
    words, architectures, accelerators = [], set(), set()
    for size in sizes:
        about = types.get(f"{family}.{size}")
        if about is None:
            words.append(size)
            continue
        architectures |= {ARCHITECTURES[one] for one in about["ProcessorInfo"]["SupportedArchitectures"]}
        if any(gpu["Manufacturer"] == "NVIDIA" for gpu in about.get("GpuInfo", {}).get("Gpus", [])):
            accelerators.add("nvidia")
        if "NeuronInfo" in about:
            accelerators.add("neuron")
        store = about.get("InstanceStorageInfo", {})
        if store.get("NvmeSupport") in ("required", "supported"):
            [disks] = store["Disks"]
            size += f":{disks['Count']}x{disks['SizeInGB']}"
        words.append(size)
    if len(architectures) > 1 or len(accelerators) > 1:
        raise SystemExit(f"the sizes of {family} differ in more than this file can say")
    return " ".join([family, *(architectures or {"-"}), *(accelerators or {"-"}), *words])


def text() -> str:
    source = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("botocore", "moto"))
    types, families = described(), {}
    for name in sorted({*types, *named()}):
        family, size = name.split(".", 1)
        families.setdefault(family, []).append(size)
    lines = [line(family, sizes, types) for family, sizes in families.items()]
    return "\n".join([f"# instance_types.py made this from {source}", *lines, ""])


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if FILE.read_text() != text():
            raise SystemExit(f"{FILE} differs from what the pinned wheels say: run this without --check")
    else:
        FILE.write_text(text())
