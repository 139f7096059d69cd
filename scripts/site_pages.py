"""A hook of MkDocs: what the pages of ``docs/`` are on the site and not in the checkout.

* Links that lead out of ``docs/``: the site has no sources, so they become plain text, or, where ``repo_url`` is
  set in ``mkdocs.yml``, links into the repository. A link to what is not there is an error in strict mode.
* ``<!-- help: COMMAND -->``: what ``fusion-engine COMMAND --help`` prints.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\[\]]*)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")
"""A link that begins by going up: its label, its path, its anchor."""

FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

HELP = re.compile(r"^<!-- help: ([a-z -]+) -->$", re.MULTILINE)

WIDTH = "100"
"""Characters of a line of help."""

log = logging.getLogger("mkdocs.hooks.site_pages")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called by MkDocs for the text of each page, before it is rendered; returns the text to render."""
    docs = Path(config["docs_dir"]).resolve()
    source = docs / page.file.src_path
    repository: str | None = config["repo_url"]
    parts = FENCE.split(markdown)  # every second part is a fenced block
    parts[0::2] = [LINK.sub(lambda link: replaced(link, source, docs, repository), part) for part in parts[0::2]]
    return HELP.sub(lambda mark: f"```text\n{help_of(mark[1])}\n```", "".join(parts))


def replaced(link: re.Match[str], source: Path, docs: Path, repository: str | None) -> str:
    """What a link becomes on the site."""
    target = (source.parent / link[2]).resolve()
    if target.is_relative_to(docs):
        return link[0]
    if not target.is_relative_to(docs.parent) or not target.exists():
        log.warning("%s: link to %s, which is not there", source.relative_to(docs.parent), link[2])
        return link[1]
    if repository:
        return f"[{link[1]}]({repository.rstrip('/')}/blob/HEAD/{target.relative_to(docs.parent).as_posix()})"
    return link[1]


def help_of(command: str) -> str:
    """What ``fusion-engine COMMAND --help`` prints; an error in strict mode where there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "fusion_engine", *command.split(), "--help"],
        env={**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        log.warning("there is no command %s: %s", command, done.stderr.strip())
    return done.stdout.strip()
