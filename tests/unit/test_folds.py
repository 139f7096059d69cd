"""The registry of folds: the package's own, and those of third parties by entry point."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import fusion_engine.folds as folds
from fusion_engine import plugins
from fusion_engine.errors import FuseError
from fusion_engine.folds import ENTRY_POINTS, Fold, find_fold, fold_names

A_FOLD = Fold(lambda workspace, match: None, lambda workspace, match, plan: match.root, frozenset({"Pad"}))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Call with (name, value) pairs: what installed packages register."""

    def clear() -> None:
        folds._plugins.cache_clear()
        folds.find_fold.cache_clear()

    def register(*points: tuple[str, str]) -> None:
        found = [EntryPoint(name, value, ENTRY_POINTS) for name, value in points]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == ENTRY_POINTS else [])
        clear()

    yield register
    clear()


def test_own_folds() -> None:
    assert "batch-norm" in fold_names()
    assert isinstance(find_fold("batch-norm"), Fold)
    assert find_fold("batch-norm").roots == frozenset()


def test_unknown() -> None:
    with pytest.raises(KeyError):
        find_fold("no-such-fold")


def test_third_party(registry: Any) -> None:
    registry(("drop-pad", f"{__name__}:A_FOLD"), ("batch-norm", "somewhere:else"))
    assert fold_names() == tuple(sorted({*folds.OWN, "drop-pad"}))
    assert find_fold("drop-pad").roots == frozenset({"Pad"})
    assert find_fold("batch-norm") is folds.import_module("fusion_engine.folds.batch_norm").FOLD


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module_anywhere:FOLD", "cannot be loaded: ModuleNotFoundError"),
        ("fusion_engine.folds:NO_SUCH", "cannot be loaded: AttributeError"),
        ("fusion_engine.folds:ENTRY_POINTS", "is a str: its entry point must name a fusion_engine.folds.Fold"),
    ],
)
def test_broken_third_party(registry: Any, value: str, reason: str) -> None:
    registry(("mine", value))
    assert "mine" in fold_names()
    with pytest.raises(FuseError, match=reason) as caught:
        find_fold("mine")
    assert "fold 'mine' of an unknown package" in str(caught.value)


def test_two_claims(registry: Any) -> None:
    registry(("mine", "b:FOLD"), ("mine", "a:FOLD"), ("mine", "a:FOLD"))
    with pytest.raises(FuseError, match=r"claimed by an unknown package \(a:FOLD\) and an unknown package \(b:FOLD\)"):
        find_fold("mine")
