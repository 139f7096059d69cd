"""A small ONNX model under construction, and running it.

Tensors of Arm NN are carried as ONNX tensors of the same shape: Float32, Float16, Boolean and the
quantized types as float32 (a quantized one as its stored integers, which float32 holds exactly up to
16 bits; a Float16 one as values rounded to half precision), Signed32 and Signed64 as themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fusion_engine.errors import VerifyError
from fusion_engine.tensor import Tensor, TensorInfo

__all__ = ["IR_VERSION", "OPSET", "Array", "OnnxGraph", "carried", "carrier", "require_runtime"]

OPSET = 18
"""Version of the operator set that the models are written in."""

IR_VERSION = 9
"""Version of the file format that the models are written in."""

Array: TypeAlias = "npt.NDArray[Any]"

_FLOAT: np.dtype[Any] = np.dtype(np.float32)

_CARRIERS: dict[str, np.dtype[Any]] = {"Signed32": np.dtype(np.int32), "Signed64": np.dtype(np.int64)}


def carrier(info: TensorInfo) -> np.dtype[Any]:
    """The dtype of the ONNX tensor that carries a tensor."""
    return _CARRIERS.get(info.canonical_type, _FLOAT)


def carried(tensor: Tensor) -> Array:
    """The elements of a constant as its ONNX tensor has them."""
    tensor.require_intact()
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(tensor.data.astype(carrier(tensor.info)))


def require_runtime() -> None:
    """Raise VerifyError where what verification needs beyond the package is not installed."""
    for module in ("onnx", "onnxruntime"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise VerifyError(
                f"verification needs {module}, which cannot be imported ({error}): "
                "pip install 'armnn-fusion-engine[verify]'"
            ) from error


class OnnxGraph:
    """An ONNX graph: operators are added, tensors go by their names."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper

        self._helper = helper
        self._types = {
            np.dtype(np.float32): TensorProto.FLOAT,
            np.dtype(np.int32): TensorProto.INT32,
            np.dtype(np.int64): TensorProto.INT64,
            np.dtype(np.float16): TensorProto.FLOAT16,
        }
        self._nodes: list[Any] = []
        self._inputs: dict[str, Any] = {}
        self._constants: dict[str, Array] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def input(self, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> str:
        """An input of the graph; one of the same name is the same."""
        if name not in self._inputs:
            self._inputs[name] = self._helper.make_tensor_value_info(name, self._types[dtype], list(shape))
        return name

    def array(self, values: Array) -> str:
        """A constant; it is fed when the graph runs, so that its size does not matter."""
        name = self.input(f"c{len(self._constants)}", values.shape, values.dtype)
        self._constants[name] = values
        return name

    def numbers(self, values: Sequence[int] | Sequence[float] | float, dtype: type = np.float32) -> str:
        """A constant of a few numbers, which stands in the model itself; equal ones are one."""
        array: Array = np.asarray(values, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            proto = self._helper.make_tensor("value", self._types[array.dtype], array.shape, array.tobytes(), raw=True)
            self._known[key] = self.op("Constant", value=proto)
        return self._known[key]

    def integers(self, *values: int) -> str:
        """Shapes, axes and the like: a 1-D constant of int64."""
        return self.numbers(values, np.int64)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator with one output; returns the output's name. An empty input name is an absent input."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """An operator; returns the names of its outputs."""
        names = [self._name() for _ in range(outputs)]
        self._nodes.append(self._helper.make_node(kind, list(inputs), names, **attributes))
        return names

    # What many layers need

    def cast(self, x: str, dtype: type) -> str:
        """Convert elements; floats become integers by truncation."""
        return self.op("Cast", x, to=self._types[np.dtype(dtype)])

    def transpose(self, x: str, axes: Sequence[int]) -> str:
        """Axis ``i`` of the result is ``axes[i]`` of ``x``."""
        return x if list(axes) == list(range(len(axes))) else self.op("Transpose", x, perm=list(axes))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return self.op("Reshape", x, self.integers(*shape), allowzero=1)

    def take(self, x: str, axis: int, indices: Sequence[int]) -> str:
        """The entries of an axis by their numbers."""
        return self.op("Gather", x, self.integers(*indices), axis=axis)

    def pad(self, x: str, pads: Sequence[tuple[int, int]], value: float = 0.0) -> str:
        """Put a value around a float tensor, ``pads`` (before, after) per axis."""
        if not any(map(any, pads)):
            return x
        flat = [before for before, _ in pads] + [after for _, after in pads]
        return self.op("Pad", x, self.integers(*flat), self.numbers(value))

    # Running

    def model(self, outputs: Sequence[str]) -> Any:
        """The ModelProto that gives some tensors, under the names ``y0``, ``y1``, ..."""
        nodes = [
            *self._nodes,
            *(self._helper.make_node("Identity", [name], [f"y{i}"]) for i, name in enumerate(outputs)),
        ]
        proto_outputs = [self._helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(outputs))]
        graph = self._helper.make_graph(nodes, "region", list(self._inputs.values()), proto_outputs)
        opset = self._helper.make_opsetid("", OPSET)
        return self._helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)

    def session(self, outputs: Sequence[str]) -> Session:
        """The graph, ready to run."""
        return Session(self.model(outputs), self._constants, tuple(self._inputs))


class Session:
    """A model in onnxruntime: one thread, no optimization, on the CPU, so that it computes what is written."""

    def __init__(self, model: Any, constants: Mapping[str, Array], inputs: tuple[str, ...]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._constants = constants
        self._inputs = inputs
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs; ``feeds`` may hold more than the inputs."""
        given = {name: feeds[name] if name in feeds else self._constants[name] for name in self._inputs}
        found = self._session.run(None, {name: np.asarray(values) for name, values in given.items()})
        return [np.asarray(values) for values in found]
