#!/usr/bin/env python3
"""Takes the YAML snippets out of a Markdown document, each with the heading that it stands under.

    tests/scripts/seed_snippets.py DOCUMENT > shared/spec/src/tests/data/seed-001.md

The document is the guide to kube-aws (v0.12.3, 14 February 2019) that Slipway grew from. Its snippets are kept, not its text:
shared/spec/src/tests/seeds.rs holds that each is accepted as it stands, or refused by name.
"""

import re
import sys


def main() -> None:
    heading, inside, lines = "", None, []
    print("# YAML snippets of `[kube-aws] Getting Started kube-aws`, 2019.02.14")
    print()
    print("Taken from the document by tests/scripts/seed_snippets.py; nothing in them was changed.")
    with open(sys.argv[1], encoding="utf-8") as document:
        for line in document:
            fence = re.match(r"```(\w*)\s*$", line)
            if inside is None and (title := re.match(r"#+ (.*)$", line)):
                # A link's text stands for the link.
                heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title[1]).strip()
            if fence and inside is None:
                inside, lines = fence[1], []
            elif fence:
                if inside == "yaml":
                    print(f"\n## {heading}\n\n```yaml\n{''.join(lines)}```")
                inside = None
            elif inside is not None:
                lines.append(line)


main()
