"""Files and networks that are made to harm: each ends soon, in little memory, with one error or a right result."""

from __future__ import annotations

import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.armnn import bulk
from fusion_engine.armnn.reader import _read_in_columns
from fusion_engine.errors import FusionEngineError, ModelError, RuleError
from fusion_engine.network import FrozenDict, Network
from fusion_engine.tensor import TensorInfo
from tests.support.bombs import (
    Raw,
    overlapping_dimensions,
    overlapping_payloads,
    repeated_slots,
    shared_name,
    shared_pad_list,
)
from tests.support.nets import Net
from tests.support.rawfile import info, layer, pack, slot_in, slot_out

NAN, INFINITY = float("nan"), float("inf")


def cost(work: Callable[[], object]) -> tuple[float, int]:
    """Processor seconds, and the most bytes of memory at once."""
    tracemalloc.start()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def error_of(work: Callable[[], object]) -> FusionEngineError | None:
    """The error that work ends with; any that is not one of ours fails the test."""
    try:
        work()
    except FusionEngineError as error:
        return error
    return None


# Files that are small and want to be large

BOMBS = {
    "dimensions that overlap": (overlapping_dimensions(3000), "lie one over another"),
    "constants that overlap": (overlapping_payloads(1500), "lie one over another"),
    "slots of all layers the same": (repeated_slots(3000, 3000), r"share their slots|are numbered"),
    "one long name": (shared_name(1000, 300_000), "share their slots, names or lists"),
    "one long list": (shared_pad_list(2000, 50_000), "share their slots, names or lists"),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_what_would_expand_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, reason = BOMBS[name]

    def work() -> None:
        with pytest.raises(ModelError, match=reason):
            fe.loads(data)

    seconds, memory = cost(work)
    assert seconds < 10
    assert memory < 100 * len(data) + 2**22
    monkeypatch.setattr(bulk, "FEWEST_LAYERS", 0)
    assert _read_in_columns(data, None) is None


@pytest.mark.parametrize("make", [overlapping_dimensions, overlapping_payloads])
def test_a_little_overlap_is_read(make: Callable[[int], bytes]) -> None:
    """Sharing as such is no fault: at a size at which it is no bomb it loads."""
    assert len(fe.loads(make(4))) in (1, 4)


def test_a_long_name_and_a_long_list_of_one_layer_are_read() -> None:
    assert len(fe.loads(shared_name(1, 10**6)).nodes[0]["name"]) == 10**6
    assert len(fe.loads(shared_pad_list(1, 10**5)).nodes[0]["params"]["padList"]) == 10**5


def test_layers_that_are_as_small_as_can_be() -> None:
    """Memory per byte of the file where it is highest: tables that are nothing but a vtable's offset."""
    data = shared_name(3000, 1)
    _, memory = cost(lambda: fe.loads(data))
    assert memory < 60 * len(data)


@pytest.mark.parametrize("count", [2**32 - 1, 2**31 - 1, 2**30, 2**29, 2**29 - 1])
def test_vectors_of_billions(count: int) -> None:
    data = overlapping_dimensions(2)
    places = [at for at in range(0, len(data) - 3, 4) if struct.unpack_from("<I", data, at)[0] == 2]
    assert len(places) >= 6  # the vector of outputs, and words of the dimensions
    for at in places:
        changed = bytearray(data)
        struct.pack_into("<I", changed, at, count)

        def work(changed: bytes = bytes(changed)) -> None:
            with suppress(ModelError):
                fe.loads(changed)

        assert cost(work)[1] < 2**20


def test_offsets_cannot_lead_backwards_so_tables_form_no_cycle() -> None:
    """An offset that would need to be negative is one of more than 2 GiB."""
    raw = Raw()
    layers = raw.root(1)
    root = struct.unpack_from("<I", raw.data, 0)[0]
    raw.put(layers + 4, "I", (root - layers - 4) % 2**32)
    with pytest.raises(ModelError, match=r"outside the file|an offset of"):
        fe.loads(bytes(raw.data) + bytes(16))


def test_a_table_that_is_its_own_vtable() -> None:
    """An offset of 0 is a vtable of no bytes: a table without fields, and to the C++ Verifier too."""
    data = struct.pack("<Ii", 4, 0) + bytes(56)
    assert len(fe.loads(data)) == 0


# Numbers


@pytest.mark.parametrize("shape", [(2**32 - 1,) * 5, (2**31, 2**31, 2, 1, 1), (65536, 65536, 65536, 65536, 1)])
def test_dimensions_whose_product_overflows(shape: tuple[int, ...]) -> None:
    """They are only numbers on an output, and cannot be those of a constant."""
    net = Net()
    net.output(net.activation(net.input(shape)))
    graph = net.graph
    assert fe.loads(fe.dumps(graph)).nodes[0]["outputs"][0].elements == int(np.prod(np.array(shape, object)))
    fused = fe.fuse(graph, [*fe.load_rules("armnn"), *fe.load_rules("npu")])
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(fused)))) == fe.dumps(graph)
    rule = fe.FusingRule("Activation[output.elements > 9 && output.bytes > 9]", into="Big")
    assert len(fe.fuse(graph, [rule]).graph["fusions"]) == 1
    for words in (0, 1):
        tensor = {"info": info(shape), "data": fe_tagged(words)}
        with pytest.raises(ModelError, match=r"elements of Float32|without its data"):
            fe.loads(pack([layer("Constant", 0, [], [slot_out()], input=tensor)]))


