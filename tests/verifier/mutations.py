"""Files that are damaged in the ways that matter to a reader of FlatBuffers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

__all__ = ["KINDS", "mutated"]

ODD = (0, 1, 2, 3, 4, 5, 6, 8, 12, 0x7F, 0x80, 0xFF, 0xFFFE, 0xFFFF, 2**20, 2**29, 2**30, 2**31 - 5, 2**31 - 1, 2**31)
"""Numbers at which readers go wrong."""


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """One to eight bits the other way round."""
    for _bit in range(random.choice((1, 1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _byte(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Bytes replaced by any others."""
    for _byte in range(random.choice((1, 1, 2, 16))):
        data[random.randrange(len(data))] = random.randrange(256)


def _truncate(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """The end cut off: often little of it."""
    cut = random.randint(1, 64) if random.random() < 0.5 else random.randrange(len(data))
    del data[max(0, len(data) - cut) :]


def _grow(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """More at the end, or a hole in the middle: every position behind it moves."""
    size = random.choice((1, 2, 3, 4, 8, 64))
    at = len(data) if random.random() < 0.5 else random.randrange(len(data))
    data[at:at] = random.randbytes(size) if random.random() < 0.5 else bytes(size)


def _word(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A word, an offset or a length if it hits one, set to an odd number or moved a little."""
    at = _aligned(random, data, 4)
    old = struct.unpack_from("<I", data, at)[0]
    new = random.choice(ODD) if random.random() < 0.5 else old + random.choice((-8, -4, -2, -1, 1, 2, 4, 8, 64))
    struct.pack_into("<I", data, at, new % 2**32)


def _half(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A half word, an entry of a vtable if it hits one, set or moved."""
    at = _aligned(random, data, 2)
    old = struct.unpack_from("<H", data, at)[0]
    new = random.choice(ODD) if random.random() < 0.5 else old + random.choice((-4, -2, -1, 1, 2, 4))
    struct.pack_into("<H", data, at, new % 2**16)


def _lengthen(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A small word multiplied: a vector's length if it hits one."""
    for _try in range(64):
        at = _aligned(random, data, 4)
        old = struct.unpack_from("<I", data, at)[0]
        if 0 < old < 4096:
            struct.pack_into("<I", data, at, old * random.choice((2, 3, 16, 2**16, 2**20 - 1)) % 2**32)
            return


def _splice(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """An offset that leads to where another one leads: tables of other types, shared ones."""
    for _try in range(64):
        one, other = _aligned(random, data, 4), _aligned(random, data, 4)
        target = other + struct.unpack_from("<I", data, other)[0]
        if one < target < len(data):
            struct.pack_into("<I", data, one, target - one)
            return


def _retable(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A table that takes another one's vtable, if it hits two."""
    for _try in range(64):
        one, other = _aligned(random, data, 4), _aligned(random, data, 4)
        place = other - struct.unpack_from("<i", data, other)[0]
        if 0 <= place < len(data):
            struct.pack_into("<i", data, one, one - place)
            return


def _transplant(random: Random, data: bytearray, pool: Sequence[bytes]) -> None:
    """A run of bytes from another file, at the same or another place."""
    other = random.choice(pool)
    size = random.randint(1, min(256, len(other)))
    start = random.randrange(len(other) - size + 1)
    at = start if random.random() < 0.5 and start < len(data) else _aligned(random, data, 4)
    data[at : at + size] = other[start : start + size]


def _aligned(random: Random, data: bytearray, size: int) -> int:
    return random.randrange(max(1, len(data) // size)) * size if len(data) >= size + size else 0


Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]

KINDS: dict[str, Mutation] = {
    "flip": _flip,
    "byte": _byte,
    "truncate": _truncate,
    "grow": _grow,
    "word": _word,
    "half": _half,
    "lengthen": _lengthen,
    "splice": _splice,
    "retable": _retable,
    "transplant": _transplant,
}


def mutated(random: Random, data: bytes, pool: Sequence[bytes]) -> tuple[str, bytes]:
    """A damaged copy, and by what: mostly one kind, sometimes several after each other."""
    changed = bytearray(data)
    names = random.choices(sorted(KINDS), k=random.choice((1, 1, 1, 2, 4)))
    for name in names:
        if len(changed) >= 8:
            KINDS[name](random, changed, pool)
    return "+".join(names), bytes(changed)
