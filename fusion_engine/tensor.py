"""Tensors as Arm NN stores them: TensorInfo, and constant data as read-only NumPy views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.errors import ModelError, nearest

__all__ = ["ALIASES", "DTYPES", "FLOATS", "PAYLOADS", "Origin", "Tensor", "TensorInfo"]

DTYPES: dict[str, np.dtype[Any]] = {
    "Float16": np.dtype("<f2"),
    "Float32": np.dtype("<f4"),
    "QuantisedAsymm8": np.dtype("u1"),
    "Signed32": np.dtype("<i4"),
    "Boolean": np.dtype("u1"),
    "QuantisedSymm16": np.dtype("<i2"),
    "QAsymmU8": np.dtype("u1"),
    "QSymmS16": np.dtype("<i2"),
    "QAsymmS8": np.dtype("i1"),
    "QSymmS8": np.dtype("i1"),
    "Signed64": np.dtype("<i8"),
}
"""Arm NN's DataType by name, as the NumPy dtype (little-endian) of its elements."""

ALIASES = {"QuantisedAsymm8": "QAsymmU8", "QuantisedSymm16": "QSymmS16"}
"""DataTypes of the first releases that have been renamed since."""

FLOATS = frozenset({"Float16", "Float32"})

PAYLOADS = {1: "ByteData", 2: "ShortData", 4: "IntData", 8: "LongData"}
"""The ConstTensorData member that real Arm NN writes for an element size in bytes."""


@dataclass(frozen=True)
class TensorInfo:
    """Shape, data type and quantization of a tensor; the fields are those of Arm NN's TensorInfo.

    Parameters
    ----------
    shape
        Extents in elements, outermost first; ``()`` is a scalar.
    data_type
        DataType by name.
    quantization_scale, quantization_offset
        Per-tensor quantization: real value = scale * (stored - offset). Real writers store a scale
        of 0.0 on tensors that are not quantized.
    quantization_scales, quantization_dim
        Per-axis quantization; when scales are present they replace scale and offset.
    dimensionality
        0 not specified, 1 specified, 2 scalar.
    dimension_specificity
        Per dimension whether it is specified; empty where the file has none.
    is_constant
        Whether Arm NN took the tensor as constant.
    """

    shape: tuple[int, ...]
    data_type: str = "Float32"
    quantization_scale: float = 0.0
    quantization_offset: int = 0
    quantization_scales: tuple[float, ...] = ()
    quantization_dim: int = 0
    dimensionality: int = 1
    dimension_specificity: tuple[bool, ...] = ()
    is_constant: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of one element."""
        return DTYPES[self.data_type]

    @property
    def elements(self) -> int:
        """Number of elements; a scalar has one."""
        return prod(self.shape)

    @property
    def canonical_type(self) -> str:
        """``data_type`` with the renamed DataTypes under their present names."""
        return ALIASES.get(self.data_type, self.data_type)

    @property
    def known(self) -> bool:
        """Whether every extent of ``shape`` is known."""
        return self.dimensionality != 0 and all(self.dimension_specificity)

    def reshaped(self, shape: tuple[int, ...]) -> TensorInfo:
        """The same with another shape, all of it known: ``()`` makes it a scalar (dimensionality 2)."""
        specific = (True,) * len(shape) if self.dimension_specificity else ()
        return replace(self, shape=shape, dimensionality=1 if shape else 2, dimension_specificity=specific)

    @property
    def quantization(self) -> tuple[Any, ...]:
        """What makes two quantized tensors of a type hold the same values: comparable, hashable."""
        if self.quantization_scales:
            return (self.canonical_type, self.quantization_scales, self.quantization_dim)
        return (self.canonical_type, self.quantization_scale, self.quantization_offset)


def address_of(array: npt.NDArray[Any]) -> int:
    """Where an array's first element lies in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


@dataclass(frozen=True)
class Origin:
    """Where the bytes of a tensor lie in a file that is still open: for copies within the kernel."""

    source: Any
    offset: int


class _Unsealed:
    """What `Tensor.view_of` makes into a Tensor: a frozen dataclass takes twice as long to fill."""

    def __init__(self, info: TensorInfo, data: npt.NDArray[Any], origin: Origin | None) -> None:
        self.info = info
        self.data = data
        self.untagged = False
        self.origin = origin


