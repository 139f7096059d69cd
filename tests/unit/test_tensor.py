"""TensorInfo and Tensor: conversion, read-only data, sharing, comparison by bits."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from fusion_engine.errors import ModelError
from fusion_engine.schema import schema
from fusion_engine.tensor import ALIASES, DTYPES, FLOATS, PAYLOADS, Tensor, TensorInfo, address_of


def test_every_data_type_of_the_schema_has_a_dtype_and_a_payload() -> None:
    assert set(DTYPES) == set(schema().enums["DataType"].values)
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == {
        "Float16": 2,
        "Float32": 4,
        "QuantisedAsymm8": 1,
        "Signed32": 4,
        "Boolean": 1,
        "QuantisedSymm16": 2,
        "QAsymmU8": 1,
        "QSymmS16": 2,
        "QAsymmS8": 1,
        "QSymmS8": 1,
        "Signed64": 8,
    }
    assert {PAYLOADS[dtype.itemsize] for dtype in DTYPES.values()} <= set(schema().unions["ConstTensorData"])
    assert {name for name, dtype in DTYPES.items() if dtype.kind == "f"} == FLOATS
    for former, present in ALIASES.items():
        assert DTYPES[former] == DTYPES[present]


@pytest.mark.parametrize("data_type", DTYPES)
def test_of_converts_and_copies(data_type: str) -> None:
    values = np.array([[0, 1], [2, 3]], dtype=np.float64)
    tensor = Tensor.of(values, data_type, quantization_scale=0.5)
    assert tensor.info == TensorInfo((2, 2), data_type, 0.5)
    assert tensor.data.dtype == DTYPES[data_type]
    assert tensor.data.tolist() == [[0, 1], [2, 3]]
    values[0, 0] = 7
    assert tensor.data[0, 0] == 0


@pytest.mark.parametrize("values", [np.arange(6, dtype=np.float32)[::2], np.arange(3, dtype=">f4") * 2])
def test_of_takes_strided_and_big_endian_arrays(values: Any) -> None:
    tensor = Tensor.of(values)
    assert tensor.tobytes() == np.array([0, 2, 4], "<f4").tobytes()


def test_data_is_read_only_and_the_callers_array_is_not() -> None:
    values = np.zeros(2, np.float32)
    tensor = Tensor(TensorInfo((2,)), values)
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1
    assert values.flags.writeable
    with pytest.raises(FrozenInstanceError):
        tensor.info = TensorInfo((3,))  # type: ignore[misc]


def test_data_is_contiguous() -> None:
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    straight, turned = Tensor(TensorInfo((2, 2)), values), Tensor(TensorInfo((2, 2)), values.T)
    assert turned.data.flags.c_contiguous
    assert turned.tobytes() == np.array([0, 2, 1, 3], np.float32).tobytes()
    assert straight.memory != turned.memory


@pytest.mark.parametrize(
    ("info", "data"),
    [
        (TensorInfo((2,)), np.zeros(3, np.float32)),
        (TensorInfo((2,)), np.zeros(2, np.float64)),
        (TensorInfo((2,), "Signed32"), np.zeros(2, np.float32)),
        (TensorInfo((2,)), np.zeros(2, ">f4")),
    ],
)
def test_info_and_data_must_agree(info: TensorInfo, data: Any) -> None:
    with pytest.raises(ModelError, match="for a tensor of"):
        Tensor(info, data)


def test_with_data_keeps_type_and_quantization() -> None:
    tensor = Tensor.of([[1, 2], [3, 4]], "QAsymmU8", quantization_scale=0.5, quantization_offset=3)
    other = tensor.with_data(np.array([5.0, 6.0]), [1, 2])
    assert other.info == replace(tensor.info, shape=(1, 2))
    assert other.data.tolist() == [[5, 6]]
    assert tensor.with_data(np.array([9, 8, 7, 6])).data.tolist() == [[9, 8], [7, 6]]
    assert tensor.data.tolist() == [[1, 2], [3, 4]]


def test_a_scalar_has_one_element() -> None:
    tensor = Tensor.of(3.0)
    assert (tensor.info.shape, tensor.info.elements, tensor.data.shape) == ((), 1, ())
    assert TensorInfo((2, 0, 3)).elements == 0


def test_what_is_known_of_a_shape() -> None:
    assert TensorInfo((1, 2)).known
    assert not TensorInfo((1, 2), dimensionality=0).known
    assert not TensorInfo((1, 2), dimension_specificity=(True, False)).known
    assert TensorInfo((), dimensionality=2, dimension_specificity=(True,)).known


def test_quantization_compares_what_counts() -> None:
    per_tensor = TensorInfo((1,), "QAsymmU8", 0.5, 3)
    assert per_tensor.quantization == ("QAsymmU8", 0.5, 3)
    assert replace(per_tensor, data_type="QuantisedAsymm8").quantization == per_tensor.quantization
    per_axis = replace(per_tensor, quantization_scales=(0.5, 0.25), quantization_dim=1)
    assert per_axis.quantization == ("QAsymmU8", (0.5, 0.25), 1)
    assert replace(per_axis, quantization_scale=9.0).quantization == per_axis.quantization
    assert replace(per_axis, quantization_dim=0).quantization != per_axis.quantization


def test_memory_is_what_sharing_goes_by() -> None:
    values = np.zeros(4, np.float32)
    a, b = Tensor(TensorInfo((4,)), values), Tensor(TensorInfo((2, 2)), values.reshape(2, 2))
    assert a.memory == b.memory
    assert Tensor.of(values).memory != a.memory
    assert Tensor(TensorInfo((2,)), values[:2]).memory != a.memory


@pytest.mark.parametrize(("values", "data_type"), [([1], "Float23"), ([[1], [1, 2]], "Float32"), (["a"], "Float32")])
def test_values_that_are_none_of_the_type_are_one_kind_of_error(values: list[object], data_type: str) -> None:
    with pytest.raises(ModelError):
        Tensor.of(values, data_type)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "specific", "dimensionality", "kept"),
    [((), (True,), 2, ()), ((6,), (), 1, ()), ((3, 2), (True,), 1, (True, True))],
)
def test_another_shape_of_the_same_elements_is_known_whole(
    shape: tuple[int, ...], specific: tuple[bool, ...], dimensionality: int, kept: tuple[bool, ...]
) -> None:
    info = TensorInfo((6,), "QAsymmU8", 0.5, 3, dimension_specificity=specific)
    expected = TensorInfo(shape, "QAsymmU8", 0.5, 3, dimensionality=dimensionality, dimension_specificity=kept)
    assert info.reshaped(shape) == expected


def test_a_single_value_is_a_scalar() -> None:
    tensor = Tensor.of(3.5)
    assert (tensor.info.shape, tensor.info.dimensionality, tensor.data[()]) == ((), 2, 3.5)
    assert tensor.with_data(np.array([2.0]), (1,)).info == TensorInfo((1,))


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        (np.array([-1]), "QAsymmU8"),
        ([256], "QAsymmU8"),
        (np.array([3.5]), "Signed32"),
        (np.array([2**40]), "Signed32"),
        ([1e300], "Float32"),
        (np.array([70000.0]), "Float16"),
        ([float("nan")], "Signed32"),
    ],
)
def test_values_that_the_data_type_cannot_hold_are_refused(values: Any, data_type: str) -> None:
    with pytest.raises(ModelError, match=f"no values for a tensor of {data_type}"):
        Tensor.of(values, data_type)


def test_infinities_and_nan_are_floats() -> None:
    assert str(Tensor.of([float("inf"), float("-inf"), float("nan"), 0.1]).data.tolist()[:3]) == "[inf, -inf, nan]"


def test_the_address_is_where_the_elements_lie() -> None:
    values = np.arange(4, dtype=np.float32)
    whole, rest = Tensor(TensorInfo((4,)), values), Tensor(TensorInfo((3,)), values[1:])
    assert whole.address == address_of(values)
    assert rest.address == whole.address + 4
    known = Tensor.view_of(rest.info, rest.data, None, whole.address + 4)
    assert known.memory == rest.memory == (address_of(values) + 4, 12, None)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tensor: pickle.loads(pickle.dumps(tensor))])
def test_a_copy_does_not_keep_the_address(copied: Any) -> None:
    tensor = Tensor.of([1.0, 2.0])
    assert tensor.address == address_of(tensor.data)
    found = copied(tensor)
    assert found.address == address_of(found.data) != tensor.address
    assert found.info == tensor.info
    assert found.data.tolist() == [1.0, 2.0]
    assert replace(tensor, data=np.zeros(2, np.float32)).address != tensor.address
