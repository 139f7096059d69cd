"""The decoder at its edges: what lies just within the file, and just outside; what is counted, to the byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.armnn.decode import MAX_BUFFER, Decoder
from fusion_engine.armnn.sharing import Sharing
from fusion_engine.errors import ModelError, UnsupportedLayerError
from fusion_engine.network import FrozenDict
from fusion_engine.schema import schema
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net
from tests.support.rawfile import layer, pack, slot_in, slot_out


def over(data: bytes, allowed: int | None = None) -> Decoder:
    decoder = Decoder(data, schema())
    if allowed is not None:
        decoder.allowed = allowed
    return decoder


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def fault(work: Callable[[], Any]) -> str:
    with pytest.raises(ModelError) as caught:
        work()
    return str(caught.value)


# What is counted

HEAD = words(0)
"""No element is at byte 0, where the root's offset is."""


@pytest.mark.parametrize(
    ("data", "read", "expected", "taken"),
    [
        (HEAD + words(3) + b"abc\0", lambda d: d.string(4), "abc", 4 + 3 + 1),
        (HEAD + words(0) + bytes(4), lambda d: d.string(4), "", 4 + 1),
        (HEAD + words(2, 7, 8) + bytes(4), lambda d: d.scalars("I", 4), (7, 8), 4 + 8),
        (HEAD + words(4) + bytes([1, 2, 3, 4]) + bytes(4), lambda d: d.scalars("B", 4), (1, 2, 3, 4), 4 + 4),
        (HEAD + words(0) + bytes(4), lambda d: d.scalars("h", 4), (), 4),
        (HEAD + words(3) + bytes(12), lambda d: d.block(4, 4), 3, 4 + 12),
        (HEAD + words(0) + bytes(4), lambda d: d.tables("TensorInfo", 4), (), 4),
    ],
    ids=["string", "empty string", "scalars", "bytes", "no scalars", "block", "no tables"],
)
def test_vectors_are_counted_to_the_byte(
    data: bytes, read: Callable[[Decoder], Any], expected: Any, taken: int
) -> None:
    decoder = over(data, taken)
    assert read(decoder) == expected
    assert read(decoder) == expected  # once, however often it is read
    assert "lie one over another at byte 4" in fault(lambda: read(over(data, taken - 1)))


def test_vectors_of_tables_are_counted_with_their_tables() -> None:
    """Two offsets to one TensorInfo without fields: 4 bytes for each offset, the length, and the table once."""
    vtable, vector = struct.pack("<HH", 4, 4), words(2, 12, 8)
    data = HEAD + vector + vtable + struct.pack("<i", 4) + bytes(8)
    assert over(data, 12 + 4).tables("TensorInfo", 4) == ({}, {})
    assert "lie one over another" in fault(lambda: over(data, 12 + 4 - 1).tables("TensorInfo", 4))


def test_a_file_may_take_twice_its_bytes() -> None:
    assert over(bytes(40)).allowed == 80


def test_what_layers_share_may_take_four_times_the_file() -> None:
    """Slots, lists and texts of descriptors, shapes and scales: four bytes an entry."""
    slots = Sharing(over(bytes(10)))
    slots.slots(10)
    slots.slots(0)
    assert "layers share their slots, names or lists over and over" in fault(lambda: slots.slots(1))
    infos = Sharing(over(bytes(10)))
    infos.infos([TensorInfo((1, 2, 3), "QSymmS8", 0.0, 0, (0.5, 0.5), 0, 1, (True, True, False)), None])
    infos.slots(2)
    assert "over and over" in fault(lambda: infos.slots(1))
    lists = Sharing(over(bytes(10)))
    descriptor = schema().layers["Splitter"].descriptor
    views = {"viewOrigins": ((0, 0), (0, 1)), "numViews": 2, "numDimensions": 2}
    lists.params(descriptor, {"origins": views, "viewSizes": ((1, 1),)})  # 2 + 2 + 2, and 1 + 2
    lists.params(descriptor, None)
    lists.params(None, {})
    lists.slots(1)
    assert "over and over" in fault(lambda: lists.count(1))


# Within the file and outside


@pytest.mark.parametrize("length", range(4, 17))
def test_a_string_ends_with_a_zero_within_the_file(length: int) -> None:
    data = HEAD + words(3) + b"abc\0" + bytes(8)
    if length < 12:
        assert "outside the file" in fault(lambda: over(data[:length]).string(4))
    else:
        assert over(data[:length]).string(4) == "abc"
    assert "without its final zero" in fault(lambda: over(HEAD + words(3) + b"abcd" + bytes(4)).string(4))


@pytest.mark.parametrize("length", range(16, 21))
def test_a_table_lies_within_the_file_to_its_last_byte(length: int) -> None:
    """TensorInfo's dimensionality in the last four bytes, its vtable before it."""
    slot = schema().tables["TensorInfo"].by_name["dimensionality"].slot
    entries = [4 + 2 * (slot + 1), 8, *[0] * slot, 4]
    vtable = struct.pack(f"<{len(entries)}H", *entries)
    vtable += bytes(-len(vtable) % 4)
    start = 4 + len(vtable)
    data = HEAD + vtable + struct.pack("<iI", len(vtable), 7)
    assert over(data).table("TensorInfo", start) == {"dimensionality": 7}
    cut = data[: len(data) - (20 - length)]
    if length < 20:
        assert "outside the file" in fault(lambda: over(cut).table("TensorInfo", start))


