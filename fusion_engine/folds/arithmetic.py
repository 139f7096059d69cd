"""Arithmetic on constant tensors, as Arm NN's layers do it at every run.

Operands are taken as real numbers in float64; the result is rounded once to the type of the
output. Signed32 is computed in integers. NaN, an overflow of a float type or of Signed32, and a
division of integers by zero are refused; quantized results saturate, since that is what the
layers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fusion_engine.folds import Refused
from fusion_engine.schema import float32
from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = [
    "BINARY",
    "UNARY",
    "Operation",
    "binary_name",
    "binary_operation",
    "cast",
    "computed",
    "dequantized",
    "real_values",
    "stored",
    "unary_operation",
]

Array: TypeAlias = npt.NDArray[Any]
Operation: TypeAlias = Callable[..., Array]

QUANTIZED = frozenset({"QAsymmU8", "QAsymmS8", "QSymmS8", "QSymmS16"})
"""Quantized data types by their present names."""


def _divided(x: Array, y: Array) -> Array:
    """Of integers the quotient towards zero, as C++ has it; elsewhere ``x / y``."""
    if x.dtype != np.int64:
        quotient: Array = np.true_divide(x, y)
        return quotient
    if not np.all(y):
        raise Refused("integers are divided by zero")
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)))


_OPERATIONS: dict[str, Operation] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divided,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "SqDiff": lambda x, y: np.square(x - y),
    "Power": np.power,
}
_INTEGER_OPERATIONS = frozenset({"Add", "Sub", "Mul", "Div", "Minimum", "Maximum", "Abs", "Neg"})

_UNARY_OPERATIONS: dict[str, Operation] = {
    "Abs": np.abs,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Neg": np.negative,
    "Log": np.log,
    "Sin": np.sin,
    "Ceil": np.ceil,
    "Floor": np.floor,
}


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Sigmoid": lambda x, a, b: _sigmoid(x),
    "TanH": lambda x, a, b: a * np.tanh(b * x),
    "Linear": lambda x, a, b: a * x + b,
    "ReLu": lambda x, a, b: np.maximum(x, 0),
    "BoundedReLu": lambda x, a, b: np.minimum(a, np.maximum(b, x)),
    "SoftReLu": lambda x, a, b: np.logaddexp(0, x),
    "LeakyReLu": lambda x, a, b: np.where(x > 0, x, a * x),
    "Abs": lambda x, a, b: np.abs(x),
    "Sqrt": lambda x, a, b: np.sqrt(x),
    "Square": lambda x, a, b: np.square(x),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "HardSwish": lambda x, a, b: x * np.clip(x + 3, 0, 6) / 6,
}
"""Arm NN's activation functions of x with their parameters a and b."""

BINARY = frozenset({*(name for name, new in SPELLINGS.items() if new.type == "ElementwiseBinary"), "ElementwiseBinary"})
"""Layer types that compute their output elementwise from two inputs of one type."""

UNARY = frozenset({"Abs", "Rsqrt", "ElementwiseUnary", "Floor", "Activation"})
"""Layer types that compute their output elementwise from one input."""


def binary_name(workspace: Workspace, key: int) -> Any:
    """The BinaryOperation of a layer in either spelling: ``Add``, ``Mul``, ..."""
    kind = workspace.type(key)
    return workspace.param(key, "operation") if kind == "ElementwiseBinary" else SPELLINGS[kind].value


def binary_operation(workspace: Workspace, key: int) -> Operation:
    """What an elementwise layer of two inputs computes; Refused where that is not known."""
    name = binary_name(workspace, key)
    if name not in _OPERATIONS:
        raise Refused(f"{workspace.describe(key)} has the unknown operation {name}")
    return _OPERATIONS[name]


def unary_operation(workspace: Workspace, key: int) -> Operation:
    """What an elementwise layer of one input computes; Refused where that is not known."""
    kind = workspace.type(key)
    if kind == "Activation":
        function = workspace.param(key, "activationFunction")
        a, b = (float32(workspace.param(key, field)) for field in ("a", "b"))
        activation = _ACTIVATIONS.get(function)
        if activation is None:
            raise Refused(f"the activation function {function} of {workspace.describe(key)} is not computed beforehand")
        return lambda x: activation(x, a, b)
    name = kind if kind == "Floor" else workspace.param(key, "operation") if kind == "ElementwiseUnary" else kind
    if name not in _UNARY_OPERATIONS:
        raise Refused(f"the operation {name} of {workspace.describe(key)} is not computed beforehand")
    return _UNARY_OPERATIONS[name]


def real_values(tensor: Tensor, place: str) -> Array:
    """The numbers that a tensor stands for, in float64 and of its shape.

    Raises
    ------
    Refused
        Where its data type is neither a float nor quantized.
    """
    info = tensor.info
    with np.errstate(all="ignore"):
        values = tensor.data.astype(np.float64)
    if info.data_type in FLOATS:
        return values
    if info.canonical_type not in QUANTIZED:
        raise Refused(f"{place}: {info.data_type} is neither a float nor quantized")
    if not info.quantization_scales:
        return (values - info.quantization_offset) * float32(info.quantization_scale)
    axis = info.quantization_dim
    if not 0 <= axis < len(info.shape) or info.shape[axis] != len(info.quantization_scales):
        raise Refused(f"{place}: {len(info.quantization_scales)} scales for axis {axis} of {info.shape}")
    shape = [1] * len(info.shape)
    shape[axis] = -1
    return np.asarray(values * np.asarray(info.quantization_scales, np.float32).astype(np.float64).reshape(shape))


