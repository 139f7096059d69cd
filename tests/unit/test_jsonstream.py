"""A JSON object read in pieces is what `json` reads at once."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion_engine import jsonstream
from fusion_engine.jsonstream import read_members

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def read(data: bytes, block: int = 7) -> tuple[dict[str, Any], list[Any]]:
    entries: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonstream, "_BLOCK", block)
        return read_members(io.BytesIO(data), "models", entries.append), entries


@given(
    st.dictionaries(st.text(), VALUES, max_size=3),
    st.lists(VALUES, max_size=4),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-le"]),
    st.integers(4, 40),
    st.booleans(),
)
def test_as_json_reads_it(
    others: dict[str, Any], models: list[Any], indent: int | None, encoding: str, block: int, ascii_only: bool
) -> None:
    document = {**others, "models": models, "last": 12}
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(encoding, "surrogatepass")
    assert read(data, block) == ({**document, "models": []}, models)


@pytest.mark.parametrize(
    "data", [b"{}", b" {\n}\t", b'{"a": 1}', b'{"models": [ ]}', b'{"models": [1, [2]], "a": 12}\n']
)
def test_small_ones(data: bytes) -> None:
    document = json.loads(data)
    models = document.get("models", [])
    assert read(data) == ({**document, **({"models": []} if "models" in document else {})}, models)


NONE = (
    *(b"", b" ", b"[]", b"null", b"{", b'{"a"', b'{"a":', b'{"a": 1', b'{"a": 1,', b'{"a": 1,}', b'{"a" 1}'),
    *(b"{1: 2}", b"{} {}", b"{}x", b'{"a": nul}', b'{"a": "\xff"}', b'{"a": 01}', b"\xff\xfe{"),
    *(b'{"models": 3}', b'{"models": {}}', b'{"models": [1', b'{"models": [1,]}', b'{"models": [1 2]}'),
    *(b'{"models": [,]}', b'{"models": [tru]}'),
)


@pytest.mark.parametrize("data", NONE)
def test_what_is_none(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own words are not ours to hold
        read(data)


def test_no_more_is_in_memory_than_an_entry() -> None:
    entries = 50_000
    data = b'{"models": [' + b", ".join(b'"0123456789"' for _ in range(entries)) + b"]}"

    class Watched(io.BytesIO):
        most = 0

        def read(self, size: int | None = -1) -> bytes:
            self.most = max(self.most, size or 0)
            return super().read(size)

    file = Watched(data)
    found: list[str] = []
    read_members(file, "models", found.append)
    assert len(found) == entries
    assert file.most <= 1 << 16 < len(data)