@pytest.mark.parametrize("extra", range(8))
def test_a_tables_first_word_lies_within_the_file(extra: int) -> None:
    """A file of any length, and a table as far behind as an offset can lead."""
    data = bytes(16 + extra)
    for position in range(8, 28, 4):
        if position + 4 <= len(data):
            assert over(data).table("TensorInfo", position) == {}
        else:
            assert "a table lies outside the file" in fault(lambda at=position: over(data).table("TensorInfo", at))
    assert "not aligned" in fault(lambda: over(data).table("TensorInfo", 10))


@pytest.mark.parametrize(
    ("offset", "length", "words_"),
    [
        (4, 24, None),
        (4, 19, "an offset lies outside the file at byte 16 of 19"),
        (6, 24, "an offset that is not aligned at byte 18"),
        (64, 24, "an offset lies outside the file at byte 76 of 24"),
    ],
)
def test_offsets_of_a_field_that_is_looked_at_by_itself(offset: int, length: int, words_: str | None) -> None:
    """A vtable with one field, a table at byte 12 whose field leads 4 bytes on."""
    data = HEAD + struct.pack("<HHHH", 6, 8, offset, 0) + struct.pack("<iI", 8, 4) + bytes(16)
    decoder = over(data[:length])
    if words_ is None:
        assert decoder.peek_offset(12, 0) == 20
        assert decoder.peek_offset(12, 1) == 0
    else:
        assert words_ in fault(lambda: decoder.peek_offset(12, 0))


def test_where_an_offset_leads() -> None:
    decoder = over(bytes(20))
    assert decoder.follow(11, 8) == 19
    assert decoder.follow(1, 8) == 9
    assert "the target of an offset lies outside the file at byte 20 of 20" in fault(lambda: decoder.follow(12, 8))
    assert "an offset of 0 at byte 8" in fault(lambda: decoder.follow(0, 8))
    assert f"an offset of {MAX_BUFFER + 1} at byte 8" in fault(lambda: decoder.follow(MAX_BUFFER + 1, 8))
    assert "the target of an offset lies outside" in fault(lambda: decoder.follow(MAX_BUFFER, 8))


@pytest.mark.parametrize("element", [1, 2, 4])
def test_lengths_that_no_file_has(element: int) -> None:
    most = MAX_BUFFER // element
    assert f"a vector of {most} elements at byte 4" in fault(lambda: over(HEAD + words(most, 0)).length(4, element))
    assert "lies outside the file" in fault(lambda: over(HEAD + words(most - 1, 0)).length(4, element))
    assert "a vector lies outside the file" in fault(lambda: over(bytes(10)).length(8, element))
    assert "a vector that is not aligned" in fault(lambda: over(bytes(20)).length(6, element))


# What is not written is a default


def test_the_first_layer_and_slot_have_no_number_in_a_file() -> None:
    """FlatBuffers leaves a 0 out; Arm NN's own serializer does."""
    layers = [layer("Input", 0, [], [slot_out()]), layer("Floor", 1, [slot_in(0)], [slot_out()])]
    for number, one in enumerate(layers):
        base = one["layer"].table["base"]
        base = base.get("base", base)
        base["inputSlots"] = [{**slot} for slot in base["inputSlots"]]
        for slot in (*base["inputSlots"], *base["outputSlots"]):
            del slot["index"]
        if not number:
            del base["index"]
    graph = fe.loads(pack(layers))
    assert list(graph) == [0, 1]
    assert graph.edges[0, 1]["slots"] == ((0, 0),)


def test_an_unknown_layer_without_an_index_is_layer_0() -> None:
    one = layer("ScatterNd", 0, [], [], descriptor={})
    del one["layer"].table["base"]["index"]
    data = pack([one])
    tag = schema().layers["ScatterNd"].tag
    errors = []
    for at in (at for at, byte in enumerate(data) if byte == tag):
        try:
            fe.loads(data[:at] + b"\xc8" + data[at + 1 :])
        except UnsupportedLayerError as error:
            errors.append(str(error))
        except ModelError:
            pass
    assert len(errors) == 1
    assert "union tag 200" in errors[0]
    assert "index 0" in errors[0]


# What is said of cycles


@pytest.mark.parametrize("layers", [1, 2, 3, 11, 12, 400])
def test_a_cycle_is_told_from_source_to_consumer(layers: int) -> None:
    """From the lowest index on; of one with more than eleven layers the first ten. As `validate` tells it."""
    ring = [layer("Floor", n, [slot_in((n - 1) % layers)], [slot_out()]) for n in reversed(range(layers))]
    numbers = [*map(str, range(layers)), "0"]
    path = " -> ".join(numbers if layers < 12 else [*numbers[:10], "...", "0"])
    assert fault(lambda: fe.loads(pack(ring))) == f"the layers {path} feed each other in a cycle"


# Values that a TensorInfo cannot have


@pytest.mark.parametrize("data_type", [["Float32"], {"Float32"}, {}, None, 3, "Float33"])
def test_data_types_that_are_none(data_type: Any) -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.activation(x))
    info = net.info(x)
    object.__setattr__(info, "data_type", data_type)
    net.graph.nodes[x]["params"] = FrozenDict()
    problems = [str(problem) for problem in fe.validate(net.graph)]
    assert any("which there is not" in text for text in problems), problems
