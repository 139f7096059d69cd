"""Reading: what loads and as what, what is refused and where the message points."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.armnn import bulk, files
from fusion_engine.errors import ModelError, UnsupportedLayerError
from fusion_engine.network import Storage
from fusion_engine.schema import Schema, compiled, schema
from fusion_engine.tensor import DTYPES, PAYLOADS
from tests.support.encode import Encoder, Tagged
from tests.support.rawfile import info, layer, pack, slot_in, slot_out

RELU = {"activationFunction": "ReLu"}
INPUT = layer("Input", 7, [], [slot_out()])


def chain(dialect: str = "current", **relu: Any) -> bytes:
    """Input 7 -> Activation 4 -> Output 9, stored backwards."""
    return pack(
        [
            layer("Output", 9, [slot_in(4)], name="out", binding_id=5, dialect=dialect),
            layer(
                "Activation", 4, [slot_in(7)], [slot_out()], name="relu", dialect=dialect, descriptor={**RELU, **relu}
            ),
            layer("Input", 7, [], [slot_out()], name="in", binding_id=3, dialect=dialect),
        ],
        inputIds=[3],
        outputIds=[5],
        featureVersions={"bindingIdsScheme": 1},
    )


def constant(tensor: dict[str, Any], **options: Any) -> bytes:
    """Constant -> Output."""
    out = tensor.get("info", info())
    return pack(
        [layer("Constant", 0, [], [slot_out(out)], input=tensor), layer("Output", 1, [slot_in(0)], name="out")],
        outputIds=[1],
        **options,
    )


def tagged(data_type: str, values: list[int]) -> dict[str, Any]:
    """A ConstTensor of integers as real writers store the type."""
    return {
        "info": info([len(values)], data_type),
        "data": Tagged(PAYLOADS[DTYPES[data_type].itemsize], {"data": values}),
    }


def test_wiring_goes_by_index_not_by_position() -> None:
    graph = fe.loads(chain())
    assert {key: node["type"] for key, node in graph.nodes.items()} == {9: "Output", 4: "Activation", 7: "Input"}
    assert sorted(graph.edges(data="slots")) == [(4, 9, ((0, 0),)), (7, 4, ((0, 0),))]
    assert (graph.graph["inputs"], graph.graph["outputs"]) == ((7,), (9,))
    assert (graph.nodes[7]["binding_id"], graph.nodes[9]["binding_id"]) == (3, 5)
    again = fe.loads(fe.dumps(graph))
    assert [again.nodes[key]["name"] for key in range(3)] == ["in", "relu", "out"]
    assert list(again.edges) == [(0, 1), (1, 2)]


def test_params_hold_every_field_with_the_schema_defaults() -> None:
    graph = fe.loads(chain(b=float(np.float32(0.1))))
    assert graph.nodes[4]["params"] == {"activationFunction": "ReLu", "a": 0.0, "b": float(np.float32(0.1))}
    with pytest.raises(TypeError, match="immutable"):
        graph.nodes[4]["params"]["a"] = 1.0


@pytest.mark.parametrize("data_type", list(DTYPES))
def test_every_data_type_survives(data_type: str) -> None:
    graph = fe.loads(constant(tagged(data_type, [0, 1, 2])))
    tensor = graph.nodes[0]["constants"]["input"]
    assert tensor.info.data_type == data_type
    assert tensor.data.dtype == DTYPES[data_type]
    assert tensor.tobytes() == np.array([0, 1, 2], f"<i{DTYPES[data_type].itemsize}").tobytes()
    again = fe.loads(fe.dumps(graph))
    assert fe.difference(graph, again) is None


@pytest.mark.parametrize("data_type", ["QAsymmS8", "Float16"])
def test_an_untagged_constant_gets_its_width_from_its_type_and_its_tag_when_written(data_type: str) -> None:
    stored = tagged(data_type, [1, 2, 3])
    untagged = dict(stored, data=Tagged(stored["data"].member, stored["data"].table))
    data = bytearray(constant(untagged))
    # the tag byte of the only ConstTensor: the one place whose change makes the payload's type NONE
    tag = {"QAsymmS8": 1, "Float16": 2}[data_type]
    places = [at for at, byte in enumerate(data) if byte == tag and _untags(data, at)]
    assert len(places) == 1
    data[places[0]] = 0
    graph = fe.loads(data)
    tensor = graph.nodes[0]["constants"]["input"]
    assert tensor.untagged
    assert ["BFloat16" in w for w in graph.graph.get("warnings", ())] == [True] * (data_type == "Float16")
    assert tensor.tobytes() == np.array([1, 2, 3], f"<i{DTYPES[data_type].itemsize}").tobytes()
    again = fe.loads(fe.dumps(graph)).nodes[0]["constants"]["input"]
    assert not again.untagged
    assert again.tobytes() == tensor.tobytes()


def _untags(data: bytearray, at: int) -> bool:
    changed = bytearray(data)
    changed[at] = 0
    try:
        return bool(fe.loads(changed).nodes[0]["constants"]["input"].untagged)
    except (ModelError, KeyError):
        return False


def test_a_scalar_has_the_shape_of_one() -> None:
    tensor = {"info": {"dataType": "Float32"}, "data": Tagged("IntData", {"data": [0x3F800000]})}
    graph = fe.loads(constant(tensor))
    found = graph.nodes[0]["constants"]["input"]
    assert found.data.shape == ()
    assert found.data == 1.0


def test_mutable_bytes_are_copied_and_arrays_are_read_only() -> None:
    data = bytearray(constant(tagged("Float32", [0x3F800000, 0x40000000])))
    graph = fe.loads(data)
    data[:] = bytes(len(data))
    array = graph.nodes[0]["constants"]["input"].data
    assert array.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 3.0


def test_soft_relu_and_unknown_enum_values_stay() -> None:
    graph = fe.loads(chain(activationFunction="SoftReLu"))
    assert graph.nodes[4]["params"]["activationFunction"] == "SoftReLu"
    unknown = fe.loads(chain(activationFunction=99))
    assert unknown.nodes[4]["params"]["activationFunction"] == 99
    assert fe.loads(fe.dumps(unknown)).nodes[1]["params"]["activationFunction"] == 99


def test_names_that_are_no_utf8_survive() -> None:
    odd = b"\xff\xfe/\xe5\x8d\xb7\n".decode("utf-8", "surrogateescape")
    data = pack(
        [layer("Input", 0, [], [slot_out()], name=odd), layer("Output", 1, [slot_in(0)], name="x" * 70000)],
        inputIds=[0],
        outputIds=[1],
    )
    graph = fe.loads(data)
    assert graph.nodes[0]["name"] == odd
    again = fe.loads(fe.dumps(graph))
    assert [again.nodes[key]["name"] for key in (0, 1)] == [odd, "x" * 70000]


def test_missing_names_slots_and_dimensions_become_empty() -> None:
    bare = {"layer": Tagged("ActivationLayer", {"base": {"index": 3}})}
    graph = fe.loads(pack([bare]))
    assert graph.nodes[3] == {"type": "Activation", "name": "", "params": None, "constants": {}, "outputs": ()}
    assert [p.message for p in fe.validate(graph) if "descriptor" in p.message] != []


def test_overridden_tensor_info_is_kept() -> None:
    other = info([2, 2], "Float32")
    slot = slot_in(0, isOverridden=True, overriddenTensorInfo=other)
    graph = fe.loads(
        pack([layer("Input", 0, [], [slot_out()]), layer("Output", 1, [slot])], inputIds=[0], outputIds=[1])
    )
    assert graph.nodes[1]["overrides"][0][0] is True
    assert graph.nodes[1]["overrides"][0][1].shape == (2, 2)
    again = fe.loads(fe.dumps(graph))
    assert again.nodes[1]["overrides"] == graph.nodes[1]["overrides"]


@pytest.mark.parametrize(
    ("layers", "place", "reason"),
    [
        (
            [
                layer("Input", 7, [], [slot_out()]),
                layer("Activation", 4, [slot_in(99)], [slot_out()], name="r", descriptor=RELU),
            ],
            "layer 4 'r'",
            "input slot 0 is connected to output slot 0 of layer 99, and no layer has that index",
        ),
        (
            [
                layer("Input", 7, [], [slot_out()]),
                layer("Activation", 4, [slot_in(7, 3)], [slot_out()], descriptor=RELU),
            ],
            "layer 4 'x'",
            "output slot 3 of layer 7, which has 1 outputs",
        ),
        ([layer("Floor", 1, [], []), layer("Floor", 1, [], [])], "layer 1 'x'", "another layer has the index 1 too"),
        (
            [layer("Floor", 1, [slot_in(1, index=0), slot_in(1, index=0)], [slot_out()])],
            "layer 1 'x'",
            "its input slots are numbered [0, 0], not 0, 1, ...",
        ),
        (
            [layer("Floor", 1, [], [slot_out(index=1)])],
            "layer 1 'x'",
            "its output slots are numbered [1], not 0, 1, ...",
        ),
        (
            [layer("Floor", 1, [slot_in(2)], [slot_out()]), layer("Floor", 2, [slot_in(1)], [slot_out()])],
            None,
            "feed each other in a cycle",
        ),
        ([{}], "the layer at position 0", "the layer is empty"),
    ],
)
def test_broken_wiring_is_refused(layers: list[dict[str, Any]], place: str | None, reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        fe.loads(pack(layers))
    assert reason in caught.value.reason
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        ({"inputIds": [8]}, "inputIds names 8, and no Input of this file has that id"),
        ({"outputIds": [7]}, "outputIds names 7, and no Output of this file has that id"),
        ({"inputIds": [7, 7]}, "inputIds names 7 twice"),
    ],
)
def test_listed_ids_must_be_there_once(root: dict[str, Any], reason: str) -> None:
    layers = [layer("Input", 7, [], [slot_out()]), layer("Output", 9, [slot_in(7)])]
    with pytest.raises(ModelError, match=reason):
        fe.loads(pack(layers, **root))


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (
            {"info": info([4], "Float32"), "data": Tagged("IntData", {"data": [1, 2, 3]})},
            r"a constant tensor of shape \[4\] with 3 elements of Float32",
        ),
        (
            {"info": info([4], "Float32"), "data": Tagged("ByteData", {"data": [1, 2, 3, 4]})},
            r"a Float32 tensor stored as ByteData: its elements have 4 bytes \(IntData\)",
        ),
        ({"info": info([4], "Float32")}, r"a constant tensor of Float32 \[4\] without its data"),
        ({"info": info([4], "Float32"), "data": Tagged("IntData", {})}, "without its data"),
        ({"data": Tagged("IntData", {"data": [1]})}, "a constant tensor without its TensorInfo"),
        ({"info": info([1], 17), "data": Tagged("IntData", {"data": [1]})}, "DataType 17"),
    ],
)
def test_constants_that_do_not_fit_are_refused(tensor: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        fe.loads(pack([layer("Constant", 0, [], [slot_out()], name="w", input=tensor)]))
    assert caught.value.place in ("layer 0 'w'", "the layer at position 0")


def test_an_unknown_layer_is_named_by_tag_and_index() -> None:
    data = bytearray(pack([layer("Floor", 5, [], []), layer("ScatterNd", 6, [], [], descriptor={})]))
    tag = schema().layers["ScatterNd"].tag
    places = [at for at, byte in enumerate(data) if byte == tag]
    errors = []
    for at in places:
        changed = bytearray(data)
        changed[at] = 200
        try:
            fe.loads(changed)
        except UnsupportedLayerError as error:
            errors.append(str(error))
        except ModelError:
            pass
    assert len(errors) == 1
    assert "union tag 200" in errors[0]
    assert "index 6" in errors[0]


def test_fields_of_a_newer_release_are_refused_or_dropped_with_a_warning() -> None:
    facts = dict(compiled()["current"])
    facts["tables"] = dict(facts["tables"])
    facts["tables"]["ActivationDescriptor"] = [
        *facts["tables"]["ActivationDescriptor"],
        [3, "c", "float", 0.0, None],
    ]
    newer = Schema("current", facts)
    encoder = Encoder(newer)
    relu = layer("Activation", 0, [], [slot_out()], descriptor={**RELU, "c": 2.0})
    data = bytes(encoder.finish(encoder.table(newer.root, {"layers": [relu], "inputIds": [], "outputIds": []})))
    with pytest.raises(
        ModelError, match=r"ActivationDescriptor has a field in slot 3 that no release up to 24\.08 has"
    ):
        fe.loads(data)
    graph = fe.loads(data, lenient=True)
    assert graph.nodes[0]["params"] == {"activationFunction": "ReLu", "a": 0.0, "b": 0.0}
    assert graph.graph["warnings"] == (
        "the layer at position 0: ActivationDescriptor has a field in slot 3 that no release up to 24.08 has; "
        "it was dropped",
    )


@pytest.mark.parametrize("data", [b"", b"\xff" * 4, b"\xff" * 64, bytes(64), b"ARMN" * 8, b"PK\x03\x04" + bytes(40)])
def test_what_is_no_armnn_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.armnn"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        fe.load(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_identifier_is_neither_needed_nor_minded() -> None:
    data = chain()
    root = struct.unpack_from("<I", data, 0)[0]
    # every other offset is relative, so that 8 more bytes in front change only the first
    padded = struct.pack("<I", root + 8) + b"ARMN" + bytes(4) + data[4:]
    assert fe.difference(fe.loads(padded), fe.loads(data)) is None


def test_cut_anywhere_it_is_one_error(tmp_path: Path) -> None:
    data = chain()
    for length in range(len(data)):
        with pytest.raises(ModelError):
            fe.loads(data[:length])


def test_any_byte_may_be_wrong() -> None:
    data = chain()
    outcomes = {"loads": 0, "refused": 0}
    for at in range(len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 4):
            changed = bytearray(data)
            changed[at] = value
            try:
                fe.loads(changed)
                outcomes["loads"] += 1
            except ModelError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 100


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.armnn", "No such file"), (tmp_path, "is a directory")):
        with pytest.raises(ModelError, match=reason):
            fe.load(path)
    os.mkfifo(tmp_path / "pipe.armnn")
    with pytest.raises(ModelError, match="no regular file"):
        fe.load(str(tmp_path / "pipe.armnn"))


def test_a_large_file_is_mapped_and_a_change_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READ_WHOLE", 16)
    path = tmp_path / "big.armnn"
    data = constant(tagged("Float32", list(range(1000))))
    path.write_bytes(data)
    graph = fe.load(path)
    assert graph.nodes[0]["constants"]["input"].origin is not None
    fe.save(graph, tmp_path / "copy.armnn")
    assert fe.difference(graph, fe.load(tmp_path / "copy.armnn")) is None
    fe.save(graph, path)  # over the file that the graph maps
    assert path.read_bytes() == (tmp_path / "copy.armnn").read_bytes()
    fe.save(graph, tmp_path / "again.armnn")
    with open(path, "r+b") as file:
        file.write(b"\0")
    mapped = fe.load(tmp_path / "again.armnn")
    with open(tmp_path / "again.armnn", "ab") as file:
        file.write(b"\0")
    with pytest.raises(ModelError, match="changed while in use"):
        fe.save(mapped, tmp_path / "other.armnn")
    assert not (tmp_path / "other.armnn").exists()


def test_what_is_no_path_and_no_bytes_is_the_same_kind_of_error() -> None:
    for path in (None, 7, b"x.armnn"):
        with pytest.raises(ModelError, match="a path is a str or a Path"):
            fe.load(path)  # type: ignore[arg-type]
        with pytest.raises(ModelError, match="a path is a str or a Path"):
            fe.save(fe.new_network(), path)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="bytes of a file"):
        fe.loads("model.armnn")  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**32 - 1, 2**32 - 1, 2**32 - 1]])
def test_shapes_that_no_array_can_have_are_refused(shape: list[int]) -> None:
    values = [0] * (0 if 0 in shape else 1)
    with pytest.raises(ModelError, match="no array can have that shape"):
        fe.loads(constant({"info": info(shape), "data": Tagged("IntData", {"data": values})}))


def test_layers_that_share_their_slots_are_refused() -> None:
    """Shared vectors would multiply: 300 layers of 300 slots each, from a file with 300 slots in all."""
    encoder = Encoder(schema())
    shared = [slot_in(0, index=number) for number in range(300)]
    offset = encoder._ready_reference(schema().tables["LayerBase"].by_name["inputSlots"])(shared)
    plain = encoder._ready_reference
    encoder._ready_reference = lambda f: (lambda value: offset) if f.name == "inputSlots" else plain(f)  # type: ignore[method-assign]
    layers = [layer("Floor", number, shared, []) for number in range(300)]
    root = encoder.table(schema().root, {"layers": layers, "inputIds": [], "outputIds": []})
    with pytest.raises(ModelError, match="share their slots"):
        fe.loads(bytes(encoder.finish(root)))


def test_many_inputs_are_listed_in_linear_time() -> None:
    layers = [layer("Input", number, [], [slot_out()], binding_id=number) for number in range(3000)]
    graph = fe.loads(pack(layers, inputIds=list(range(3000)), featureVersions={"bindingIdsScheme": 1}))
    assert graph.graph["inputs"] == tuple(range(3000))


def test_a_change_of_a_mapped_file_is_noticed_wherever_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READ_WHOLE", 16)
    shutil.copy(Path(__file__).parents[2] / "examples" / "models" / "digits.armnn", tmp_path / "m.armnn")
    graph, same = fe.load(tmp_path / "m.armnn"), fe.load(tmp_path / "m.armnn")
    assert fe.equal(graph, same)
    os.truncate(tmp_path / "m.armnn", 100)
    for work in (lambda: fe.equal(graph, same), lambda: fe.fuse(graph, fe.load_rules("armnn"))):
        with pytest.raises(ModelError, match="changed while in use"):
            work()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x1c\x00\x00\x7fTFL3" + bytes(40), "a TensorFlow Lite model"),
        (b"PK\x03\x04" + bytes(40), "a zip archive"),
        (b"\x08\x07\x12\x07pytorch" + bytes(40), "an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS, not the file itself"),
    ],
)
def test_what_else_a_file_may_be(data: bytes, kind: str) -> None:
    with pytest.raises(ModelError, match=f"^this is no .armnn file: it looks like {kind} "):
        fe.loads(data)


def test_an_empty_file() -> None:
    with pytest.raises(ModelError, match=r"^the file is empty$"):
        fe.loads(b"")


# What real readers abort on


def stored(order: tuple[int, ...], unnamed: tuple[int, ...] = ()) -> bytes:
    """Input 0 -> Activation 1 -> Activation 2 -> Output 3, in an order, some without names."""
    names = {key: None if key in unnamed else f"layer {key}" for key in range(4)}
    layers = [
        layer("Input", 0, [], [slot_out()], name=names[0]),
        layer("Activation", 1, [slot_in(0)], [slot_out()], name=names[1], descriptor=RELU),
        layer("Activation", 2, [slot_in(1)], [slot_out()], name=names[2], descriptor=RELU),
        layer("Output", 3, [slot_in(2)], name=names[3]),
    ]
    versions = {"bindingIdsScheme": 1, "weightsLayoutScheme": 1, "constantTensorsAsInputs": 1}
    return pack([layers[key] for key in order], inputIds=[0], outputIds=[0], featureVersions=versions)


@pytest.mark.parametrize("fewest", [1, 64], ids=["in columns", "plainly"])
@pytest.mark.parametrize(
    ("order", "unnamed", "expected"),
    [
        ((0, 1, 2, 3), (), None),
        ((0, 2, 1, 3), (), None),
        ((0, 1, 3, 2), (), None),
        ((0, 3, 1, 2), (), Storage(misplaced=(2,))),
        ((3, 0, 1, 2), (), Storage(misplaced=(1,), first=False)),
        ((1, 0, 2, 3), (), Storage(first=False)),
        ((0, 1, 2, 3), (0, 3), Storage(unnamed=(0, 3))),
        ((0, 1, 2, 3), (2,), Storage(unnamed=(2,))),
    ],
)
def test_storage(
    monkeypatch: pytest.MonkeyPatch, fewest: int, order: tuple[int, ...], unnamed: tuple[int, ...], expected: Any
) -> None:
    monkeypatch.setattr(bulk, "FEWEST_LAYERS", fewest)
    graph = fe.loads(stored(order, unnamed))
    assert graph.graph.get("storage") == expected
    assert "storage" not in fe.loads(fe.dumps(graph)).graph


def test_indices_beyond_the_file_are_misplaced() -> None:
    assert fe.loads(chain()).graph["storage"] == Storage(misplaced=(4,), first=False)
