"""TensorInfos read in columns: each says what the plain reader makes of it, and those that say the same are one."""

from __future__ import annotations

from typing import Any

import pytest

import fusion_engine as fe
from fusion_engine.armnn import reader
from fusion_engine.armnn.bulk import FEWEST_LAYERS
from fusion_engine.errors import ModelError
from fusion_engine.network import Network
from tests.support.rawfile import info, layer, pack, slot_in

KINDS: list[dict[str, Any]] = [
    {},
    {"dataType": "Float32"},
    info([]),
    info([3]),
    info([2**32 - 1]),
    info([1, 2, 3, 4, 5, 6, 7, 8]),
    info([1, 2, 3, 4, 5, 6, 7, 8, 9]),
    info([2, 3], "QAsymmS8", quantizationScale=0.1, quantizationOffset=-128),
    info([2, 3], "QAsymmS8", quantizationScale=0.1, quantizationOffset=127),
    info([2, 3], "Signed32", quantizationScale=-0.0),
    info([2, 3], "QSymmS8", quantizationScales=[0.5, 0.25], quantizationDim=1),
    info([2, 3], "QSymmS8", quantizationScales=[0.5, 0.75], quantizationDim=1),
    info([2, 3], "QSymmS8", quantizationScales=[], quantizationDim=1),
    info([2, 3], isConstant=True),
    info([2, 3], dimensionality=0),
    info([], dimensionality=2),
    info([1], dimensionality=2),
    info([2, 3], dimensionSpecificity=[]),
    info([2, 3], dimensionSpecificity=[True, True]),
    info([2, 3], dimensionSpecificity=[True, False]),
    info([2, 3], dimensionSpecificity=[False, True]),
    info([2, 3], dimensionSpecificity=[True] * 8),
    info([2, 3], dimensionSpecificity=[True] * 9),
    info([2, 3], dimensionSpecificity=[True] * 8 + [False]),
]


def network(infos: list[dict[str, Any]]) -> bytes:
    """As many chains of an Input, an Activation and an Output as columns want, with TensorInfos in turn."""
    layers: list[dict[str, Any]] = []
    for number in range(max(FEWEST_LAYERS, len(infos))):
        key, kind = 3 * number, infos[number % len(infos)]
        layers += [
            layer("Input", key, [], [{"index": 0, "tensorInfo": dict(kind)}], binding_id=key),
            layer("Activation", key + 1, [slot_in(key)], [{"index": 0, "tensorInfo": dict(kind)}], descriptor={}),
            layer("Output", key + 2, [slot_in(key + 1)], binding_id=key + 2),
        ]
    return pack(layers, featureVersions={"bindingIdsScheme": 1})


def outputs(graph: Network) -> list[Any]:
    return [info for _, node in graph.nodes(data=True) for info in node["outputs"]]


def test_they_say_what_the_plain_reader_makes_of_them() -> None:
    data = network(KINDS)
    columns = reader._read_in_columns(data, None)
    assert columns is not None
    found, plain = outputs(columns), outputs(reader._read_plainly(data, None, False))
    assert found == plain
    assert list(map(repr, found)) == list(map(repr, plain))  # -0.0 equals 0.0
    assert {len(info.shape) for info in found} == {0, 1, 2, 8, 9}
    assert {len(info.dimension_specificity) for info in found} == {0, 2, 8, 9}


def test_those_that_say_the_same_are_one() -> None:
    kinds = [kind for kind in KINDS if "quantizationScales" not in kind and len(kind.get("dimensions", ())) <= 8]
    kinds = [kind for kind in kinds if len(kind.get("dimensionSpecificity", ())) <= 8]
    assert len(kinds) > 15
    graph = reader._read_in_columns(network(kinds), None)
    assert graph is not None
    assert len({id(info) for info in outputs(graph)}) == len(kinds)


def test_a_bool_is_true_by_any_bit() -> None:
    """Bytes other than 0 and 1, which no writer stores."""
    data = network([info([2, 3], dimensionSpecificity=[True, True])])
    odd = data.replace(b"\x02\0\0\0\x01\x01", b"\x02\0\0\0\x80\x02")
    assert odd != data
    graph = reader._read_in_columns(odd, None)
    assert graph is not None
    assert {info.dimension_specificity for info in outputs(graph)} == {(True, True)}
    assert outputs(graph) == outputs(reader._read_plainly(odd, None, False))


def test_an_unknown_data_type_is_refused() -> None:
    with pytest.raises(ModelError, match="DataType 77 is not one that the current dialect has"):
        fe.loads(network([info(), info([2, 3], 77)]))


def test_a_vector_that_ends_beyond_the_file_is_refused() -> None:
    data = network([info([2, 3], dimensionSpecificity=[True, True])])
    broken = data.replace(b"\x02\0\0\0\x01\x01", b"\xff\xff\xff\x00\x01\x01")
    assert broken != data
    assert reader._read_in_columns(broken, None) is None
    with pytest.raises(ModelError, match="a vector of 16777215 elements lies outside the file"):
        fe.loads(broken)