@dataclass(frozen=True, eq=False)
class Tensor:
    """A constant tensor.

    Attributes
    ----------
    info
        Its TensorInfo.
    data
        Read-only C-contiguous array of shape ``info.shape`` and dtype ``info.dtype``. Tensors of one file that
        share bytes share memory; that identity is what sharing means, equal content is not.
    untagged
        The file named no payload type (Arm NN 20.08 does so for QAsymmS8, and for the BFloat16 it
        stores as Float16); the width was taken from the data type.
    origin
        Where ``data`` lies in a mapped file, else None.
    """

    info: TensorInfo
    data: npt.NDArray[Any] = field(repr=False)
    untagged: bool = False
    origin: Origin | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.data.dtype != self.info.dtype or self.data.shape != self.info.shape:
            raise ModelError(
                f"data of {self.data.dtype} {self.data.shape} for a tensor of {self.info.data_type} {self.info.shape}"
            )
        if not self.data.flags.c_contiguous:
            object.__setattr__(self, "data", self.data.copy(order="C"))
        if self.data.flags.writeable:
            view = self.data.view()
            view.flags.writeable = False
            object.__setattr__(self, "data", view)

    @classmethod
    def of(cls, values: npt.ArrayLike, data_type: str = "Float32", **quantization: Any) -> Tensor:
        """A tensor of ``values``, copied and converted to the data type; a single value makes a scalar.

        Raises
        ------
        ModelError
            Where there is no such data type, or the values are none of it.

        Examples
        --------
        >>> Tensor.of([[1, 2]]).info
        TensorInfo(shape=(1, 2), data_type='Float32', ...)
        """
        if data_type not in DTYPES:
            raise ModelError(f"there is no DataType {data_type!r}{nearest(str(data_type), tuple(DTYPES))}")
        try:
            with np.errstate(all="ignore"):
                given = np.asarray(values)
                data = np.array(values, dtype=DTYPES[data_type], order="C")
        except (OverflowError, TypeError, ValueError) as error:
            raise ModelError(f"no values for a tensor of {data_type}: {error}") from error
        wrong = np.isinf(data) & np.isfinite(given) if data.dtype.kind == "f" else data != given
        if np.any(wrong):
            first = given.reshape(-1)[int(np.argmax(wrong))]
            raise ModelError(f"no values for a tensor of {data_type}: {first} is none that it can hold")
        return cls(TensorInfo(data.shape, data_type, **quantization).reshaped(data.shape), data)

    @classmethod
    def view_of(
        cls, info: TensorInfo, data: npt.NDArray[Any], origin: Origin | None, address: int | None = None
    ) -> Tensor:
        """A tensor of a read-only contiguous array that is known to have the shape and dtype of ``info``."""
        made: Any = _Unsealed(info, data, origin)
        if address is not None:
            made.address = address
        made.__class__ = cls
        tensor: Tensor = made
        return tensor

    def with_data(self, data: npt.NDArray[Any], shape: Sequence[int] | None = None) -> Tensor:
        """A tensor of other values, of the same data type and quantization."""
        info = self.info if shape is None else self.info.reshaped(tuple(shape))
        return Tensor(info, np.ascontiguousarray(data, dtype=info.dtype).reshape(info.shape))

    def tobytes(self) -> bytes:
        """The elements as the file stores them.

        Raises
        ------
        ModelError
            Where they lie in a mapped file that was changed since it was loaded.
        """
        self.require_intact()
        return self.data.tobytes()

    def require_intact(self) -> None:
        """Raise ModelError where the elements lie in a mapped file that was changed since: before every bulk use."""
        if self.origin is not None:
            self.origin.source.check()

    @cached_property
    def address(self) -> int:
        """Where the elements begin in this process's memory.

        NumPy takes microseconds to say so: whoever makes many views of one array says it with each (`view_of`).
        """
        return address_of(self.data)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "address"}

    @property
    def memory(self) -> tuple[Any, ...]:
        """Where the elements lie, address first: equal for tensors that share them in the same order."""
        data = self.data
        return (self.address, data.nbytes, None if data.flags.c_contiguous else data.strides)
