#!/usr/bin/env python3
"""Puts an image together, into a folder that `tests/src/cluster/depot.rs` serves.

    oci_image.py FOLDER REFERENCE --entrypoint PROGRAM [--user UID] LAYER...

LAYER is a folder with what the layer holds. The same folders give the same digests: no time, owner or order of the file system is in it.
(OCI image format 1.0: layers as tar+gzip, a configuration, a manifest; each is named by its digest.)
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("reference")
parser.add_argument("--entrypoint", required=True)
parser.add_argument("--user", default="0")
parser.add_argument("layers", nargs="+", type=pathlib.Path)
arguments = parser.parse_args()

blobs = arguments.folder / "images" / "blobs"
blobs.mkdir(parents=True, exist_ok=True)


def put(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    place = blobs / digest
    if not place.exists():
        draft = place.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content)
        draft.rename(place)
    return f"sha256:{digest}"


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def layer(folder: pathlib.Path) -> tuple[str, bytes]:
    """Its digest before compression, and itself after it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)
    content = buffer.getvalue()
    return f"sha256:{hashlib.sha256(content).hexdigest()}", gzip.compress(content, compresslevel=1, mtime=0)


made = [layer(folder) for folder in arguments.layers]
configuration = json.dumps(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": [arguments.entrypoint],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "User": arguments.user,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in made]},
    },
    sort_keys=True,
).encode()
manifest = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": put(configuration),
            "size": len(configuration),
        },
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": put(content), "size": len(content)}
            for _, content in made
        ],
    },
    sort_keys=True,
).encode()
digest = put(manifest)
repository, tag = arguments.reference.rsplit(":", 1)
place = arguments.folder / "images" / "tags" / repository / tag
place.parent.mkdir(parents=True, exist_ok=True)
place.write_text(digest + "\n")
print(f"{arguments.reference}@{digest}")
