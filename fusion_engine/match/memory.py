"""What a matcher has learnt at one root, so that nothing that cannot end well is gone through twice.

Three kinds of things are learnt, each by an `Entry` that lasts while its choices do:

* a *layer* entry: a pattern layer, laid on an output in the layouts of its scopes, fails by itself;
* a *way* entry: no match follows from a place among the inputs of a layer, with what is left to do;
* an *end* entry: the same where a pattern layer has just been matched. Then it need not be matched in
  another way: all of that lies between it and the way out.

They hold whatever was bound before: what fails because of that teaches nothing (`Memory.doubt`).
Besides, a place is not gone through again with the very same bindings: its matches would be the same.

Goals and frames are made once for each content while a memory is in use, so that their ids tell them
apart; the memory keeps them alive.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Entry", "Failed", "Memory"]

Failed: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""The failure that got furthest: the number of pattern layers bound there, and what is told of it."""


@dataclass(eq=False)
class Entry:
    """Something that is being gone through.

    Attributes
    ----------
    key
        What it is.
    height
        Number of choices that were open when it began: it is done when no more are.
    depth
        Number of pattern layers that were bound then.
    doubts, cuts
        The memory's counters then.
    ending
        Of a layer entry the id of the goal that its success leads to.
    matched
        Whether that came to pass.
    layer
        Of an end entry the layer entry that has ended.
    furthest
        The furthest failure inside.
    """

    key: Hashable
    height: int
    depth: int
    doubts: int
    cuts: int
    ending: int | None = None
    matched: bool = False
    layer: Entry | None = None
    furthest: Failed | None = None


class Memory:
    """The memory of one run of a pattern at a root.

    Attributes
    ----------
    entries
        What is being gone through, the outermost first.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._doubts = 0
        self._cuts = 0
        self._failed: dict[Hashable, Failed | None] = {}
        self._done: set[Hashable] = set()
        self._ending: dict[int, Entry] = {}
        self._made: dict[Hashable, Any] = {}
        self._alive: list[Any] = []
        self._prefixes: list[int] = []
        self._prefix_of: dict[Hashable, int] = {}

    # Contents

    def one(self, key: Hashable, value: Any) -> Any:
        """The first value that was given with an equal key; ids in keys are of what values hold."""
        return self._made.setdefault(key, value)

    def keep(self, *values: Any) -> None:
        """Keep values alive whose ids are in keys."""
        self._alive.append(values)

    def prefix(self, bound: list[Any]) -> int:
        """A number for all that is bound: equal bindings have equal ones."""
        numbers = self._prefixes
        before = numbers[-1] if numbers else 0
        for entry in bound[len(numbers) :]:
            before = self._prefix_of.setdefault((before, entry.content), len(self._prefix_of) + 1)
            numbers.append(before)
        return before

    def unbind(self, length: int) -> None:
        """Note that no more than so many bindings are left."""
        del self._prefixes[length:]

    # Learning

    def begin(self, key: Hashable, height: int, depth: int) -> Entry:
        """Begin an entry."""
        entry = Entry(key, height, depth, self._doubts, self._cuts)
        self.entries.append(entry)
        return entry

    def begin_layer(self, key: Hashable, height: int, depth: int, ending: int) -> None:
        """Begin a layer entry; ``ending`` is the id of the goal after it."""
        entry = self.begin(key, height, depth)
        entry.ending = ending
        self._ending[ending] = entry

    def end_layer(self, ending: int) -> Entry | None:
        """Note that the goal after a layer is reached; its entry, where there is one."""
        entry = self._ending.get(ending)
        if entry is not None:
            entry.matched = True
        return entry

    def doubt(self) -> None:
        """Note that what happens now may differ with other bindings before it."""
        self._doubts += 1

    def failed(self, key: Hashable) -> bool:
        """Whether that is known to fail."""
        return key in self._failed

    def cut(self) -> None:
        """Note that a way is left off because no match follows, though layers around it may match by themselves."""
        self._cuts += 1

    def done(self, key: Hashable) -> bool:
        """Whether that was gone through already; from now on it was."""
        if key in self._done:
            self._doubts += 1
            return True
        self._done.add(key)
        return False

    def furthest(self, key: Hashable, depth: int) -> Failed | None:
        """The furthest failure that is known of a key, had it been tried with so many layers bound."""
        found = self._failed[key]
        return None if found is None else (found[0] + depth, found[1])

    def note(self, failed: Failed) -> None:
        """Note how far a failure got."""
        if self.entries:
            _note(self.entries[-1], failed)

    def close(self, choices: list[Any]) -> None:
        """End the entries that have no choices left, and leave off choices that can lead to nothing."""
        entries = self.entries
        while entries and entries[-1].height >= len(choices):
            entry = entries.pop()
            if entry.ending is not None:
                del self._ending[entry.ending]
            if entry.furthest is not None:
                self.note(entry.furthest)
            if entry.doubts != self._doubts:
                continue
            if entry.ending is not None and (entry.matched or entry.cuts != self._cuts):
                continue
            far = entry.furthest
            self._failed[entry.key] = None if far is None else (far[0] - entry.depth, far[1])
            if entry.layer is not None:
                del choices[entry.layer.height :]


def _note(entry: Entry, failed: Failed) -> None:
    if entry.furthest is None or failed[0] > entry.furthest[0]:
        entry.furthest = failed
