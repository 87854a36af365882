#!/usr/bin/env python3
"""Checks the links of a built site: `check_links.py FOLDER`. Each link to the site itself leads to a file of it, and to an anchor that
the file has. Links to other sites are not followed. Exits with 1 and the list of dead links, or if it found too few to be true."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("href", "src"):
            if attributes.get(name):
                self.links.append(attributes[name])
        for name in ("id", "name"):
            if attributes.get(name):
                self.anchors.add(attributes[name])


def dead(folder):
    """Each dead link as a sentence, and the number of links that were looked at."""
    read = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    found, count = [], 0
    for path, page in read.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(folder)} links to {link}"
            if not target.is_relative_to(folder) or not target.is_file():
                found.append(f"{where}: no such file")
            elif parts.fragment and target in read and unquote(parts.fragment) not in read[target].anchors:
                found.append(f"{where}: no such anchor")
    return found, count


def main(folder):
    found, count = dead(Path(folder).resolve())
    for line in found:
        print(line)
    if found:
        sys.exit(f"{len(found)} of {count} links are dead")
    if count == 0:
        sys.exit(f"there are no links in {folder}: is it the built site?")
    print(f"{count} links, none of them dead")


if __name__ == "__main__":
    main(*sys.argv[1:])
