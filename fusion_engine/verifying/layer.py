"""What the expression of a layer type sees of a layer, and the numbers that its tensors stand for.

Arm NN's reference backend reads every tensor as float32, computes in float32, and stores the result
in the output's type. So does an expression: `Layer.real` reads, `Layer.store` stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.verifying.onnxgraph import OnnxGraph, carried, carrier

__all__ = ["MOST_ELEMENTS", "QUANTIZED", "Inexpressible", "Layer", "Value", "limits"]

QUANTIZED = frozenset({"QAsymmU8", "QAsymmS8", "QSymmS8", "QSymmS16"})
"""Quantized data types under their present names."""

MOST_ELEMENTS = 2**28
"""Largest number of elements of a tensor that is run: 1 GiB of float32."""

_INTEGERS = frozenset({"Signed32", "Signed64"})


class Inexpressible(Exception):
    """A layer cannot be written in ONNX operators; ``reason`` says why, without naming the layer."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Value:
    """A tensor in the ONNX graph: the name of what carries it, and its TensorInfo in the network."""

    name: str
    info: TensorInfo


def limits(info: TensorInfo) -> tuple[int, int]:
    """The smallest and the largest integer that a quantized type stores."""
    facts = np.iinfo(info.dtype)
    return int(facts.min), int(facts.max)


