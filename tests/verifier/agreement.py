"""Compare our verdict on damaged files with that of FlatBuffers' C++ Verifier.

    python -m tests.verifier.agreement --files 100000 --seed 1

Undamaged files are random networks of every dialect, as our writer and as FlatBuffers' own Builder
lays them out. Of each damaged one it is asked:

* Does the structural check of the decoder accept and refuse what the Verifier does?
* Does the Verifier accept whatever `loads` accepts?
* Does the reader of large files, which decodes all layers at once, read what the plain one reads, or nothing?

Prints what happened by kind of damage, and every disagreement; exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from fusion_engine.armnn import bulk
from fusion_engine.armnn.reader import _read_in_columns, _read_plainly
from fusion_engine.armnn.writer import dumps
from fusion_engine.compare import difference
from fusion_engine.errors import ModelError
from fusion_engine.schema import DIALECTS, schema
from tests.support.encode import plain_dumps
from tests.support.strategies import random_network
from tests.verifier.judge import ACCEPTED, OVER_LIMIT, build, verdicts
from tests.verifier.mutations import mutated
from tests.verifier.structure import fault

__all__ = ["Outcome", "compare"]

BATCH = 2000


@dataclass
class Outcome:
    """Counts by what was asked, and the disagreements as text."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)


def compare(files: int, seed: int) -> Outcome:
    """Damage ``files`` files and ask both.

    Raises
    ------
    RuntimeError
        Where the C++ program cannot be built or does not answer.
    """
    outcome = Outcome()
    random = Random(seed)
    with patch.object(bulk, "FEWEST_LAYERS", 0):
        for number in range(0, files, BATCH):
            _batch(outcome, random, DIALECTS[(seed + number // BATCH) % 4], min(BATCH, files - number))
    return outcome


def _batch(outcome: Outcome, random: Random, dialect: str, size: int) -> None:
    damaged = list(_damaged(random, dialect, size))
    judged = _judge(dialect, [data for _, data in damaged])
    loaded: dict[str, list[tuple[str, bytes]]] = {}
    for (kind, data), verdict in zip(damaged, judged, strict=True):
        reason = fault(data, schema(dialect))
        theirs = verdict in (ACCEPTED, OVER_LIMIT)
        outcome.counts["accepted by both" if theirs and reason is None else "refused by both"] += theirs == (
            reason is None
        )
        for name in set(kind.split("+")):
            outcome.kinds[f"{name}: {'accepted' if theirs else 'refused'}"] += 1
        if theirs != (reason is None):
            outcome.counts["disagreements of structure"] += 1
            outcome.disagreements.append(f"{dialect}, {kind}: Verifier says {verdict!r}, the decoder {reason}")
            outcome.files.append(data)
        try:
            graph = _read_plainly(data, None, True)
        except ModelError:
            outcome.counts["refused by loads"] += 1
            graph = None
        else:
            loaded.setdefault(graph.graph["dialect"], []).append((kind, data))
        columns = _read_in_columns(data, None)
        if columns is not None:
            outcome.counts["read in columns"] += 1
            told = "refused when read plainly" if graph is None else difference(graph, columns)
            if told is not None:
                outcome.counts["read otherwise in columns"] += 1
                outcome.disagreements.append(f"{dialect}, {kind}: read in columns, and {told}")
                outcome.files.append(data)
    for found, group in sorted(loaded.items()):
        outcome.counts["loaded"] += len(group)
        for (kind, data), verdict in zip(group, _judge(found, [data for _, data in group]), strict=True):
            if verdict not in (ACCEPTED, OVER_LIMIT):
                outcome.counts["loaded though refused by the Verifier"] += 1
                outcome.disagreements.append(f"{found}, {kind}: loads, and the Verifier says {verdict!r}")
                outcome.files.append(data)


def _judge(dialect: str, files: list[bytes]) -> str:
    program = build(dialect)
    if isinstance(program, str):
        raise RuntimeError(program)
    return verdicts(program, files)


def _damaged(random: Random, dialect: str, size: int) -> Iterator[tuple[str, bytes]]:
    pool = []
    for _ in range(12):
        graph = random_network(random.randrange(2**32), random.randint(0, 12), dialect)
        pool.append((dumps if random.random() < 0.5 else plain_dumps)(graph))
    for _ in range(size):
        yield mutated(random, random.choice(pool), pool)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare our verdict with that of the C++ Verifier.")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcome = compare(options.files, options.seed)
    for name, count in sorted(outcome.counts.items()):
        print(f"{count:9,}  {name}")
    print("by kind of damage:")
    for name, count in sorted(outcome.kinds.items()):
        print(f"{count:9,}  {name}")
    for text in outcome.disagreements[:50]:
        print(text)
    return 1 if outcome.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
