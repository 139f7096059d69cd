"""The commands' pictures: ``draw``, and the pages of ``fuse --diff``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from fusion_engine.console import Console, printable
from fusion_engine.storage import at_hand, is_url
from fusion_engine.usage import FAILED, FINE, Wrong

if TYPE_CHECKING:
    from fusion_engine.batch import Change, Job
    from fusion_engine.network import Network

__all__ = ["DiffPages", "add_draw"]

PAGE = ".html"


def add_draw(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command ``draw`` to the parser: ``command`` makes one."""
    draw = command(
        "draw",
        _draw,
        "draw a model, fused layers shaded by rule",
        "draw model.armnn -o model.html",
        "draw fused/model.armnn -o model.svg",
        "draw model.armnn -o model.dot     # needs no Graphviz",
    )
    draw.add_argument("model", metavar="MODEL", help="an .armnn file")
    draw.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        required=True,
        help="x.html: a page with search, zoom and details that opens offline; x.svg; or x.dot for Graphviz",
    )


def _draw(arguments: argparse.Namespace, console: Console) -> int:
    from fusion_engine import FusionEngineError, OutputError, load
    from fusion_engine.drawing.files import draw, suffix_of
    from fusion_engine.drawing.layout import find_dot

    try:
        if suffix_of(arguments.out) != ".dot":
            find_dot()
    except OutputError as error:
        raise Wrong(printable(str(error))) from error
    if is_url(arguments.out):
        raise Wrong(f"{printable(arguments.out)}: pictures are files of this machine")
    _forbid(arguments.out, {os.path.realpath(arguments.model)})
    try:
        with at_hand(arguments.model) as path:
            draw(load(path), arguments.out)
    except FusionEngineError as error:
        console.note(f"fusion-engine: {printable(str(error))}")
        return FAILED
    console.print(f"{printable(arguments.model)}: drawn to {printable(arguments.out)}")
    return FINE


def _forbid(path: str, used: Set[str]) -> None:
    """A picture must not fall upon a file of the run, of which the real paths are given."""
    if os.path.realpath(path) in used:
        raise Wrong(f"the picture {printable(path)} is another file of the run: name another one")


class DiffPages:
    """The pages that ``fuse --diff`` writes, and where: a file for one model, or a directory that mirrors the models.

    Parameters
    ----------
    wanted
        What was given: a name that ends in ``.html`` is a file, any other a directory.
    """

    def __init__(self, wanted: str) -> None:
        if not wanted:
            raise Wrong("say where the pages go: --diff FILE.html (one model) or --diff DIR")
        if is_url(wanted):
            raise Wrong(f"--diff {printable(wanted)}: pages are files of this machine: name one, or a directory")
        self._wanted = wanted
        self._pages: dict[str, str] = {}
        self._graphs: tuple[Network, Network] | None = None
        self.failed = False

    def plan(self, paths: Sequence[str], out: str | None, jobs: Sequence[Job], others: Sequence[str]) -> list[str]:
        """Find out where each model's page goes and whether pages can be made, before any work.

        Returns
        -------
        list of str
            The directories that must take files.

        Raises
        ------
        Wrong
            Where there are several models and one file, two pages have one name, a page is a file of the
            run (``others``), or Graphviz is missing.
        """
        from fusion_engine.batch import find_models
        from fusion_engine.drawing.layout import find_dot
        from fusion_engine.errors import OutputError

        try:
            find_dot()
            below = {one.path: one.below for one in find_models(paths, out)}
        except OutputError as error:
            raise Wrong(printable(str(error))) from error
        models = [job.path for job in jobs if job.fault is None]
        if self._wanted.lower().endswith(PAGE):
            if len(jobs) > 1:
                raise Wrong(
                    f"{printable(self._wanted)} is one page, and there are {len(jobs)} models: "
                    "name a directory with --diff DIR, which gets a page for each"
                )
            self._pages = dict.fromkeys(models, self._wanted)
        else:
            self._pages = {path: os.path.join(self._wanted, _page_name(below[path])) for path in models}
        used = {os.path.realpath(file) for job in jobs for file in (job.path, job.output) if file}
        used |= {os.path.realpath(file) for file in others}
        taken: dict[str, str] = {}
        for path, page in self._pages.items():
            other = taken.setdefault(os.path.realpath(page).casefold(), path)
            if other != path:
                raise Wrong(f"{printable(other)} and {printable(path)} have the same page {printable(page)}")
            if os.path.isdir(page):
                raise Wrong(f"the page {printable(page)} is a directory: name another place with --diff")
            _forbid(page, used)
        return list(dict.fromkeys(os.path.dirname(page) for page in self._pages.values()))

    def keeping(self, change: Change) -> Change:
        """A change that keeps what it was given and what it gave, for the page."""

        def keep(graph: Network) -> tuple[Network, bool]:
            self._graphs = None
            result, changed = change(graph)
            self._graphs = (graph, result)
            return result, changed

        return keep

    def draw(self, job: Job, console: Console, quiet: bool) -> None:
        """Write the page of the model that was done last; nothing where it could not be fused."""
        from fusion_engine.batch import attempt
        from fusion_engine.drawing.files import draw_diff

        graphs, self._graphs = self._graphs, None
        if graphs is None or job.path not in self._pages:
            return
        page = self._pages[job.path]
        title = os.path.basename(job.path)
        _, fault = attempt(job.path, lambda: draw_diff(*graphs, page, title=title))
        if fault is not None:
            self.failed = True
            console.note(f"fusion-engine: {printable(fault)}")
        elif not quiet:
            console.print(f"    drawn to {printable(page)}")


def _page_name(below: str) -> str:
    return below.removesuffix(".armnn") + PAGE
