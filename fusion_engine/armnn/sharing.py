"""How much the layers of a file have in common.

FlatBuffers lets any number of tables refer to one string or vector, and its Verifier does not mind. In
a network each layer has it as its own: in messages, in recipes, and in the file that is written of it.
So a small file could stand for any amount of memory, if this did not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusion_engine.armnn.decode import Decoder
from fusion_engine.schema import Table
from fusion_engine.tensor import TensorInfo

__all__ = ["SHARING", "Sharing"]

SHARING = 4
"""How many times the size of its file the layers may take, each with all that it refers to but constant data.

This project's writer shares TensorInfos, other writers share names as well; neither comes near.
"""


class Sharing:
    """Counts what layers refer to, in bytes, each time; every method raises ModelError where it is too much."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._left = SHARING * decoder.size
        self._lists: dict[str, tuple[str, ...]] = {}

    def count(self, size: int) -> None:
        """So many bytes."""
        self._left -= size
        if self._left < 0:
            raise self._decoder.fault(
                "layers share their slots, names or lists over and over: it is damaged, or made to exhaust memory"
            )

    def slots(self, number: int) -> None:
        """A vector of slots."""
        self.count(4 * number)

    def infos(self, infos: Iterable[TensorInfo | None]) -> None:
        """TensorInfos, with shape and scales."""
        for info in infos:
            if info is not None:
                self.count(info_size(info))

    def params(self, descriptor: Table | None, params: Mapping[str, Any] | None) -> None:
        """The lists and texts of a descriptor."""
        if params is None or descriptor is None:
            return
        lists = self._lists.get(descriptor.name)
        if lists is None:
            lists = tuple(f.name for f in descriptor.fields if f.kind not in ("scalar", "enum", "struct"))
            self._lists[descriptor.name] = lists
        pending = [params[name] for name in lists]
        while pending:
            value = pending.pop()
            if isinstance(value, Mapping):
                pending.extend(value.values())
            elif isinstance(value, str | tuple):
                self.count(4 * len(value))
                if value and isinstance(value[0], Mapping | tuple):
                    pending.extend(value)


def info_size(info: TensorInfo) -> int:
    """Bytes of a TensorInfo's vectors."""
    return 4 * (len(info.shape) + len(info.quantization_scales) + len(info.dimension_specificity))
