"""What single values may be: each fault in its whole words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.checks import RANGES, info_fault, is_int, scalar_fault, shown
from fusion_engine.network import FrozenDict
from fusion_engine.schema import schema
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net


def test_ranges_of_the_wire() -> None:
    bounds = {name: (allowed[0], allowed[-1]) for name, allowed in RANGES.items()}
    assert bounds["byte"] == (-128, 127)
    assert bounds["ubyte"] == (0, 255)
    assert bounds["ushort"] == (0, 65535)
    assert bounds["int"] == (-(2**31), 2**31 - 1)
    assert bounds["uint"] == (0, 2**32 - 1)
    assert bounds["long"] == (-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("kind", "value", "fault"),
    [
        ("uint", 0, None),
        ("uint", 2**32 - 1, None),
        ("uint", np.int64(7), None),
        ("uint", 2**32, "it must be between 0 and 4294967295"),
        ("uint", -1, "it must be between 0 and 4294967295"),
        ("uint", np.int64(-1), "it must be between 0 and 4294967295"),
        ("int", -(2**31), None),
        ("int", 2**31, "it must be between -2147483648 and 2147483647"),
        ("int", 1.0, "it must be an int"),
        ("int", True, "it must be an int"),
        ("int", "1", "it must be an int"),
        ("bool", True, None),
        ("bool", np.False_, None),
        ("bool", 1, None),
        ("bool", 0, None),
        ("bool", 2, "it must be a bool"),
        ("bool", 1.0, "it must be a bool"),
        ("float", 1.5, None),
        ("float", 1, None),
        ("float", np.float16(1), None),
        ("float", float("inf"), None),
        ("float", float("nan"), None),
        ("float", 3.4028235e38, None),
        ("float", 3.5e38, "it is beyond the range of a float of 32 bits"),
        ("float", 10**400, "it is beyond the range of a float of 32 bits"),
        ("float", True, "it must be a float"),
        ("float", "1", "it must be a float"),
        ("float", None, "it must be a float"),
    ],
)
def test_scalars(kind: str, value: Any, fault: str | None) -> None:
    assert scalar_fault(kind, value) == fault


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, None),
        ({"shape": [1, 4]}, "has the shape [1, 4], which a TensorInfo cannot hold"),
        ({"shape": (1, -1)}, "has the shape (1, -1), which a TensorInfo cannot hold"),
        ({"quantization_scale": "1"}, "has the quantization_scale '1', which a TensorInfo cannot hold"),
        ({"quantization_offset": 2**31}, "has the quantization_offset 2147483648, which a TensorInfo cannot hold"),
        ({"quantization_scales": (1.0, "x")}, "has the quantization_scales (1.0, 'x'), which a TensorInfo cannot hold"),
        ({"quantization_dim": -1}, "has the quantization_dim -1, which a TensorInfo cannot hold"),
        ({"is_constant": 2}, "has the is_constant 2, which a TensorInfo cannot hold"),
        ({"data_type": "Float33"}, "has the DataType 'Float33', which there is not: the nearest is Float32"),
        ({"data_type": ["Float32"]}, "has the DataType ['Float32'], which there is not"),
        ({"data_type": None}, "has the DataType None, which there is not"),
        ({"dimensionality": 2}, "is a scalar (dimensionality 2) with the shape (1, 4)"),
    ],
)
def test_tensor_infos(fields: dict[str, Any], fault: str | None) -> None:
    info = TensorInfo((1, 4))
    for name, value in fields.items():
        object.__setattr__(info, name, value)
    found = info_fault(info, schema())
    if fault is not None and found is not None and "nearest" in fault:
        assert found.startswith(fault.partition(":")[0])
        assert "Float32" in found
    else:
        assert found == fault


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (5, "parameter axis is 5: it must be a tuple"),
        ((0, -(2**31) - 1), "entry 1: it must be between"),
        ((0, "1"), "parameter axis is (0, '1'): entry 1: it must be an int"),
    ],
)
def test_vectors(value: Any, fault: str) -> None:
    net = Net()
    net.output(net.layer("Mean", net.input((1, 4)), params={"axis": (0,)}, name="mean"))
    net.graph.nodes[1]["params"] = FrozenDict({"axis": value})
    (problem,) = fe.validate(net.graph)
    assert str(problem).endswith(fault) or (fault.endswith("between") and fault in str(problem))


def test_an_info_that_is_none() -> None:
    assert info_fault((1, 4), schema()) == "is (1, 4): it must be a TensorInfo"
    assert info_fault(None, schema()) == "is None: it must be a TensorInfo"


def test_values_in_messages_are_short_and_safe() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Bad()) == "a Bad"
    assert shown([Bad()]).startswith("[<Bad instance")
    assert len(shown("x" * 10_000)) <= 102
    assert shown("ab") == "'ab'"
    assert is_int(np.uint8(3))
    assert is_int(3)
    assert not is_int(True)
    assert not is_int(3.0)


@pytest.mark.parametrize("seed", [True, False])
def test_a_truth_value_is_no_seed(seed: bool) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    net = Net()
    net.output(net.activation(net.input((1, 4))))
    with pytest.raises(fe.VerifyError, match=f"a seed is an int of at least 0, not {seed}"):
        fe.verify(net.graph, net.graph, seed=seed)