def fe_tagged(words: int) -> object:
    from tests.support.encode import Tagged

    return Tagged("IntData", {"data": [0] * words})


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-45, -3.4e38])
def test_numbers_that_are_none_are_kept_and_fold_to_none(value: float) -> None:
    net = Net()
    x = net.activation(net.input((1, 2)), "BoundedReLu", value, value)
    x = net.activation(x, "ReLu")
    x = net.binary("Maximum", net.binary("Minimum", x, net.constant([value])), net.constant([value]))
    x = net.multiplication(x, net.constant([value]))
    net.output(x)
    graph = net.graph
    written = fe.dumps(graph)
    assert repr(fe.loads(written).nodes[1]["params"]["a"]) == repr(float(np.float32(value)))
    fused = fe.fuse(graph, fe.load_rules("armnn"))
    assert fe.dumps(fe.loads(fe.dumps(fused))) == fe.dumps(fused)
    opaque = fe.fuse(graph, fe.load_rules("npu"))
    assert fe.dumps(fe.unfuse(fe.loads(fe.dumps(opaque)))) == written


@pytest.mark.parametrize("value", [NAN, INFINITY, 3e38])
@pytest.mark.parametrize("where", ["weights", "gamma", "variance", "mean"])
def test_weights_that_are_no_numbers_are_not_folded(value: float, where: str) -> None:
    parts = {"weights": [[[[2.0]]]], "gamma": [2.0], "beta": [1.0], "mean": [0.5], "variance": [1.0]}
    parts[where] = [[[[value]]]] if where == "weights" else [value]
    net = Net(form="member")
    x = net.conv(net.input((1, 1, 1, 1)), parts.pop("weights"))
    net.output(net.batch_norm(x, **parts))  # type: ignore[arg-type]
    fused = fe.fuse(net.graph, fe.load_rules("armnn"))
    for _, node in fused.nodes(data=True):
        if node["type"] == "Convolution2d" and "biases" in node["constants"]:
            assert all(np.isfinite(tensor.data).all() for tensor in node["constants"].values())
    if not np.isfinite(value) and where != "variance":
        assert fused.graph["fusions"] == ()
        assert [refusal.rule for refusal in fused.graph["refusals"]] == ["batch-norm"]


@pytest.mark.parametrize("field", ["strideX", "strideY", "dilationX"])
@pytest.mark.parametrize("number", [0, 2**32 - 1])
def test_strides_of_zero_and_of_billions(field: str, number: int) -> None:
    net = Net(form="member")
    x = net.pad(net.input((1, 3, 3, 1)), [(0, 0), (1, 1), (2**31, 0), (0, 0)])
    x = net.batch_norm(net.conv(x, [[[[1.0]]]]), [1.0], [1.0], [1.0], [1.0])
    net.output(net.pool(x, (1, 1)))
    graph = net.graph
    for key, node in graph.nodes(data=True):
        if node["params"] and field in node["params"]:
            graph.nodes[key]["params"] = FrozenDict({**node["params"], field: number})
    fused = fe.fuse(graph, fe.load_rules("armnn"))
    assert fe.dumps(fe.loads(fe.dumps(fused))) == fe.dumps(fused)
    rule = fe.FusingRule("Convolution2d[stride >= 0x0 && dilation >= 0x0 && kernel.w > 0]", into="C")
    assert len(fe.fuse(graph, [rule]).graph["fusions"]) == 1


