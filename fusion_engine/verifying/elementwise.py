"""Layers that compute each element by itself in ONNX, and those that change its type."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from fusion_engine.spellings import SPELLINGS
from fusion_engine.tensor import TensorInfo
from fusion_engine.verifying.layer import QUANTIZED, Layer, Value
from fusion_engine.verifying.onnxgraph import carrier

__all__ = ["EXPRESSIONS"]

_BINARY = {"Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div", "Minimum": "Min", "Maximum": "Max"}
"""Arm NN's operation -> ONNX operator."""

_COMPARISONS = {
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterOrEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessOrEqual": "LessOrEqual",
}

_UNARY = {"Abs": "Abs", "Sqrt": "Sqrt", "Exp": "Exp", "Neg": "Neg", "Log": "Log", "Sin": "Sin", "Ceil": "Ceil"}


def _operation(layer: Layer) -> str:
    """Operation of a layer in either spelling."""
    spelling = SPELLINGS.get(layer.kind)
    return str(layer.param("operation") if spelling is None else spelling.value)


def _is_integer(layer: Layer) -> bool:
    """Whether a layer computes in integers: its inputs and its output are of one integer type."""
    kinds = {info.canonical_type for info in (*(value.info for value in layer.inputs), *layer.outputs)}
    return kinds in ({"Signed32"}, {"Signed64"})


def _pair(layer: Layer) -> tuple[Value, Value]:
    if len(layer.inputs) != 2:
        layer.refuse(f"it has {len(layer.inputs)} inputs")
    return layer.inputs[0], layer.inputs[1]


def _binary(layer: Layer) -> list[str]:
    g, operation = layer.graph, _operation(layer)
    x, y = _pair(layer)
    layer.need_shape(np.broadcast_shapes(x.info.shape, y.info.shape))
    if _is_integer(layer):
        if operation not in _BINARY or operation == "Div":
            layer.refuse(f"it computes {operation} in integers")
        return [g.op(_BINARY[operation], x.name, y.name)]
    a, b = layer.real(x), layer.real(y)
    if operation == "SqDiff":
        difference = g.op("Sub", a, b)
        found = g.op("Mul", difference, difference)
    elif operation == "Power":
        found = g.op("Pow", a, b)
    elif operation in _BINARY:
        found = g.op(_BINARY[operation], a, b)
    else:
        layer.refuse(f"its operation {operation} is unknown")
    return [layer.store(found, layer.out)]


def _unary(layer: Layer) -> list[str]:
    g, operation = layer.graph, _operation(layer)
    if operation == "LogicalNot":
        return [g.op("Sub", g.numbers(1.0), layer.x.name)]
    if _is_integer(layer):
        if operation not in ("Abs", "Neg"):
            layer.refuse(f"it computes {operation} in integers")
        return [g.op(operation, layer.x.name)]
    if operation == "Rsqrt":
        return layer.computed(lambda x: g.op("Reciprocal", g.op("Sqrt", x)))
    if operation not in _UNARY:
        layer.refuse(f"its operation {operation} is unknown")
    return layer.computed(lambda x: g.op(_UNARY[operation], x))


def _comparison(layer: Layer) -> list[str]:
    g, operation = layer.graph, _operation(layer)
    x, y = _pair(layer)
    integer = {x.info.canonical_type, y.info.canonical_type} in ({"Signed32"}, {"Signed64"})
    a, b = (x.name, y.name) if integer else (layer.real(x), layer.real(y))
    if operation == "NotEqual":
        return [g.cast(g.op("Not", g.op("Equal", a, b)), np.float32)]
    if operation not in _COMPARISONS:
        layer.refuse(f"its operation {operation} is unknown")
    return [g.cast(g.op(_COMPARISONS[operation], a, b), np.float32)]


def _logical(layer: Layer) -> list[str]:
    operation = layer.param("operation")
    x, y = _pair(layer)
    if operation not in ("LogicalAnd", "LogicalOr"):
        layer.refuse(f"its operation {operation} is unknown")
    return [layer.graph.op("Min" if operation == "LogicalAnd" else "Max", x.name, y.name)]


def _floor(layer: Layer) -> list[str]:
    return layer.computed(lambda x: layer.graph.op("Floor", x))


def _prelu(layer: Layer) -> list[str]:
    g = layer.graph
    x, alpha = _pair(layer)
    layer.need_shape(np.broadcast_shapes(x.info.shape, alpha.info.shape))
    a, b = layer.real(x), layer.real(alpha)
    negative = g.op("Less", a, g.numbers(0.0))
    return [layer.store(g.op("Where", negative, g.op("Mul", a, b), a), layer.out)]


