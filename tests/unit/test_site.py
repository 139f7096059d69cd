"""The documentation as a site: built strictly, complete, and with links that lead somewhere."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import fusion_engine as fe
from fusion_engine.cli import _parser
from tests.support.pages import DOCS, ROOT
from tests.support.scripts import script

pytestmark = pytest.mark.xdist_group("site")  # one build of the site

NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; warnings are errors: links to nowhere, pages without a place, docstrings that do not parse."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: pip install 'armnn-fusion-engine[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        built = site / ("" if name.name == "index" else name) / "index.html"
        assert "<h1" in built.read_text("utf-8"), name


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = (site / "reference" / "index.html").read_text("utf-8")
    found = set(re.findall(r'id="fusion_engine\.([^"]+)"', text))
    wanted = {name for name in fe.__all__ if not name.startswith("_")}
    wanted |= {"folds.Fold", "workspace.Workspace.rewire", "match.binding.Match"}
    assert sorted(wanted - found) == [], "docs/reference.md lacks these"


def test_every_command_is_described(site: Path) -> None:
    (choices,) = (action.choices for action in _parser()._actions if isinstance(action.choices, dict))
    page = (DOCS / "commands.md").read_text("utf-8")
    assert sorted(re.findall(r"^<!-- help: (\S+) -->$", page, re.MULTILINE)) == sorted(choices)
    assert sorted(re.findall(r"^## (\S+)$", page, re.MULTILINE)) == sorted(choices)
    built = (site / "commands" / "index.html").read_text("utf-8")
    for name in choices:
        assert f"usage: fusion-engine {name} [-h]" in built


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"', page.read_text("utf-8"))
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="([^"]+)"', page.read_text("utf-8"))
        assert not [target for target in loaded if re.match(r"(?:https?:)?//", target)], page


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/site_pages.py as a module."""
    return script("site_pages", monkeypatch)


def rendered(hook: ModuleType, text: str, repository: str | None = None) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_path="howto/npu.md"))
    config = {"docs_dir": str(DOCS), "repo_url": repository}
    found: str = hook.on_page_markdown(text, page=page, config=config, files=None)
    return found


def test_links_out_of_the_pages(hook: ModuleType) -> None:
    assert rendered(hook, "see [the rules](../../rules/npu.toml#a).") == "see the rules."
    assert rendered(hook, "see [rules](../rules.md#scopes) and [x](undo.md)") == (
        "see [rules](../rules.md#scopes) and [x](undo.md)"
    )
    fenced = "```text\n[a](../../rules)\n```\n"
    assert rendered(hook, fenced) == fenced
    assert rendered(hook, "[a](../../rules)", "https://example.org/r/") == "[a](https://example.org/r/blob/HEAD/rules)"


def test_help(hook: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    text = rendered(hook, "a\n\n<!-- help: unfuse -->\n\nb")
    assert text.startswith("a\n\n```text\nusage: fusion-engine unfuse [-h]")
    assert text.endswith("```\n\nb")
    with caplog.at_level(logging.WARNING):
        rendered(hook, "<!-- help: refuse -->")
    (record,) = caplog.records
    assert record.getMessage().startswith("there is no command refuse: usage: fusion-engine")


def test_links_to_what_is_not_there(hook: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rendered(hook, "[a](../../nowhere/at/all)")
    assert [record.getMessage() for record in caplog.records] == [
        "docs/howto/npu.md: link to ../../nowhere/at/all, which is not there"
    ]