@pytest.mark.parametrize("scale", [0.0, -1.0, NAN, INFINITY, 1e-45])
def test_scales_that_are_none(scale: float) -> None:
    """A quantized network with such a scale is read, fused and written; no fold divides by it."""
    quantized = TensorInfo((1, 4), "QAsymmU8", scale, 300)
    net = Net(data_type="QAsymmU8")
    x = net.layer("Quantize", net.layer("Dequantize", net.input((1, 4)), outputs=(TensorInfo((1, 4), "Float32"),)))
    net.output(net.activation(net.activation(x, "BoundedReLu", 6.0, 0.0), "ReLu"))
    graph = net.graph
    for _, node in graph.nodes(data=True):
        node["outputs"] = tuple(
            replace(quantized, shape=found.shape) if found.data_type == "QAsymmU8" else found
            for found in node["outputs"]
        )
    fused = fe.fuse(graph, fe.load_rules("armnn"))
    assert fe.dumps(fe.loads(fe.dumps(fused))) == fe.dumps(fused)


# Rules


def ladder(levels: int) -> Network:
    """Additions of Additions, two at every level, all connected: paths double from level to level."""
    net = Net()
    left, right = net.input((1, 4)), net.input((1, 4))
    for _ in range(levels):
        left, right = net.addition(left, right), net.addition(left, right)
    net.output(net.addition(left, right))
    return net.graph


@pytest.mark.parametrize(
    "text",
    [
        "Addition{(?|Addition{?, ?}):0~, Softmax}",
        "Addition{" + "(?:0~," * 20 + "Softmax" + ")" * 20 + "}",
        "Addition{" + "Addition{" * 12 + "?|Softmax, Softmax" + "}, ?|Softmax" * 12 + "}",
        "Addition{((?:0~):0~):0~, Softmax}",
        "Addition{" + ", ".join(["(?|Addition):0~2"] * 30) + ", Softmax}",
    ],
)
def test_rules_whose_backtracking_explodes(text: str) -> None:
    """They end: with a match, without one, or at the bound on steps with an error that names the rule."""
    graph = ladder(12)
    rule = fe.FusingRule(text, into="X", name="explodes")
    start = time.process_time()
    fault = error_of(lambda: fe.fuse(graph, [rule]))
    assert fault is None or "explodes" in str(fault)
    assert time.process_time() - start < 20


@pytest.mark.parametrize("count", ["99999999999999999999", "4294967296~4294967297", "0~99999999999999999999"])
def test_ranges_of_billions(count: str) -> None:
    try:
        rule = fe.FusingRule(f"Addition{{?:{count}}}", into="X")
    except RuleError:
        return
    assert fe.fuse(ladder(2), [rule]).graph["fusions"] == () or count.startswith("0~")


@pytest.mark.parametrize("digits", [5000, 100_000])
def test_numbers_of_thousands_of_digits(digits: int) -> None:
    """Python refuses to read more than 4300 digits at once: that is an error of the rule."""
    assert sys.get_int_max_str_digits() == 4300
    for text in ("9" * digits, "1." + "9" * digits, "1e" + "9" * digits, "9" * digits + "x3"):
        for rule in (f"Convolution2d[strideX == {text}]", f"Addition{{?:{text}}}"):
            fault = error_of(partial(fe.FusingRule, rule, into="X"))
            assert fault is None or len(str(fault)) < 4 * digits + 2000


def test_a_graph_of_one_cycle_and_itself() -> None:
    for layers in (
        [layer("Floor", 0, [slot_in(0)], [slot_out()])],
        [layer("Floor", n, [slot_in((n + 1) % 2000)], [slot_out()]) for n in range(2000)],
    ):
        with pytest.raises(ModelError, match="feed each other in a cycle") as caught:
            fe.loads(pack(layers))
        assert len(str(caught.value)) < 500
