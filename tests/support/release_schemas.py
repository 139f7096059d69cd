"""The schema of a release as text for flatc, from its wire facts, and files that flatc makes by it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusion_engine.schema import SCALARS, compiled

__all__ = ["dialect_of", "flatc_decode", "flatc_encode", "schema_text"]

OWN = Path(__file__).resolve().parents[2] / "schema"
FILES = {"seed": "seed", "19.02": "v19_02", "19.05": "v19_05", "current": "current"}


def dialect_of(release: str) -> str:
    """The dialect that a release writes."""
    return release if release in FILES else "current"


def schema_text(version: Mapping[str, Any]) -> str:
    """What flatc compiles: an entry of ``dialects.json`` with every slot as it is there.

    Two facts it lacks, the integers below enums and the fields of structs, are those of our schema.
    """
    own = compiled()["current"]
    lines = ["namespace armnnSerializer;"]
    for name, values in {**version["enums"], "LayerType": version["LayerType"]}.items():
        kind = own["enums"][name]["type"] if name in own["enums"] else compiled()["seed"]["enums"][name]["type"]
        rows = sorted(values.items(), key=lambda item: item[1])
        unique = {number: member for member, number in reversed(rows)}
        lines.append(f"enum {name} : {kind} {{ {', '.join(f'{unique[n]} = {n}' for n in sorted(unique))} }}")
    for name, fields in own["structs"].items():
        lines.append(f"struct {name} {{ {' '.join(f'{field} : {kind};' for field, kind in fields)} }}")
    unions = {"Layer": version["union Layer"], "ConstTensorData": own["unions"]["ConstTensorData"]}
    for name, members in unions.items():
        rows = sorted(members.items(), key=lambda item: item[1])
        assert [number for _, number in rows] == list(range(1, len(rows) + 1))
        lines.append(f"union {name} {{ {', '.join(member for member, _ in rows)} }}")
    enums = {*version["enums"], "LayerType"}
    for name, rows in version["tables"].items():
        fields = []
        for slot, field, kind, default in rows:
            text = f"{field} : {kind}"
            if default is not None and (kind in SCALARS or kind in enums):
                text += f" = {str(default).lower() if isinstance(default, bool) else default}"
            # The facts give a union the slot of its tag; flatc wants that of its value, and puts the tag before it.
            fields.append(f"{text} (id: {slot + (kind in unions)});")
        lines.append(f"table {name} {{ {' '.join(fields)} }}")
    lines.append("root_type SerializedGraph;")
    return "\n".join(lines) + "\n"


def _flatc(folder: str, *arguments: str) -> None:
    command = ["flatc", "--no-warnings", "-o", folder, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def flatc_decode(data: bytes, schema: str | Path) -> Any:
    """A file as plain data, by a schema: its text, or a file of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = _placed(folder, schema)
        (Path(folder) / "m.armnn").write_bytes(data)
        _flatc(folder, "--json", "--strict-json", "--raw-binary", str(path), "--", f"{folder}/m.armnn")
        return json.loads((Path(folder) / "m.json").read_text("utf-8"))


def flatc_encode(values: Any, schema: str | Path) -> bytes:
    """Plain data as a file, by a schema."""
    with tempfile.TemporaryDirectory() as folder:
        path = _placed(folder, schema)
        (Path(folder) / "m.json").write_text(json.dumps(values), "utf-8")
        _flatc(folder, "--binary", str(path), f"{folder}/m.json")
        return (Path(folder) / "m.bin").read_bytes()


def _placed(folder: str, schema: str | Path) -> Path:
    if isinstance(schema, Path):
        return schema
    path = Path(folder) / "release.fbs"
    path.write_text(schema, "utf-8")
    return path


def own_schema(dialect: str) -> Path:
    """Our own schema of a dialect."""
    return OWN / f"{FILES[dialect]}.fbs"
