"""The C++ Verifier and the decoder accept and refuse the same files; a smoke of ``tests.verifier.agreement``."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

import fusion_engine as fe
from fusion_engine.armnn import writer
from fusion_engine.batch import Job, fusing, process
from fusion_engine.errors import ModelError
from fusion_engine.schema import DIALECTS, schema
from tests.support.bombs import repeated_slots
from tests.support.encode import plain_dumps
from tests.support.nets import Net
from tests.support.strategies import random_network
from tests.verifier.agreement import compare
from tests.verifier.judge import ACCEPTED, COUNTLESS, OVER_LIMIT, REFUSED, build, tables, verdicts
from tests.verifier.mutations import KINDS, mutated
from tests.verifier.structure import fault


@pytest.fixture(scope="module", params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    found = build(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return str(request.param)


def program(dialect: str) -> Path:
    found = build(dialect)
    assert isinstance(found, Path)
    return found


def test_whatever_is_written_is_accepted(dialect: str) -> None:
    random = Random(11)
    graphs = [random_network(random.randrange(2**32), random.randint(0, 12), dialect) for _ in range(60)]
    files = [write(graph) for graph in graphs for write in (fe.dumps, plain_dumps)]
    assert verdicts(program(dialect), files) == ACCEPTED * len(files)
    assert [fault(data, schema(dialect)) for data in files] == [None] * len(files)


def test_both_say_the_same_of_damaged_files(dialect: str) -> None:
    outcome = compare(1200, seed=DIALECTS.index(dialect))  # fewer than a batch: of one dialect
    assert outcome.disagreements == []
    assert outcome.counts["accepted by both"] > 100
    assert outcome.counts["refused by both"] > 300
    assert outcome.counts["loaded"] > 50
    assert outcome.counts["read in columns"] > (50 if dialect == "current" else -1)
    assert {name.partition(":")[0] for name in outcome.kinds} == set(KINDS)


@pytest.mark.parametrize("dialect", DIALECTS[1:], indirect=True)
def test_a_payload_at_an_odd_place(dialect: str) -> None:
    """The offset of a constant's elements, which the reader looks up by itself, is aligned too."""
    net = Net(dialect)
    net.output(net.constant([1.0, 2.0, 3.0]))
    data = fe.dumps(net.graph)
    elements = struct.pack("<I3f", 3, 1.0, 2.0, 3.0)
    table = next(
        at for at in range(0, len(data), 4) if _leads_to(data, at) and data[_leads_to(data, at) :][:16] == elements
    )
    assert fe.loads(data).nodes[0]["constants"]["input"].data.tolist() == [1.0, 2.0, 3.0]
    reference = next(at for at in range(0, len(data), 4) if _leads_to(data, at) == table - 4)
    for shift in (0, 2):
        new = len(data) + 8
        made = bytearray(data + struct.pack("<4H", 6, 12, 4 + shift, 0) + struct.pack("<i", 8))
        made += bytes(shift) + struct.pack("<I", 8 - shift) + bytes(4 - shift) + elements + bytes(8)
        struct.pack_into("<I", made, reference, new - reference)
        assert verdicts(program(dialect), [bytes(made)]) == (REFUSED if shift else ACCEPTED)
        if shift:
            with pytest.raises(ModelError, match="an offset that is not aligned"):
                fe.loads(made)
        else:
            assert fe.loads(made).nodes[0]["constants"]["input"].data.tolist() == [1.0, 2.0, 3.0]


def _leads_to(data: bytes, at: int) -> int:
    """Where the word at a place leads if it is an offset within the file, else 0."""
    target = at + int(struct.unpack_from("<I", data, at)[0])
    return target if at < target <= len(data) - 4 else 0


def test_each_kind_of_damage_damages() -> None:
    """A kind that changes nothing would make the comparison say nothing."""
    random = Random(3)
    whole = fe.dumps(random_network(5, 6))
    for name, kind in KINDS.items():
        changed = bytearray(whole)
        kind(random, changed, [whole[::-1]])
        assert bytes(changed) != whole, name
    assert mutated(Random(1), whole, [whole]) == mutated(Random(1), whole, [whole])


def test_tables_are_counted_as_the_verifier_counts_them(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table more than the limit is warned of: the limit is set to what the Verifier just accepts."""
    random = Random(4)
    graphs = [random_network(random.randrange(2**32), random.randint(0, 12), dialect) for _ in range(40)]
    counted = tables(program(dialect), [fe.dumps(graph) for graph in graphs])
    assert min(counted) > 2
    for graph, count in zip(graphs, counted, strict=True):
        monkeypatch.setattr(writer, "MOST_TABLES", count)
        fe.dumps(graph)
        monkeypatch.setattr(writer, "MOST_TABLES", count - 1)
        with pytest.warns(fe.ReaderLimitWarning, match=f"the file has {count:,} tables"):
            fe.dumps(graph)
        assert writer.count_tables(graph) == count <= writer.tables_at_most(graph)


def test_the_limit_is_the_verifiers_own() -> None:
    found = build("current")
    if isinstance(found, str):
        pytest.skip(found)
    files = [repeated_slots(1000, 996), repeated_slots(1000, 997), repeated_slots(5000, 5000)]  # 3001 tables more
    assert tables(found, [repeated_slots(10, 20)]) == [1 + 30 + 200]
    assert verdicts(found, files) == ACCEPTED + OVER_LIMIT + COUNTLESS
    assert 1000 * 996 + 3001 <= writer.MOST_TABLES < 1000 * 997 + 3001
    for data in files:
        with pytest.raises(ModelError):
            fe.loads(data)


@pytest.mark.parametrize("name", DIALECTS)
def test_nothing_nests_as_deep_as_the_verifier_allows(name: str) -> None:
    """64 levels; tables of no schema lead back to themselves, so that its depth is that of any file."""
    facts = schema(name)
    depths: dict[str, int] = {}
    pending = [facts.root]
    while pending:
        table = facts.tables[pending[-1]]
        below = [
            other
            for f in table.fields
            for other in (facts.unions[f.type] if f.kind == "union" else [f.type])
            if f.kind in ("table", "tables", "union")
        ]
        missing = [other for other in below if other not in depths]
        assert len(pending) <= 64
        if missing:
            pending.append(missing[0])
        else:
            depths[pending.pop()] = 1 + max((depths[other] for other in below), default=0)
    assert 5 < depths[facts.root] < 16


def test_a_batch_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_TABLES", 10)
    model = Path(__file__).parents[2] / "examples" / "models" / "digits.armnn"
    report = process(Job(str(model), str(tmp_path / "out.armnn")), fusing(fe.load_rules("armnn")))
    assert report.status == "fused"
    assert [text for text in report.warnings if "real Arm NN reads at most 10 " in text] != []
    assert fe.load(tmp_path / "out.armnn")
