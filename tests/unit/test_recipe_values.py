"""Values of recipes: descriptors and TensorInfos as JSON, and back."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion_engine.network import FrozenDict, default_params
from fusion_engine.recipe_values import (
    Wrong,
    float_from_json,
    float_to_json,
    info_from_json,
    info_to_json,
    params_from_json,
    params_to_json,
)
from fusion_engine.schema import float32, schema
from fusion_engine.tensor import TensorInfo

ACTIVATION = schema().layers["Activation"]


def bits(value: float) -> int:
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float32(0.1), "0.1"),
        (0.1, "0.1"),
        (6, "6.0"),
        (-0.0, "-0.0"),
        (float32(1e-8), "1e-08"),
        (float32(3.4028234663852886e38), "3.4028235e+38"),
        (1e-45, "1e-45"),
        (16777217.0, "16777216.0"),
        (np.float32(0.3), "0.3"),
        (float("inf"), '"inf"'),
        (float("-inf"), '"-inf"'),
        (1e39, '"inf"'),
        (float("nan"), '"nan"'),
        (-float("nan"), '"nan:ffc00000"'),
    ],
)
def test_floats_are_the_shortest_that_give_the_same_float32(value: float, text: str) -> None:
    found = float_to_json(value)
    assert json.dumps(found) == text
    assert bits(float_from_json(json.loads(text))) == bits(float32(float(value)))


@given(st.integers(0, 2**32 - 1))
def test_every_float32_comes_back_by_its_bits(pattern: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", pattern))[0]
    assert bits(float_from_json(json.loads(json.dumps(float_to_json(value))))) == bits(value)


@pytest.mark.parametrize(
    "value",
    [
        1,
        True,
        None,
        "0.1",
        "NaN",
        "infinity",
        "nan:7fc00000",
        "nan:3f800000",
        "nan:FFC00000",
        1e39,
        float("inf"),
        [1.0],
    ],
)
def test_what_is_no_float(value: Any) -> None:
    with pytest.raises(Wrong):
        float_from_json(value)


@pytest.mark.parametrize("name", sorted(schema().layers))
def test_every_descriptor_at_its_defaults(name: str) -> None:
    kind = schema().layers[name]
    found = params_to_json(kind, FrozenDict())
    assert found is not None
    back = params_from_json(kind, json.loads(json.dumps(found)))
    if kind.descriptor is None:
        assert found == {}
        assert back == {}
    else:
        assert list(found) == [field.name for field in kind.descriptor.fields]
        assert back == default_params(kind.descriptor, schema())


def test_a_missing_descriptor_is_null() -> None:
    assert params_to_json(ACTIVATION, None) is None
    assert params_from_json(ACTIVATION, None) is None


def test_nested_tables_and_lists() -> None:
    kind = schema().layers["Splitter"]
    views = FrozenDict(concatAxis=3, numViews=2, numDimensions=1, viewOrigins=((0,), (4,)))
    params = FrozenDict(origins=views, viewSizes=((4,), (2,)), axis=-1)
    found = params_to_json(kind, params)
    assert found == {
        "origins": {"concatAxis": 3, "numViews": 2, "numDimensions": 1, "viewOrigins": [[0], [4]]},
        "viewSizes": [[4], [2]],
        "hasAxis": False,
        "axis": -1,
    }
    assert params_from_json(kind, found) == {**params, "hasAxis": False}


def test_names_of_older_dialects_and_numbers_of_enums_become_those_of_today() -> None:
    assert params_to_json(ACTIVATION, {"function": "TanH"}) == {"activationFunction": "TanH", "a": 0.0, "b": 0.0}
    assert params_to_json(ACTIVATION, {"activationFunction": 3, "a": np.float32(0.1)}) == {
        "activationFunction": "ReLu",
        "a": 0.1,
        "b": 0.0,
    }
    unknown = params_to_json(ACTIVATION, {"activationFunction": 99})
    assert unknown is not None
    assert unknown["activationFunction"] == 99
    assert params_from_json(ACTIVATION, unknown) == {"activationFunction": 99, "a": 0.0, "b": 0.0}


def test_a_parameter_that_the_type_does_not_have() -> None:
    with pytest.raises(ValueError, match="ActivationDescriptor has no field 'stride'"):
        params_to_json(ACTIVATION, {"stride": 1})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"a": "0.1"}, "has a a that is no float32"),
        ({"a": 1}, "has a a that is no float32"),
        ({"activationFunction": "Relu6"}, "is no ActivationFunction"),
        ({"activationFunction": 3}, "is no ActivationFunction"),
        ({"activationFunction": None}, "is no ActivationFunction"),
        ({"activationFunction": []}, "is no ActivationFunction"),
        ({"extra": 1}, "does not hold exactly the fields of ActivationDescriptor"),
    ],
)
def test_parameters_that_are_none(change: dict[str, Any], reason: str) -> None:
    values = params_to_json(ACTIVATION, {})
    assert values is not None
    with pytest.raises(Wrong, match=reason):
        params_from_json(ACTIVATION, {**values, **change})


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("Convolution2d", "strideX", -1),
        ("Convolution2d", "strideX", 2**32),
        ("Convolution2d", "strideX", 1.0),
        ("Convolution2d", "strideX", True),
        ("Convolution2d", "biasEnabled", 1),
        ("Softmax", "axis", 2**31),
        ("Reshape", "targetShape", 3),
        ("Reshape", "targetShape", ["3"]),
        ("Reshape", "targetShape", [10**30]),
        ("Splitter", "origins", []),
        ("Splitter", "origins", {}),
        ("Splitter", "viewSizes", [1]),
        ("Splitter", "viewSizes", {}),
        ("Concat", "viewOrigins", [[-1]]),
    ],
)
def test_values_that_do_not_fit_their_field(name: str, field: str, value: Any) -> None:
    kind = schema().layers[name]
    values = params_to_json(kind, {})
    assert values is not None
    with pytest.raises(Wrong, match=field):
        params_from_json(kind, {**values, field: value})


@pytest.mark.parametrize("values", [None, [], {"a": 1}, "x"])
def test_a_layer_without_descriptor_has_no_parameters(values: Any) -> None:
    with pytest.raises(Wrong, match="has parameters, and Addition has none"):
        params_from_json(schema().layers["Addition"], values)


FULL = TensorInfo((1, 2), "QSymmS8", float32(0.1), -3, (float32(0.2), 1.0), 1, 1, (True, False), True)


def test_a_tensor_info_with_everything() -> None:
    found = info_to_json(FULL)
    assert found == {
        "dimensions": [1, 2],
        "dataType": "QSymmS8",
        "quantizationScale": 0.1,
        "quantizationOffset": -3,
        "quantizationScales": [0.2, 1.0],
        "quantizationDim": 1,
        "dimensionality": 1,
        "dimensionSpecificity": [True, False],
        "isConstant": True,
    }
    assert info_from_json(found) == FULL
    assert info_to_json(None) is None
    assert info_from_json(None) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dimensions", [-1]),
        ("dimensions", None),
        ("dataType", "Float64"),
        ("dataType", 1),
        ("dataType", []),
        ("quantizationScale", 1),
        ("quantizationOffset", 2**31),
        ("quantizationScales", [0]),
        ("quantizationDim", -1),
        ("dimensionality", "1"),
        ("dimensionSpecificity", [1]),
        ("isConstant", None),
        ("more", 1),
    ],
)
def test_tensor_infos_that_are_none(field: str, value: Any) -> None:
    values = info_to_json(FULL)
    assert values is not None
    with pytest.raises(Wrong):
        info_from_json({**values, field: value})