def stored(values: Array, info: TensorInfo, place: str) -> Tensor:
    """Real values as a tensor of a float or quantized type.

    Raises
    ------
    Refused
        Where there is NaN, a value is beyond the range of a float type, or the type is another.
    """
    if np.isnan(values).any():
        raise Refused(f"NaN in {info.data_type}: {place}")
    if info.data_type in FLOATS:
        with np.errstate(all="ignore"):
            data = values.astype(info.dtype)
        bad = np.flatnonzero(np.isinf(data))
        if bad.size:
            raise Refused(f"overflow in {info.data_type}: {place} would hold {float(values.reshape(-1)[bad[0]]):.6g}")
        return Tensor(info, np.ascontiguousarray(data))
    scale = float32(info.quantization_scale)
    if info.canonical_type not in QUANTIZED or info.quantization_scales or not scale > 0:
        raise Refused(f"{place}: {info.data_type} with its quantization is not computed beforehand")
    limits = np.iinfo(info.dtype)
    nearest = _rounded(values / scale)
    with np.errstate(all="ignore"):
        as_engines_do = _rounded(values.astype(np.float32) / np.float32(scale))
    undecided = np.flatnonzero(nearest != as_engines_do)
    if undecided.size:
        raise Refused(
            f"{place}: {float(values.reshape(-1)[undecided[0]]):.9g} lies in the middle between two numbers of "
            f"{info.data_type}, and engines differ in which they take"
        )
    data = np.clip(nearest + info.quantization_offset, limits.min, limits.max).astype(info.dtype)
    return Tensor(info, np.ascontiguousarray(data))


def _rounded(steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """To the nearest integer, the middle away from zero."""
    found: npt.NDArray[Any] = np.copysign(np.floor(np.abs(steps) + steps.dtype.type(0.5)), steps)
    return found


def computed(operation: Operation, operands: Sequence[Tensor], info: TensorInfo, place: str) -> Tensor:
    """An elementwise operation on tensors of one type that broadcast to the shape of ``info``.

    Raises
    ------
    Refused
        Where types differ or are not known, or a result has no place in the output's type.
    """
    types = {tensor.info.canonical_type for tensor in operands}
    if types != {info.canonical_type}:
        raise Refused(f"{place} makes {info.data_type} of {' and '.join(sorted(types))}")
    if info.canonical_type == "Signed32":
        return _integers(operation, operands, info, place)
    with np.errstate(all="ignore"):
        values = operation(*(real_values(tensor, place) for tensor in operands))
    return stored(np.broadcast_to(values, info.shape), info, place)


def _integers(operation: Operation, operands: Sequence[Tensor], info: TensorInfo, place: str) -> Tensor:
    """The same on Signed32, whose products fit in int64."""
    if operation not in [{**_OPERATIONS, **_UNARY_OPERATIONS}[name] for name in sorted(_INTEGER_OPERATIONS)]:
        raise Refused(f"{place}: its operation on Signed32 is not computed beforehand")
    if any(tensor.info.quantization != info.quantization for tensor in operands):
        raise Refused(f"{place} changes the quantization of Signed32")
    values = np.broadcast_to(operation(*(tensor.data.astype(np.int64) for tensor in operands)), info.shape)
    limits = np.iinfo(np.int32)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise Refused(f"overflow in Signed32: {place}")
    return Tensor(info, np.ascontiguousarray(values.astype(info.dtype)))


def dequantized(tensor: Tensor, info: TensorInfo, place: str) -> Tensor:
    """What Dequantize makes: the real values of a quantized or Float16 tensor as floats."""
    if info.data_type not in FLOATS or (tensor.info.data_type in FLOATS and tensor.info.data_type != "Float16"):
        raise Refused(f"{place} makes {info.data_type} of {tensor.info.data_type}")
    return stored(real_values(tensor, place), info, place)


def cast(tensor: Tensor, info: TensorInfo, place: str) -> Tensor:
    """What Cast makes: floats and integers of another type; a float becomes an integer towards zero.

    Raises
    ------
    Refused
        Where a value is beyond the range of the new type, or a type is quantized.
    """
    known = {"Signed32", "Signed64", *FLOATS}
    if tensor.info.data_type not in known or info.data_type not in known:
        raise Refused(f"{place} casts {tensor.info.data_type} to {info.data_type}, which is not computed beforehand")
    if info.data_type in FLOATS:
        return stored(tensor.data.astype(np.float64), info, place)
    data = tensor.data
    if tensor.info.data_type in FLOATS:
        data = np.trunc(data.astype(np.float64))
    limits = np.iinfo(info.dtype)
    # 2**63 is a float, the largest int64 is not: compare from below.
    if data.size and not (data.min() >= limits.min and data.max() < float(limits.max) + 1):
        raise Refused(f"overflow in {info.data_type}: {place}")
    return Tensor(info, np.ascontiguousarray(data.astype(info.dtype)))
