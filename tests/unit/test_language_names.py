from __future__ import annotations

import pytest

from fusion_engine.language.names import Quantity, find_quantity, quantities
from fusion_engine.schema import schema
from fusion_engine.spellings import SPELLINGS, SUCCESSORS, spellings

TYPES = sorted(schema().layers)


@pytest.mark.parametrize("type_name", TYPES)
def test_every_descriptor_field_can_be_named(type_name: str) -> None:
    descriptor = schema().layers[type_name].descriptor
    for field in descriptor.fields if descriptor else ():
        quantity = find_quantity(type_name, field.name)
        assert quantity is not None
        assert quantity.name == field.name
        if field.kind == "enum":
            assert quantity.kind == "enum"
            assert quantity.values == tuple(schema().enums[field.type].values)
        elif field.kind == "scalar":
            assert quantity.kind == {"bool": "bool", "float": "float"}.get(field.type, "int")
        else:
            assert quantity.kind == "list"


@pytest.mark.parametrize("type_name", TYPES)
def test_names_that_every_layer_has(type_name: str) -> None:
    assert find_quantity(type_name, "name") == Quantity("name", "string")
    tensors = [p for p in ("output", "input", "output3", "input12") if find_quantity(type_name, f"{p}.dataType")]
    assert tensors == {
        "Input": ["output", "output3"],
        "Constant": ["output", "output3"],
        "Output": ["input", "input12"],
    }.get(type_name, ["output", "input", "output3", "input12"])


@pytest.mark.parametrize(
    ("type_name", "name", "kind"),
    [
        ("Convolution2d", "kernel", "dimension"),
        ("Convolution2d", "kernel.w", "int"),
        ("Convolution2d", "dilation.h", "int"),
        ("Convolution2d", "stride", "dimension"),
        ("DepthwiseConvolution2d", "kernel.h", "int"),
        ("TransposeConvolution2d", "kernel", "dimension"),
        ("TransposeConvolution2d", "stride.w", "int"),
        ("Pooling2d", "kernel", "dimension"),
        ("Pooling3d", "kernel.d", "int"),
        ("Pooling3d", "stride.d", "int"),
        ("Convolution3d", "dilation.d", "int"),
        ("FullyConnected", "channels", "int"),
        ("FullyConnected", "weights.n", "int"),
        ("FullyConnected", "bias.scale", "float"),
        ("Activation", "act", "enum"),
        ("Activation", "act.alpha", "float"),
        ("Activation", "act.beta", "float"),
        ("Softmax", "output.shape", "dimension"),
        ("Softmax", "output.bytes", "int"),
        ("Softmax", "output.perAxis", "bool"),
        ("Softmax", "input.scale", "float"),
        ("Softmax", "input.offset", "int"),
        ("BatchNormalization", "eps", "float"),
        ("Addition", "operation", "enum"),
        ("ResizeBilinear", "method", "enum"),
        ("ResizeBilinear", "targetWidth", "int"),
        ("Abs", "operation", "enum"),
        ("Greater", "operation", "enum"),
    ],
)
def test_kinds(type_name: str, name: str, kind: str) -> None:
    quantity = find_quantity(type_name, name)
    assert quantity is not None
    assert (quantity.name, quantity.kind) == (name, kind)


@pytest.mark.parametrize(
    ("type_name", "name"),
    [
        ("TransposeConvolution2d", "dilation"),
        ("Convolution2d", "kernel.d"),
        ("Pooling2d", "channels"),
        ("Pooling2d", "weights.n"),
        ("BatchNormalization", "kernel"),
        ("Softmax", "act"),
        ("Softmax", "output.x"),
        ("Softmax", "output"),
        ("Softmax", "output01.n"),
        ("Softmax", "output-1.n"),
        ("Softmax", "outputs.n"),
        ("Convolution2d", "weights1.n"),
        ("Subtraction", "method"),
        ("Input", "input.n"),
        ("Output", "output1.n"),
    ],
)
def test_names_that_a_layer_has_not(type_name: str, name: str) -> None:
    assert find_quantity(type_name, name) is None


def test_a_former_name_finds_the_field() -> None:
    former = find_quantity("Activation", "function")
    assert former is not None
    assert former == find_quantity("Activation", "activationFunction")


def test_extents() -> None:
    assert quantities("Convolution2d")["kernel"].parts == (2,)
    assert quantities("Convolution3d")["kernel"].parts == (3,)
    assert quantities("Softmax")["output.shape"].parts == (2, 3)


def test_spellings() -> None:
    for old, (new, field, value) in SPELLINGS.items():
        assert old in schema().layers
        assert spellings(old) == (old, new)
        assert old in spellings(new)
        assert spellings(new)[0] == new
        if field is not None:
            quantity = find_quantity(new, field)
            assert quantity is not None
            assert value in quantity.values
            assert find_quantity(old, field) == quantity
    assert set(SUCCESSORS) == {"ElementwiseBinary", "ElementwiseUnary", "Comparison", "Concat", "Resize"}
    assert sum(len(olds) for olds in SUCCESSORS.values()) == len(SPELLINGS) == 12
