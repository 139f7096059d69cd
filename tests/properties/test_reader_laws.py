"""Reading in columns gives what reading table by table gives, and overlooks no fault."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_engine.armnn import bulk, reader
from fusion_engine.armnn.decode import Decoder
from fusion_engine.armnn.files import open_model
from fusion_engine.armnn.writer import dumps
from fusion_engine.errors import ModelError
from fusion_engine.network import Network
from fusion_engine.schema import schema
from tests.support.encode import plain_dumps
from tests.support.nets import Net
from tests.support.strategies import networks, random_network

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def _small_networks_too() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "FEWEST_LAYERS", 1)
        yield


def same(fast: Network, plain: Network) -> None:
    """The two networks are the same, order of everything included."""
    assert fast.graph == plain.graph
    assert list(fast.edges(data=True)) == list(plain.edges(data=True))
    assert {key: list(found) for key, found in fast.pred.items()} == {key: list(f) for key, f in plain.pred.items()}
    assert list(fast.nodes) == list(plain.nodes)
    for key, node in plain.nodes.items():
        other = fast.nodes[key]
        assert list(other) == list(node)
        assert repr({name: value for name, value in other.items() if name != "constants"}) == repr(
            {name: value for name, value in node.items() if name != "constants"}
        )
        assert list(other["constants"]) == list(node["constants"])
        for name, tensor in node["constants"].items():
            found = other["constants"][name]
            assert repr((found.info, found.untagged)) == repr((tensor.info, tensor.untagged))  # NaN equals itself so
            assert found.origin == tensor.origin
            assert (found.data.dtype, found.data.shape) == (tensor.data.dtype, tensor.data.shape)
            assert found.data.tobytes() == tensor.data.tobytes()
            assert not found.data.flags.writeable
            assert found.data.flags.c_contiguous


def read_both(data: bytes) -> bool:
    """Read in both ways, compare; whether reading in columns did it."""
    fast = reader._read_in_columns(data, None)
    if fast is not None:
        same(fast, reader._read_plainly(data, None, False))
    return fast is not None


@given(networks(), st.booleans())
@settings(max_examples=200)
def test_random_networks(graph: Network, plain: bool) -> None:
    read_both(plain_dumps(graph) if plain else dumps(graph))


def test_most_networks_are_read_in_columns() -> None:
    read = [read_both(plain_dumps(random_network(seed, 30, "current"))) for seed in range(20)]
    assert sum(read) >= 5


@given(seeds, st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_no_fault_is_overlooked(seed: int, changes: int) -> None:
    """Whatever columns accept the plain reader accepts, and reads alike."""
    random = Random(seed)
    data = bytearray(BASES[seed % len(BASES)])
    for _ in range(changes):
        at = random.randrange(len(data) // 4) * 4
        kind = random.randrange(5)
        if kind == 0:
            data[at + random.randrange(4)] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at : at + 4] = random.choice((0, 1, 4, 8, 2**31, 2**32 - 4, len(data), at)).to_bytes(4, "little")
        elif kind == 2:
            other = random.randrange(len(data) // 4) * 4
            data[at : at + 4] = data[other : other + 4]
        elif kind == 3:  # perhaps in a vtable
            half = at + random.choice((0, 2))
            data[half : half + 2] = random.choice((0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20)).to_bytes(2, "little")
        else:
            data = data[: max(16, at)]
            break
    fast = reader._read_in_columns(bytes(data), None)
    if fast is None:
        return
    try:
        plain = reader._read_plainly(bytes(data), None, False)
    except ModelError as error:
        raise AssertionError(f"columns accept what is refused: {error}") from error
    same(fast, plain)


BASES = [dumps(random_network(seed, 12, "current")) for seed in range(6)]
BASES += [plain_dumps(random_network(seed, 12, "current")) for seed in range(6)]


def test_a_mapped_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_engine.armnn.files.READ_WHOLE", 16)
    data = next(data for data in BASES if reader._read_in_columns(data, None) is not None)
    (tmp_path / "m.armnn").write_bytes(data)
    buffer, mapped = open_model(tmp_path / "m.armnn")
    assert mapped is not None
    fast = reader._read_in_columns(buffer, mapped)
    assert fast is not None
    same(fast, reader._read_plainly(buffer, mapped, False))


def test_a_field_that_lies_over_the_offset_of_the_vtable() -> None:
    """The Verifier does not mind; tables that hold the same otherwise differ in it."""
    net = Net()
    key = net.input((1, 4))
    for _ in range(8):
        key = net.activation(key, "TanH", 1.0, 1.0)
    net.output(key)
    data = bytearray(dumps(net.graph))
    decoder = Decoder(bytes(data), schema())
    layers = decoder.table("SerializedGraph", decoder.root())["layers"]
    tag = schema().layers["Activation"].tag
    places = [decoder.peek_offset(one["layer"], 1) for one in layers if one["layer_type"] == tag]
    (vtable,) = {decoder.vtable(place)[0] for place in places}
    assert len(set(places)) == 8
    data[vtable + 4 : vtable + 6] = (1).to_bytes(2, "little")  # activationFunction
    graph = reader._read_plainly(bytes(data), None, False)
    assert len({str(node["params"]) for _, node in graph.nodes(data=True) if node["type"] == "Activation"}) > 1
    read_both(bytes(data))