# Activation: a function of x, and of the descriptor's a and b


def _hard_swish(layer: Layer, x: str) -> str:
    g = layer.graph
    gate = layer.clip(g.op("Add", x, g.numbers(3.0)), 0.0, 6.0)
    return g.op("Div", g.op("Mul", x, gate), g.numbers(6.0))


def _elu(layer: Layer, x: str) -> str:
    g = layer.graph
    below = g.op("Mul", g.numbers(layer.param("a")), g.op("Sub", g.op("Exp", x), g.numbers(1.0)))
    return g.op("Where", g.op("GreaterOrEqual", x, g.numbers(0.0)), x, below)


def _leaky(layer: Layer, x: str) -> str:
    g = layer.graph
    return g.op("Where", g.op("Greater", x, g.numbers(0.0)), x, g.op("Mul", x, g.numbers(layer.param("a"))))


def _bounded(layer: Layer, x: str) -> str:
    """min(a, max(b, x)): where b is above a, a."""
    g = layer.graph
    return g.op("Min", g.numbers(layer.param("a")), g.op("Max", g.numbers(layer.param("b")), x))


def _soft_relu(layer: Layer, x: str) -> str:
    g = layer.graph
    return g.op("Log", g.op("Add", g.numbers(1.0), g.op("Exp", x)))


def _gelu(layer: Layer, x: str) -> str:
    g = layer.graph
    share = g.op("Add", g.numbers(1.0), g.op("Erf", g.op("Div", x, g.numbers(sqrt(2.0)))))
    return g.op("Mul", g.op("Mul", g.numbers(0.5), x), share)


def _tanh(layer: Layer, x: str) -> str:
    g = layer.graph
    return g.op("Mul", g.numbers(layer.param("a")), g.op("Tanh", g.op("Mul", g.numbers(layer.param("b")), x)))


def _linear(layer: Layer, x: str) -> str:
    g = layer.graph
    return g.op("Add", g.op("Mul", g.numbers(layer.param("a")), x), g.numbers(layer.param("b")))


_FUNCTIONS: dict[str, Callable[[Layer, str], str]] = {
    "Sigmoid": lambda layer, x: layer.graph.op("Sigmoid", x),
    "TanH": _tanh,
    "Linear": _linear,
    "ReLu": lambda layer, x: layer.graph.op("Max", x, layer.graph.numbers(0.0)),
    "BoundedReLu": _bounded,
    "SoftReLu": _soft_relu,
    "LeakyReLu": _leaky,
    "Abs": lambda layer, x: layer.graph.op("Abs", x),
    "Sqrt": lambda layer, x: layer.graph.op("Sqrt", x),
    "Square": lambda layer, x: layer.graph.op("Mul", x, x),
    "Elu": _elu,
    "HardSwish": _hard_swish,
    "Gelu": _gelu,
}


def _activation(layer: Layer) -> list[str]:
    function = _FUNCTIONS.get(layer.param("activationFunction"))
    if function is None:
        layer.refuse(f"its activationFunction {layer.param('activationFunction')!r} is unknown")
    return layer.computed(lambda x: function(layer, x))


# Types


def _converted(layer: Layer) -> list[str]:
    """Quantize and Dequantize: the same number in another type."""
    return [layer.store(layer.real(layer.x), layer.out)]


def _cast(layer: Layer) -> list[str]:
    """Cast: quantized types count as the integers that they store."""
    g, x, info = layer.graph, layer.x, layer.out
    if carrier(x.info) == carrier(info) != np.float32:
        return [x.name]
    number = x.name if carrier(x.info) == np.float32 else g.cast(x.name, np.float32)
    if info.canonical_type in QUANTIZED:
        return [layer.store(number, TensorInfo(info.shape, info.data_type, 1.0))]
    return [layer.store(number, info)]


EXPRESSIONS: dict[str, Callable[[Layer], list[str]]] = {
    "Addition": _binary,
    "Subtraction": _binary,
    "Multiplication": _binary,
    "Division": _binary,
    "Minimum": _binary,
    "Maximum": _binary,
    "ElementwiseBinary": _binary,
    "Abs": _unary,
    "Rsqrt": _unary,
    "ElementwiseUnary": _unary,
    "Equal": _comparison,
    "Greater": _comparison,
    "Comparison": _comparison,
    "LogicalBinary": _logical,
    "Floor": _floor,
    "Prelu": _prelu,
    "Activation": _activation,
    "Quantize": _converted,
    "Dequantize": _converted,
    "Cast": _cast,
}
"""Layer type -> expression."""
