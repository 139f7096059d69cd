"""TensorInfos read many at once: those that say the same, which most do, become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_engine.armnn.columns import Columns, Ints, Tables, distinct
from fusion_engine.armnn.decode import Decoder
from fusion_engine.armnn.sharing import Sharing, info_size
from fusion_engine.tensor import TensorInfo

__all__ = ["Infos"]

_RANK = 8
"""Most dimensions of a tensor that is read in columns."""

_PLAIN = ("dataType", "quantizationScale", "quantizationOffset", "quantizationDim", "dimensionality", "isConstant")


class Infos:
    """The TensorInfos at places of a buffer, each given as often as it is referred to.

    Attributes
    ----------
    distinct
        Those that differ, in the order in which the file has them first.
    """

    def __init__(self, columns: Columns, decoder: Decoder, sharing: Sharing, places: Ints) -> None:
        self._columns = columns
        self._decoder = decoder
        self._table = columns.facts.tables["TensorInfo"]
        self._places = distinct(places)
        self.distinct: list[TensorInfo] = []
        tables = columns.tables("TensorInfo", self._places)
        shapes, ranks = self._vectors(tables, "dimensions", 4)
        flags, specific = self._vectors(tables, "dimensionSpecificity", 1)
        odd = (tables.at(self._table.by_name["quantizationScales"].slot) > 0) | (ranks > _RANK) | (specific > _RANK)
        rows = np.zeros((len(self._places), 2 * len(_PLAIN) + _RANK + 3), np.uint32)
        for number, name in enumerate(_PLAIN):
            place = tables.at(self._table.by_name[name].slot)
            rows[:, 2 * number] = columns.small(place, self._format(name), 0)
            rows[:, 2 * number + 1] = place > 0
        end = 2 * len(_PLAIN)
        rows[:, end] = ranks  # -1 becomes more than any
        rows[:, end + 1] = specific
        for axis in range(min(_RANK, max(int(ranks.max(initial=0)), int(specific.max(initial=0))))):
            deep = np.nonzero(ranks > axis)[0]
            rows[deep, end + 3 + axis] = columns.words[(shapes[deep] + 4 + 4 * axis) >> 2]
            deep = np.nonzero(specific > axis)[0]
            rows[deep, end + 2] |= (columns.bytes[flags[deep] + 4 + axis] > 0).astype(np.uint32) << np.uint32(axis)
        self._numbers = self._read(rows, odd)
        if np.any(odd):
            uses = np.bincount(np.searchsorted(self._places, places))
            for number in np.nonzero(odd)[0].tolist():
                sharing.count(int(uses[number]) * info_size(self.distinct[self._numbers[number]]))

    def numbers(self, places: Ints) -> Ints:
        """Which of ``distinct`` the TensorInfos at some of the places are."""
        found: Ints = self._numbers[np.searchsorted(self._places, places)]
        return found

    def _format(self, name: str) -> str:
        """The ``struct`` format of a field, for those of 4 bytes that of their bits."""
        kind = self._table.by_name[name].type
        enum = self._columns.facts.enums.get(kind)
        return {"bool": "B"}.get(kind, "I") if enum is None else enum.format

    def _vectors(self, tables: Tables, name: str, size: int) -> tuple[Ints, Ints]:
        """Where the vectors of a field are, and their lengths; -1 where there is none."""
        place = tables.at(self._table.by_name[name].slot)
        present = np.nonzero(place)[0]
        found = np.zeros(len(place), np.int64)
        counts = np.full(len(place), -1, np.int64)
        found[present] = self._columns.follow(place[present])
        counts[present] = self._columns.lengths(found[present], size)
        return found, counts

    def _read(self, rows: npt.NDArray[np.uint32], odd: npt.NDArray[np.bool_]) -> Ints:
        """Make the TensorInfos that rows of numbers say; those that are odd are decoded by themselves."""
        data, width = rows.tobytes(), rows.strides[0]
        known: dict[bytes, int] = {}
        numbers: list[int] = []
        first: list[int] = []
        for place, alone in enumerate(odd.tolist()):
            said = data[place * width : (place + 1) * width]
            number = None if alone else known.get(said)
            if number is None:
                number = len(first)
                first.append(place)
                if not alone:
                    known[said] = number
            numbers.append(number)
        decode, finish = self._decoder.table, self._decoder.finishers["TensorInfo"]
        for place, fields in zip(first, self._fields(rows[first]), strict=True):
            self.distinct.append(decode("TensorInfo", int(self._places[place])) if odd[place] else finish(fields))
        return np.array(numbers, np.int64)

    def _fields(self, rows: npt.NDArray[np.uint32]) -> list[dict[str, Any]]:
        """What rows say, as the decoder gives it: the fields that are present."""
        found: list[dict[str, Any]] = [{} for _ in rows]
        for number, name in enumerate(_PLAIN):
            for fields, value, there in zip(
                found, self._values(name, rows[:, 2 * number]), rows[:, 2 * number + 1].tolist(), strict=True
            ):
                if there:
                    fields[name] = value
        end = 2 * len(_PLAIN)
        for fields, (rank, specific, flags, *extents) in zip(found, rows[:, end:].tolist(), strict=True):
            if rank <= _RANK:
                fields["dimensions"] = tuple(extents[:rank])
            if specific <= _RANK:
                fields["dimensionSpecificity"] = tuple([bool(flags >> axis & 1) for axis in range(specific)])
        return found

    def _values(self, name: str, column: npt.NDArray[Any]) -> list[Any]:
        """The values of a field of 4 bytes or less by their bits."""
        kind = self._table.by_name[name].type
        enum = self._columns.facts.enums.get(kind)
        if enum is not None:
            return [enum.names.get(number, number) for number in column.astype(np.int32).tolist()]
        if kind == "float":
            column = column.copy().view(np.float32)
        elif kind in ("int", "bool"):
            column = column.astype({"int": np.int32, "bool": np.bool_}[kind])
        found: list[Any] = column.tolist()
        return found
