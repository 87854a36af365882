#!/usr/bin/env python3
"""Builds the site of docs/: `build.py MDBOOK MERMAID OUT`, with the two programs and the folder to write.

Pages keep their paths, so a link that works on GitHub works here. A link to a file that is no page of the site, such as an example or a
source file, leads to a page with the file's text, which this script writes; a link to a folder leads to a list of its files.
`build.py --sources FOLDER` only writes what mdBook reads, and needs no program.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
# The end of a link in Markdown: `](target)` or `](target#anchor)`.
LINK = re.compile(r"\]\((?!<|#|[a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
# Files in which a reader would see nothing.
BINARY = {".png", ".jpg", ".zip"}


class Failed(Exception):
    pass


def relative(path, start):
    return os.path.relpath(path, start).replace(os.sep, "/")


def pages():
    """The pages of the summary, in its order."""
    summary = (SITE.parent / "SUMMARY.md").read_text()
    found = [(SITE.parent / target).resolve() for target, _ in LINK.findall(summary)]
    for page in found:
        if not page.is_file():
            raise Failed(f"docs/SUMMARY.md lists {page}, which does not exist")
    return found


def outside_code(text, change):
    """Applies `change` to the lines of a page that are in no block of code."""
    in_code = False
    lines = []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        lines.append(line if in_code else change(line))
    return "\n".join(lines)


def shown_at(path):
    """Where the site shows a file or folder that is not one of its pages."""
    if path.is_dir():
        return path / "index.html"
    # mdBook would take `.md` out of the name.
    return path.with_name(path.name.removesuffix(".md") + ".html")


def staged(page, known, others):
    """A page's text with links to `others` instead of links to files that are no pages; adds those to `others`."""

    def link(match):
        target = (page.parent / match[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            raise Failed(f"{relative(page, ROOT)} links to {match[1]}, which does not exist")
        if target in known:
            # mdBook makes an index of a README, but leaves the links to it as they are.
            shown = match[1].removesuffix("README.md") + "index.md" if target.name == "README.md" else match[1]
            return f"]({shown}{match[2] or ''})"
        others.add(target)
        return f"]({relative(shown_at(target), page.parent)})"

    return outside_code(page.read_text(), lambda line: LINK.sub(link, line))


def write_sources(book):
    """What mdBook reads, in the folder `book`. Returns the files and folders to which the pages link, and that are no pages."""
    known, others = pages(), set()
    for page in known:
        target = book / "src" / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(staged(page, set(known), others))
    # mdBook looks for the summary at the top of the pages.
    summary = (SITE.parent / "SUMMARY.md").read_text()
    moved = LINK.sub(lambda match: f"]({relative((SITE.parent / match[1]).resolve(), ROOT)})", summary)
    (book / "src" / "SUMMARY.md").write_text(moved)
    for name in ("book.toml", "site.css"):
        shutil.copy(SITE / name, book / name)
    return others


FRAME = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{path}</title>
<link rel="stylesheet" href="{top}source.css"></head>
<body><header><a href="{top}index.html">Slipway</a> / {crumbs}</header>
<main>{body}</main></body>
</html>
"""


def frame(path, shown, out, body):
    top = relative(out, shown.parent) + "/"
    name = path.relative_to(ROOT).as_posix()
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.write_text(FRAME.format(path=html.escape(name), top=top, crumbs=html.escape(name), body=body))


def show(path, out, done):
    """Writes the page of a file or folder, and those of everything in the folder."""
    shown = out / shown_at(path).relative_to(ROOT)
    if path in done:
        return
    done.add(path)
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if entry.suffix not in BINARY and not entry.name.startswith("."))
        for entry in entries:
            show(entry, out, done)
        links = "".join(
            f'<li><a href="{html.escape(relative(shown_at(entry), path))}">{html.escape(entry.name)}{"/" if entry.is_dir() else ""}</a></li>'
            for entry in entries
        )
        frame(path, shown, out, f"<ul>{links}</ul>")
    else:
        text = path.read_text()
        # Beside it the file itself, for `curl` and editors.
        shown.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, shown.with_name(path.name))
        frame(path, shown, out, f'<p><a href="{html.escape(path.name)}" download>the file itself</a></p><pre><code>{html.escape(text)}</code></pre>')


def run(*command, cwd, path):
    environment = dict(os.environ, PATH=f"{path}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    # A warning is a mistake in a page, such as a tag that is never closed.
    if done.returncode != 0 or "WARN" in said or "ERROR" in said:
        raise Failed(f"{' '.join(map(str, command))}:\n{said}")


def build(mdbook, mermaid, out):
    book = out.with_name(out.name + "-source")
    for folder in (book, out):
        shutil.rmtree(folder, ignore_errors=True)
    book.mkdir(parents=True)
    others = write_sources(book)
    # Writes its two scripts beside book.toml, which names them already.
    run(mermaid, "install", ".", cwd=book, path=mermaid.parent)
    run(mdbook, "build", "--dest-dir", out, cwd=book, path=mermaid.parent)
    shutil.copy(SITE / "source.css", out / "source.css")
    done = set()
    for path in sorted(others):
        show(path, out, done)
    print(f"{len(pages())} pages, {len(done)} files and folders: {out / 'index.html'}")


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--sources":
        write_sources(Path(arguments[1]).resolve())
    elif len(arguments) == 3:
        build(*(Path(argument).resolve() for argument in arguments))
    else:
        raise Failed(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failed as failed:
        sys.exit(f"docs/site/build.py: {failed}")