@dataclass(frozen=True)
class Layer:
    """A layer whose inputs are in the ONNX graph already.

    Attributes
    ----------
    graph
        The ONNX graph.
    kind
        LayerType name as spelled in the file.
    inputs
        In slot order.
    outputs
        TensorInfo per output slot, their shapes known.
    param
        A descriptor field by name.
    members
        The layer's own tensors by field.
    depthwise_scheme
        The network's weightsLayoutScheme.
    """

    graph: OnnxGraph
    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[TensorInfo, ...]
    param: Callable[[str], Any]
    members: Mapping[str, Tensor]
    depthwise_scheme: int = 1

    def refuse(self, reason: str) -> NoReturn:
        """Raise Inexpressible."""
        raise Inexpressible(reason)

    def member(self, field: str) -> Value:
        """A tensor of the layer's own."""
        tensor = self.members.get(field)
        if tensor is None:
            self.refuse(f"its {field} are missing")
        return Value(self.graph.array(carried(tensor)), tensor.info)

    @property
    def x(self) -> Value:
        """The first input."""
        if not self.inputs:
            self.refuse("it has no input")
        return self.inputs[0]

    @property
    def out(self) -> TensorInfo:
        """The first output."""
        return self.outputs[0]

    @property
    def layout(self) -> str:
        """dataLayout, one that is known."""
        layout = self.param("dataLayout")
        if layout not in ("NHWC", "NCHW", "NDHWC", "NCDHW"):
            self.refuse(f"its dataLayout {layout!r} is unknown")
        return str(layout)

    def axis(self, value: int, rank: int) -> int:
        """An axis that may count from the end, as a number from 0 on."""
        number = value + rank if value < 0 else value
        if not 0 <= number < rank:
            self.refuse(f"its axis {value} is none of a tensor of rank {rank}")
        return number

    # Numbers

    def real(self, value: Value) -> str:
        """The numbers that a tensor stands for, as float32."""
        info, g = value.info, self.graph
        if info.canonical_type in QUANTIZED:
            return self._dequantized(value)
        if info.canonical_type in _INTEGERS:
            number = g.cast(value.name, np.float32)
            if info.quantization_scales:
                return g.op("Mul", number, self._per_axis(info))
            scale = info.quantization_scale if info.canonical_type == "Signed32" else 0.0
            return number if scale == 0.0 else g.op("Mul", number, g.numbers(scale))
        return value.name

    def _dequantized(self, value: Value) -> str:
        info, g = value.info, self.graph
        if info.quantization_scales:
            return g.op("Mul", value.name, self._per_axis(info))
        shifted = value.name
        if info.quantization_offset:
            shifted = g.op("Sub", shifted, g.numbers(float(info.quantization_offset)))
        return g.op("Mul", shifted, g.numbers(info.quantization_scale))

    def _per_axis(self, info: TensorInfo) -> str:
        """The scales of an axis, so shaped that they multiply it."""
        scales, axis = info.quantization_scales, info.quantization_dim
        if len(scales) == 1:
            return self.graph.numbers(scales[0])
        if axis >= len(info.shape) or len(scales) != info.shape[axis]:
            self.refuse(f"{len(scales)} quantization scales do not fit axis {axis} of shape {info.shape}")
        return self.graph.array(np.asarray(scales, np.float32).reshape([-1] + [1] * (len(info.shape) - 1 - axis)))

    def store(self, number: str, info: TensorInfo) -> str:
        """What a tensor holds of float32 numbers, in the way of its type.

        Quantized: number / scale, rounded half away from zero, + offset, within the type's limits.
        """
        g, kind = self.graph, info.canonical_type
        if kind == "Float32":
            return number
        if kind == "Float16":
            return g.cast(g.cast(number, np.float16), np.float32)
        if kind in _INTEGERS:
            return g.cast(number, carrier(info).type)
        if kind == "Boolean":
            return g.op("Abs", g.op("Sign", number))
        if kind not in QUANTIZED:
            self.refuse(f"nothing is known of the data type {info.data_type}")
        if info.quantization_scales:
            self.refuse("it quantizes per axis")
        scale = np.float32(info.quantization_scale)
        if not (np.isfinite(scale) and scale > 0):
            self.refuse(f"its output has the quantization scale {info.quantization_scale:g}")
        steps = g.op("Div", number, g.numbers(float(scale)))
        whole = g.op("Mul", g.op("Sign", steps), g.op("Floor", g.op("Add", g.op("Abs", steps), g.numbers(0.5))))
        return self.clip(g.op("Add", whole, g.numbers(float(info.quantization_offset))), *limits(info))

    def clip(self, number: str, low: float, high: float) -> str:
        """Numbers kept between two bounds."""
        return self.graph.op("Clip", number, self.graph.numbers(low), self.graph.numbers(high))

    def moved(self, value: Value, name: str | None = None, out: TensorInfo | None = None) -> str:
        """``value`` (or what was made of it by moving elements) as the output holds it: requantized where it differs.

        Parameters
        ----------
        value
            Where the elements are from.
        name
            Of the moved elements, where there are others than of ``value``.
        out
            The output, by default the first.
        """
        info, name = out or self.out, name or value.name
        if self.alike(value.info, info):
            return name
        if value.info.quantization_scales:
            self.refuse("it moves elements that are quantized per axis into another quantization")
        return self.store(self.real(Value(name, value.info)), info)

    def alike(self, one: TensorInfo, other: TensorInfo) -> bool:
        """Whether two tensors hold numbers in the same way."""
        if one.canonical_type != other.canonical_type:
            return False
        return one.canonical_type in FLOATS or one.quantization == other.quantization

    def computed(self, operation: Callable[[str], str]) -> list[str]:
        """Read the only input, compute, store."""
        return [self.store(operation(self.real(self.x)), self.out)]

    def need_rank(self, *ranks: int) -> None:
        """The first input must have one of some ranks."""
        rank = len(self.x.info.shape)
        if rank not in ranks:
            self.refuse(f"its input has rank {rank}, not {' or '.join(map(str, ranks))}")

    def need_room(self, shape: Sequence[int]) -> None:
        """A tensor on the way must not be larger than what is run."""
        if prod(shape) > MOST_ELEMENTS:
            self.refuse(f"it makes a tensor of shape {tuple(shape)} on the way, more than {MOST_ELEMENTS} elements")

    def need_shape(self, expected: Sequence[int]) -> None:
        """What the parameters give must be what the output's TensorInfo says."""
        if tuple(expected) != self.out.shape:
            self.refuse(f"its parameters give shape {tuple(expected)}, its TensorInfo says {self.out.shape}")
