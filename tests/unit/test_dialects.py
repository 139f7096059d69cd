"""The four dialects, told from their bytes, and what each can hold."""

from __future__ import annotations

import pytest

import fusion_engine as fe
from fusion_engine.errors import ModelError
from fusion_engine.schema import DIALECTS, Schema, compiled, schema
from tests.support.encode import Encoder, Tagged
from tests.support.rawfile import info, layer, pack, slot_in, slot_out


def small(dialect: str, *middle: dict[str, object], last: int = 0) -> bytes:
    """Input 0 -> ... -> Output 9."""
    return pack(
        [
            layer("Input", 0, [], [slot_out()], name="in", dialect=dialect),
            *middle,
            layer("Output", 9, [slot_in(last)], name="out", dialect=dialect),
        ],
        dialect,
        inputIds=[0],
        outputIds=[9],
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_told_and_kept(dialect: str) -> None:
    softmax = layer("Softmax", 1, [slot_in(0)], [slot_out()], dialect=dialect, descriptor={"beta": 0.5})
    graph = fe.loads(small(dialect, softmax, last=1))
    # 19.05 and what followed read alike unless a layer with a moved number is in the file
    assert graph.graph["dialect"] == ("current" if dialect == "19.05" else dialect)
    assert graph.nodes[1]["type"] == "Softmax"
    assert graph.nodes[1]["params"]["beta"] == 0.5
    assert graph.graph["feature_versions"] == (0, 0, 0)
    assert (graph.graph["inputs"], graph.graph["outputs"]) == ((0,), (9,))
    written = fe.dumps(graph)
    assert fe.loads(written).graph["dialect"] == graph.graph["dialect"]
    assert fe.difference(graph, fe.loads(written)) is None


@pytest.mark.parametrize("kind", ["Quantize", "Dequantize", "Merge", "Switch"])
@pytest.mark.parametrize("dialect", ["19.05", "current"])
def test_the_stored_layer_type_tells_19_05_from_what_followed(dialect: str, kind: str) -> None:
    outputs = [slot_out(index=n) for n in range(2 if kind == "Switch" else 1)]
    inputs = [slot_in(0, index=n) for n in range(2 if kind in ("Merge", "Switch") else 1)]
    graph = fe.loads(small(dialect, layer(kind, 1, inputs, outputs, dialect=dialect), last=1))
    assert graph.graph["dialect"] == dialect
    assert graph.nodes[1]["type"] == kind


def test_a_19_02_convolution_has_no_dilation() -> None:
    dialect = "19.02"
    weights = {"info": info([2, 1, 1, 2]), "data": Tagged("IntData", {"data": [0x3F800000] * 4})}
    conv = layer(
        "Convolution2d",
        1,
        [slot_in(0)],
        [slot_out()],
        dialect=dialect,
        descriptor={"strideX": 2, "strideY": 3, "biasEnabled": True, "dataLayout": "NHWC"},
        weights=weights,
        biases={"info": info([2]), "data": Tagged("IntData", {"data": [0, 0]})},
    )
    graph = fe.loads(small(dialect, conv, last=1))
    params = graph.nodes[1]["params"]
    assert (params["strideX"], params["biasEnabled"], params["dataLayout"]) == (2, True, "NHWC")
    assert "dilationX" not in params
    assert fe.difference(graph, fe.loads(fe.dumps(graph))) is None


def test_layers_that_no_release_numbers_so_are_refused() -> None:
    facts = dict(compiled()["current"])
    members = list(facts["unions"]["Layer"])
    facts["unions"] = {**facts["unions"], "Layer": {m: tag for tag, m in enumerate(["FloorLayer", *members], 3)}}
    odd = Schema("current", facts)
    encoder = Encoder(odd)
    layers = [layer("Input", 0, [], [slot_out()]), layer("Output", 1, [slot_in(0)])]
    data = bytes(encoder.finish(encoder.table(odd.root, {"layers": layers, "inputIds": [0], "outputIds": [1]})))
    with pytest.raises(ModelError, match="no released schema numbers its layers so"):
        fe.loads(data)


def test_feature_versions_in_an_old_numbering_are_refused() -> None:
    body = [layer("Input", 0, [], [slot_out()], dialect="seed"), layer("Output", 1, [slot_in(0)], dialect="seed")]
    assert schema("seed").layers["Input"].tag == 2
    # the current root table over layers that carry the seed's tags
    mixed = dict(compiled()["current"])
    mixed["unions"] = {**mixed["unions"], "Layer": {**mixed["unions"]["Layer"], "InputLayer": 2, "OutputLayer": 4}}
    encoder = Encoder(Schema("current", mixed))
    root = {"layers": body, "inputIds": [0], "outputIds": [1], "featureVersions": {"bindingIdsScheme": 1}}
    with pytest.raises(ModelError, match="featureVersions in a file whose layers are numbered as in the seed dialect"):
        fe.loads(bytes(encoder.finish(encoder.table("SerializedGraph", root))))


def test_an_old_file_with_a_layer_it_cannot_hold_is_not_written() -> None:
    graph = fe.loads(small("seed"))
    graph.add_node(5, type="Convolution2d", outputs=graph.nodes[0]["outputs"], params={})
    fe.connect(graph, 0, 5)
    with pytest.raises(ModelError, match="Convolution2d"):
        fe.dumps(graph)
