"""The releases: their facts, and what keeps each from reading a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.armnn import writer
from fusion_engine.network import FrozenDict, Network, Storage
from fusion_engine.releases.facts import WEIGHT_TYPES, Release, find_release, release_names, releases, since
from fusion_engine.releases.needs import MOST_NAMED, needs_of
from fusion_engine.schema import schema, slot_facts
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.nets import Net
from tests.support.real_armnn import SHARED

FACTS = SHARED / "schema" / "dialects.json"


def names_of(version: dict[str, Any]) -> list[str]:
    """The releases of an entry of dialects.json, patches among them, as this project names them."""
    return [name.removeprefix("v") for name in version["version"].split(",") if "doc" not in name]


# Facts


def test_names() -> None:
    assert release_names() == (
        *("seed", "19.02", "19.05", "19.08", "19.11", "20.02", "20.05", "20.08", "20.11", "21.02", "21.05", "21.08"),
        *("21.11", "22.02", "22.05", "22.08", "22.11", "23.02", "23.05", "23.08", "23.11", "24.02", "24.05", "24.08"),
    )
    assert [release.number for release in releases()] == list(range(24))


@pytest.mark.skipif(not FACTS.exists(), reason=f"there are no wire facts in {FACTS}")
def test_layers_fields_and_values_are_those_of_the_published_schemas() -> None:
    told = set()
    for version in json.loads(FACTS.read_text("utf-8")):
        layers = {name.removesuffix("Layer") for name in version["union Layer"]}
        fields = {f"{table}.{row[1]}" for table, rows in version["tables"].items() for row in rows}
        values = {f"{enum}.{value}" for enum, entries in version["enums"].items() for value in entries}
        if "ActivationDescriptor.function" in fields:
            fields = fields - {"ActivationDescriptor.function"} | {"ActivationDescriptor.activationFunction"}
        for name in names_of(version):
            release = find_release(name)
            told.add(release.name)
            assert release.layers == layers, name
            assert {f for f in fields if f not in release.fields} == set(), name
            # a union field has a row for its tag in one of the two, and structs are no tables
            assert {f for f in release.fields if f not in fields and not f.endswith("_type")} == set(), name
            assert {v for v in values if v not in release.values and not v.startswith("LayerType.")} == set(), name
            extra = {v for v in release.values if v not in values and not v.startswith("LayerType.")}
            assert extra == set(), name
    assert told == set(release_names())


def test_every_name_in_the_facts_is_one_of_the_schema() -> None:
    newest = releases()[-1]
    assert newest.layers == frozenset(schema().layers)
    for release in releases():
        for fault in release.faults:
            kind = schema().layers[fault.layer]
            assert fault.field is None or (kind.descriptor is not None and fault.field in kind.descriptor.by_name)
            assert fault.lacks is None or fault.lacks in {path[-1] for path in kind.tensors}
        assert release.on_inputs <= set(WEIGHT_TYPES)


def test_releases_only_grow_within_the_current_dialect() -> None:
    current = [release for release in releases() if release.dialect == "current"]
    for older, newer in pairwise(current):
        assert older.layers <= newer.layers
        assert older.fields <= newer.fields
        assert older.values <= newer.values
        assert older.on_inputs <= newer.on_inputs
        assert older.feature_versions <= newer.feature_versions


@pytest.mark.parametrize(
    ("name", "versions", "on_inputs"),
    [
        ("seed", (0, 0, 0), set()),
        ("19.02", (0, 0, 0), set()),
        ("19.11", (0, 0, 0), set()),
        ("20.02", (1, 0, 0), set()),
        ("21.05", (1, 0, 0), set()),
        ("21.08", (1, 1, 1), {"FullyConnected"}),
        ("21.11", (1, 1, 1), {"FullyConnected", "Convolution3d"}),
        ("22.02", (1, 1, 1), {"FullyConnected", "Convolution3d"}),
        ("22.05", (1, 1, 1), set(WEIGHT_TYPES)),
        ("24.08", (1, 1, 1), set(WEIGHT_TYPES)),
    ],
)
def test_form(name: str, versions: tuple[int, int, int], on_inputs: set[str]) -> None:
    release = find_release(name)
    assert release.feature_versions == versions
    assert release.on_inputs == on_inputs


def test_types_with_weights_are_those_of_the_slot_facts() -> None:
    movable = {name for name, facts in slot_facts().items() if facts.get("weights") in ("either", "inputs")}
    assert movable == set(WEIGHT_TYPES)


def test_where_a_reader_looks_for_weights() -> None:
    assert find_release("20.08").form("Convolution2d", 1) == "members"
    assert find_release("22.02").form("Convolution2d", 1) == "members"
    assert find_release("22.02").form("FullyConnected", 1) == "inputs"
    assert find_release("22.05").form("Convolution2d", 1) == "inputs"
    assert find_release("22.05").form("Convolution2d", 0) == "members"
    assert find_release("22.02").form("Convolution3d", 0) == "inputs"


@pytest.mark.parametrize(
    ("kind", "name", "first"),
    [
        ("layers", "Addition", "seed"),
        ("layers", "StandIn", "19.11"),
        ("layers", "ScatterNd", "24.05"),
        ("fields", "Convolution2dDescriptor.dilationX", "19.05"),
        ("fields", "GatherLayer.descriptor", "20.08"),
        ("fields", "InputSlot.isOverridden", "23.08"),
        ("fields", "LstmInputParams.inputLayerNormWeights", "19.08"),
        ("values", "DataType.QuantisedSymm16", "19.05"),
        ("values", "DataType.QAsymmS8", "20.05"),
        ("values", "ActivationFunction.Gelu", "23.11"),
        ("values", "ActivationFunction.Nothing", None),
    ],
)
def test_since(kind: str, name: str, first: str | None) -> None:
    assert since(kind, name) == first


@pytest.mark.parametrize("name", ["19.08.1", "19.11.1", "22.05.01", "22.11.01"])
def test_patches(name: str) -> None:
    assert find_release(name).name == name[:5]


@pytest.mark.parametrize(
    ("name", "words"), [("23.8", "did you mean '23.08'"), ("", "known are seed, 19.02"), ("v20.08", "'20.08'")]
)
def test_no_such_release(name: str, words: str) -> None:
    with pytest.raises(fe.ConversionError, match="there is no release") as caught:
        find_release(name)
    assert words in str(caught.value)
    assert caught.value.obstacles == ()


# What keeps a release from reading a network


def reading(graph: Network, name: str) -> fe.Reading:
    return next(one for one in fe.loads_in(graph) if one.release == name)


def loading(graph: Network) -> list[str]:
    return [one.release for one in fe.loads_in(graph) if one.loads]


def told(graph: Network, name: str) -> list[str]:
    return [str(obstacle) for obstacle in reading(graph, name).obstacles]


def activation_net(**params: Any) -> Net:
    net = Net(feature_versions=(1, 0, 0))
    net.output(net.layer("Activation", net.input((1, 4)), params=params, name="act"))
    return net


def test_a_plain_network_loads_from_the_release_on_whose_ids_it_has() -> None:
    assert loading(activation_net().graph) == list(release_names()[5:])
    older = Net(feature_versions=(0, 0, 0))
    older.output(older.activation(older.input((1, 4))))
    assert loading(older.graph) == list(release_names()[2:])


def test_ids_without_ends_are_no_obstacle() -> None:
    net = Net()
    net.layer("Activation", net.input((1, 4), listed=False), params={"activationFunction": "ReLu"})
    assert loading(net.graph)[0] == "19.05"


@pytest.mark.parametrize("dialect", ["seed", "19.02"])
def test_old_dialects_load_where_they_are_from_only(dialect: str) -> None:
    net = Net(dialect, spelling="old")
    x = net.input((1, 4))
    net.output(net.addition(x, x))
    assert loading(net.graph) == [dialect]
    assert told(net.graph, "20.08") == [f"its layers are numbered as in the {dialect} dialect"]


def test_the_dialect_of_19_05_differs_in_few_layers() -> None:
    alike = Net("19.05")
    alike.output(alike.layer("Floor", alike.input((1, 4))))
    assert loading(alike.graph) == list(release_names()[2:])
    renumbered = Net("19.05")
    renumbered.output(renumbered.layer("Dequantize", renumbered.input((1, 4))))
    assert loading(renumbered.graph) == ["19.05"]


def test_a_layer_type_says_nothing_more_where_it_is_missing() -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.layer("ElementwiseBinary", x, x, params={"operation": "Power"}, name="power"))
    assert told(net.graph, "20.08") == [
        "ElementwiseBinary: there is no such layer (possible since 23.05): layer 1 'power'"
    ]
    assert told(net.graph, "23.05") == ["the BinaryOperation Power (possible since 23.08): layer 1 'power'"]
    assert loading(net.graph)[0] == "23.08"


def infos(**fields: Any) -> Callable[[Net], None]:
    def build(net: Net) -> None:
        shape = fields.pop("shape", (1, 4))
        net.output(net.layer("Floor", net.input(shape), outputs=[TensorInfo(shape, **fields)], name="x"))

    return build


def layers(kind: str, **params: Any) -> Callable[[Net], None]:
    def build(net: Net) -> None:
        facts = slot_facts()[kind]["inputs"]
        count = facts if isinstance(facts, int) else 1
        x = net.input((1, 4, 4, 1))
        net.output(net.layer(kind, *[x] * count, params=params, name="x"))

    return build


@pytest.mark.parametrize(
    ("build", "first", "reason"),
    [
        (infos(data_type="QAsymmS8"), "20.05", "the DataType QAsymmS8 (possible since 20.05): layer 1 'x'"),
        (infos(data_type="QAsymmU8"), "20.02", None),
        (infos(data_type="Signed64"), "21.05", "the DataType Signed64 (possible since 21.05): layer 1 'x'"),
        (
            infos(data_type="QSymmS16", quantization_scales=(1.0, 2.0)),
            "20.05",
            "per-axis quantization (possible since 20.05): layer 1 'x'",
        ),
        (infos(shape=(), dimensionality=2), "20.08", "a scalar (possible since 20.08): layer 1 'x'"),
        (infos(shape=(), dimensionality=0), "20.08", "a shape of unknown rank (possible since 20.08): layer 1 'x'"),
        (infos(dimension_specificity=(True, True)), "20.02", None),
        (
            infos(dimension_specificity=(True, False)),
            "21.02",
            "extents that are not known (possible since 21.02): layer 1 'x'",
        ),
        (layers("Pad", padList=(0, 0), padValue=0.0), "20.02", None),
        (layers("Softmax", beta=1.0, axis=-1), "20.02", None),
        (
            layers("Softmax", beta=1.0, axis=1),
            "21.11",
            "axis 1 in a SoftmaxDescriptor (possible since 21.11): layer 1 'x'",
        ),
        (
            layers("Pad", padList=(1, 1), paddingMode="Reflect"),
            "21.11",
            "paddingMode Reflect in a PadDescriptor (possible since 21.11): layer 1 'x'",
        ),
        (
            layers("Resize", method="Bilinear", alignCorners=True),
            "20.08",
            "alignCorners True in a ResizeDescriptor (possible since 20.08): layer 1 'x'",
        ),
        (
            layers("Activation", activationFunction="Gelu"),
            "23.11",
            "the ActivationFunction Gelu (possible since 23.11): layer 1 'x'",
        ),
        (
            layers("ElementwiseUnary", operation="Neg"),
            "20.11",
            "ElementwiseUnary that is a layer type that the release writes and does not read "
            "(possible since 20.11): layer 1 'x'",
        ),
        (layers("Fill", value=1.0), "20.08", "Fill: there is no such layer (possible since 20.08): layer 1 'x'"),
        (
            layers("Fill", value=2.0),
            "22.02",
            "Fill that has a value other than 1, and the reader fills with 1 whatever the file says "
            "(possible since 22.02): layer 1 'x'",
        ),
        (layers("Pooling2d", poolType="Average"), "20.02", None),
        (
            layers("Pooling2d", poolType="L2"),
            "22.02",
            "Pooling2d that pools by L2, which the reader aborts on (possible since 22.02): layer 1 'x'",
        ),
    ],
)
def test_what_is_missing(build: Callable[[Net], None], first: str, reason: str | None) -> None:
    net = Net()
    build(net)
    names = release_names()
    assert loading(net.graph) == list(names[names.index(first) :])
    before = names[names.index(first) - 1]
    if reason is not None:
        assert reason in told(net.graph, before)


def test_soft_relu_is_read_by_no_release() -> None:
    graph = activation_net(activationFunction="SoftReLu").graph
    assert loading(graph) == []
    assert told(graph, "24.08") == [
        "Activation that is a SoftReLu, which every release reads as a Sigmoid: layer 1 'act'"
    ]


def test_unknown_enum_values() -> None:
    graph = activation_net(activationFunction=99).graph
    assert told(graph, "24.08") == ["ActivationFunction 99, which no release up to 24.08 has: layer 1 'act'"]


def test_gather_needs_a_descriptor_since_it_has_one() -> None:
    net = Net()
    key = net.layer("Gather", net.input((3, 2)), net.constant([1], "Signed32"), outputs=[(1, 2)], name="gather")
    net.output(key)
    net.graph.nodes[key]["params"] = None
    assert loading(net.graph) == ["20.02", "20.05"]
    assert told(net.graph, "20.08") == ["Gather without the descriptor that the reader wants: layer 2 'gather'"]
    net.graph.nodes[key]["params"] = FrozenDict(axis=1)
    assert told(net.graph, "20.05") == [
        "a descriptor of Gather that says something (possible since 20.08): layer 2 'gather'",
        "axis 1 in a GatherDescriptor (possible since 20.08): layer 2 'gather'",
    ]


def test_member_tensors_of_later_releases() -> None:
    infos_ = [TensorInfo((1, 2))] * 4
    net = Net(feature_versions=(0, 0, 0))
    x = net.input((1, 2))
    names = slot_facts()["Lstm"]["tensors"]
    tensors = {name: Tensor.of([1.0, 2.0]) for name in [*names, "forgetLayerNormWeights"]}
    net.output(net.layer("Lstm", x, x, x, outputs=infos_, constants=tensors, name="lstm"))
    assert told(net.graph, "19.05") == [
        "the tensor forgetLayerNormWeights of a Lstm (possible since 19.08): layer 1 'lstm'"
    ]
    assert loading(net.graph)[0] == "19.08"


def test_an_lstm_without_cifg_needs_a_tensor_that_nothing_uses() -> None:
    net = Net()
    x = net.input((1, 2))
    held = [*slot_facts()["Lstm"]["tensors"], *slot_facts()["Lstm"]["tensors_if"][0]["tensors"]]
    tensors = {name: Tensor.of([1.0, 2.0]) for name in held}
    params = {"cifgEnabled": False}
    key = net.layer("Lstm", x, x, x, outputs=[TensorInfo((1, 2))] * 4, params=params, constants=tensors)
    assert loading(net.graph) == []
    net.graph.nodes[key]["constants"] = FrozenDict({**tensors, "cellToInputWeights": Tensor.of([0.0, 0.0])})
    assert loading(net.graph)[0] == "20.02"


def test_untagged_constants_load_nowhere() -> None:
    net = Net()
    tensor = Tensor(TensorInfo((1,), "QAsymmS8"), np.zeros(1, "i1"), untagged=True)
    net.output(net.layer("Constant", outputs=[tensor.info], constants={"input": tensor}, name="c"))
    assert loading(net.graph) == []
    assert "a constant without its payload's type" in told(net.graph, "24.08")[0]


def test_untagged_constants_are_written_with_their_type() -> None:
    net = Net(feature_versions=(1, 1, 1))
    tensor = Tensor(TensorInfo((1,), "QAsymmS8"), np.zeros(1, "i1"), untagged=True)
    net.output(net.layer("Constant", outputs=[tensor.info], constants={"input": tensor}))
    assert next(one for one in fe.loads_in(net.graph, written=True) if one.loads).release == "20.05"
    assert loading(fe.loads(fe.dumps(net.graph)))[0] == "20.05"


@pytest.mark.parametrize(
    ("storage", "words", "last"),
    [
        (Storage(unnamed=(1,)), "a layer without a layerName, which readers crash on: layer 1 'relu'", None),
        (Storage(misplaced=(1,)), "at a position where no layer with outputs is stored: layer 1 'relu'", None),
        (Storage(first=False), "the layer with index 0 is not the first of the file", "20.08"),
        (Storage(unnamed=(7,)), None, "24.08"),
    ],
)
def test_how_a_file_is_stored(storage: Storage, words: str | None, last: str | None) -> None:
    net = Net(feature_versions=(1, 0, 0))
    net.output(net.activation(net.input((1, 2)), name="relu"))
    net.graph.graph["storage"] = storage
    assert (loading(net.graph) or [None])[-1] == last
    assert words is None or any(words in text for text in told(net.graph, "24.08"))
    assert all(one.loads for one in fe.loads_in(net.graph, written=True) if "20.02" <= one.release < "seed")
    assert "storage" not in fe.convert(net.graph, "20.08").graph
    assert net.graph.graph["storage"] is storage


@pytest.mark.parametrize(("outputs", "first", "last"), [(1, "21.08", "23.05"), (3, "23.08", "24.08")])
def test_outputs_of_sequence_lstms(outputs: int, first: str, last: str) -> None:
    net = Net()
    x = net.input((1, 2, 2))
    tensors = {name: Tensor.of([1.0]) for name in slot_facts()["UnidirectionalSequenceLstm"]["tensors"]}
    infos_ = [TensorInfo((1, 2, 2))] * outputs
    net.output(net.layer("UnidirectionalSequenceLstm", x, x, x, outputs=infos_, constants=tensors))
    names = release_names()
    assert loading(net.graph) == list(names[names.index(first) : names.index(last) + 1])


def test_overridden_infos() -> None:
    net = activation_net()
    net.graph.nodes[1]["overrides"] = FrozenDict({0: (False, TensorInfo((1, 4)))})  # type: ignore[dict-item]
    assert loading(net.graph)[0] == "20.02"
    net.graph.nodes[1]["overrides"] = FrozenDict({0: (True, TensorInfo((2, 2)))})  # type: ignore[dict-item]
    assert loading(net.graph)[0] == "23.08"
    net.graph.nodes[1]["overrides"] = FrozenDict({0: (True, None)})  # type: ignore[dict-item]
    assert loading(net.graph) == []


# Weights


def conv_net(form: str, versions: tuple[int, int, int], kind: str = "conv") -> Net:
    net = Net(form=form, feature_versions=versions)
    x = net.input((1, 2, 2, 1))
    if kind == "conv":
        layer = net.conv(x, np.ones((1, 1, 1, 1)), [0.0], name="w")
    elif kind == "depthwise":
        layer = net.depthwise(x, np.ones((1, 1, 1, 1)), name="w")
    else:
        layer = net.fully_connected(net.input((1, 2)), np.ones((2, 2)), [0.0, 0.0], name="w")
    net.output(layer)
    return net


@pytest.mark.parametrize(
    ("form", "versions", "kind", "first", "last"),
    [
        ("member", (1, 0, 0), "conv", "20.02", "24.08"),
        ("member", (1, 1, 1), "conv", "20.02", "22.02"),
        ("constant", (1, 1, 1), "conv", "22.05", "24.08"),
        ("constant", (1, 1, 0), "conv", None, None),
        ("member", (1, 1, 1), "fully connected", "20.02", "21.05"),
        ("constant", (1, 1, 1), "fully connected", "21.08", "24.08"),
        ("constant", (1, 0, 1), "fully connected", "21.08", "22.02"),
        ("member", (1, 0, 0), "depthwise", "20.02", "24.08"),
        ("member", (1, 1, 0), "depthwise", "21.08", "24.08"),
        ("member", (1, 1, 1), "depthwise", "21.08", "22.02"),
        ("constant", (1, 1, 1), "depthwise", "22.05", "24.08"),
    ],
)
def test_weights(form: str, versions: tuple[int, int, int], kind: str, first: str | None, last: str | None) -> None:
    names = release_names()
    expected = [] if first is None or last is None else names[names.index(first) : names.index(last) + 1]
    assert loading(conv_net(form, versions, kind).graph) == list(expected)


def test_reasons_of_weights() -> None:
    assert told(conv_net("constant", (1, 1, 1)).graph, "20.08") == [
        "Convolution2d whose weights or bias come on input slots (possible since 22.05): layer 3 'w'"
    ]
    assert told(conv_net("member", (1, 1, 1)).graph, "22.05") == [
        "Convolution2d that holds its weights itself, and the reader looks for them on input slots: layer 1 'w'"
    ]
    assert told(conv_net("constant", (1, 1, 0)).graph, "22.05") == [
        "Convolution2d whose weights come on input slots, and constantTensorsAsInputs is 0: layer 3 'w'"
    ]
    assert told(conv_net("member", (1, 1, 0), "depthwise").graph, "20.08") == [
        "depthwise weights [1,H,W,I*M] (weightsLayoutScheme 1) (possible since 21.08): layer 1 'w'"
    ]


def test_computed_weights() -> None:
    net = Net()
    x, w = net.input((1, 2, 2, 1)), net.input((1, 1, 1, 1))
    net.output(net.conv(x, w, name="conv"))
    assert loading(net.graph)[0] == "22.05"
    assert told(net.graph, "22.02") == [
        "Convolution2d whose weights or bias are computed by another layer (possible since 22.05): layer 2 'conv'"
    ]


def test_constants_of_files_with_scheme_0() -> None:
    net = Net(feature_versions=(1, 0, 0))
    net.output(net.addition(net.input((1, 4)), net.constant([[1, 2, 3, 4]], name="c")))
    assert loading(net.graph)[-1] == "22.02"
    assert told(net.graph, "22.05") == [
        "Constant layers, which the reader permutes where weightsLayoutScheme is 0: layer 1 'c'"
    ]


# Texts, cautions, errors


def test_messages_name_few_layers_and_obstacles_have_all() -> None:
    net = Net()
    x = net.input((1, 4))
    for number in range(MOST_NAMED + 2):
        net.output(net.layer("Tile", x, params={"m_Multiples": (1, 1)}, name=f"tile{number}"))
    (obstacle,) = reading(net.graph, "23.05").obstacles
    assert obstacle.since == "23.08"
    assert len(obstacle.layers) == len(obstacle.places) == MOST_NAMED + 2
    assert str(obstacle).endswith("layer 1 'tile0', layer 3 'tile1', layer 5 'tile2' and 2 more")


def test_one_reason_gathers_layers_of_several_types() -> None:
    net = Net(data_type="QAsymmS8")
    net.output(net.activation(net.input((1, 4))))
    (obstacle,) = reading(net.graph, "20.02").obstacles
    assert obstacle.layers == (0, 1)


def test_caution_of_outputs() -> None:
    net = Net()
    x = net.input((1, 4))
    net.output(net.activation(x), name="first")
    net.output(net.activation(x, "TanH"), name="second")
    cautious = [one.release for one in fe.loads_in(net.graph) if one.cautions]
    assert cautious == ["20.02", "20.05", "20.08", "20.11", "21.02", "21.05", "21.08", "21.11"]
    assert "layer 4 'second' at position 1" in reading(net.graph, "20.08").cautions[0]
    assert reading(net.graph, "20.08").loads
    split = Net()
    halves = split.splitter(split.input((1, 4)), 1, (2, 2))
    split.output((halves, 0))
    split.output((halves, 1))
    assert not any(one.cautions for one in fe.loads_in(split.graph))


def test_what_is_no_network() -> None:
    with pytest.raises(fe.FuseError, match=r"a network is a networkx\.DiGraph, not list"):
        fe.loads_in([])  # type: ignore[arg-type]
    with pytest.raises(fe.FuseError):
        fe.loads_in(nx.MultiDiGraph())
    broken: Network = nx.DiGraph()
    broken.add_node(1)
    with pytest.raises(fe.ModelError, match="cannot be held against releases"):
        fe.loads_in(broken)


def test_the_walk_is_done_once_for_all_releases() -> None:
    needs = needs_of(activation_net(activationFunction="Elu").graph)
    held: dict[str, tuple[fe.Obstacle, ...]] = {release.name: needs.obstacles(release) for release in releases()}
    assert held["20.05"] == ()
    assert [str(o) for o in held["20.02"]] == ["the ActivationFunction Elu (possible since 20.05): layer 1 'act'"]


def test_release_is_hashable_and_shown_short() -> None:
    release: Release = find_release("20.08")
    assert hash(release)
    assert len(repr(release)) < 400


def test_a_file_of_too_many_tables_loads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fe.convert(activation_net(activationFunction="ReLu").graph, "20.08")
    count = writer.count_tables(graph)
    assert count == 2 + (4 + 2) + (4 + 1 + 2) + (4 + 1)  # root and versions; Input; Activation; Output
    monkeypatch.setattr(writer, "MOST_TABLES", count)
    before = fe.loads_in(graph)
    assert next(one.release for one in before if one.loads) == "20.02"
    monkeypatch.setattr(writer, "MOST_TABLES", count - 1)
    for former, one in zip(before, fe.loads_in(graph, written=True), strict=True):
        *others, last = one.obstacles
        assert tuple(others) == former.obstacles
        assert str(last) == (
            f"its file has {count} tables, and the reader takes at most {count - 1}: split the network"
        )
        assert last.layers == ()


def test_what_cannot_be_written_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`loads_in` leaves to `validate` what it has against a network."""
    graph = activation_net(activationFunction="ReLu").graph
    del graph.nodes[2]["binding_id"]
    assert fe.validate(graph)
    before = fe.loads_in(graph)
    monkeypatch.setattr(writer, "MOST_TABLES", 1)
    assert fe.loads_in(graph) == before


def test_connections_without_slots_are_no_matter_of_releases() -> None:
    net = Net()
    net.output(net.activation(net.input((1, 2)), "ReLu"))
    del net.graph.edges[0, 1]["slots"]
    assert len(fe.loads_in(net.graph)) == len(release_names())
