"""A hook of MkDocs: links of the documentation that lead out of ``docs/``.

The pages are read in the checkout too, where such links lead to sources and examples. The site has no
sources, so there they become plain text, or, where ``repo_url`` is set in ``mkdocs.yml``, links into the
repository. A link to what is not there is an error in strict mode.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\[\]]*)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")
"""A link that begins by going up: its label, its path, its anchor."""

FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

log = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called by MkDocs for the text of each page, before it is rendered; returns the text to render."""
    docs = Path(config["docs_dir"]).resolve()
    source = docs / page.file.src_path
    parts = FENCE.split(markdown)  # every second part is a fenced block
    parts[0::2] = [
        LINK.sub(lambda link: replaced(link, source, docs, config["repo_url"]), part) for part in parts[0::2]
    ]
    return "".join(parts)


def replaced(link: re.Match[str], source: Path, docs: Path, repository: str | None) -> str:
    """What a link becomes on the site."""
    target = (source.parent / link[2]).resolve()
    if target.is_relative_to(docs):
        return link[0]
    if not target.is_relative_to(docs.parent) or not target.exists():
        log.warning("%s: link to %s, which is not there", source.relative_to(docs.parent), link[2])
    if repository:
        return f"[{link[1]}]({repository.rstrip('/')}/blob/HEAD/{target.relative_to(docs.parent).as_posix()})"
    return link[1]
