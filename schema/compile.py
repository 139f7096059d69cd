"""Compile the project's ``.fbs`` files into ``compiled.json``, which reader and writer are driven by.

Run ``python schema/compile.py`` after an edit of a schema; ``--check`` only compares and exits 1
on a difference. The grammar below is the part of FlatBuffers' schema language that the ``.fbs``
files here use: https://flatbuffers.dev/grammar/ is the whole of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from parsimonious.grammar import Grammar
from parsimonious.nodes import Node

HERE = Path(__file__).resolve().parent
COMPILED = HERE / "compiled.json"
DIALECTS = {"seed": "seed.fbs", "19.02": "v19_02.fbs", "19.05": "v19_05.fbs", "current": "current.fbs"}

GRAMMAR = Grammar(
    r"""
    schema     = _ item*
    item       = namespace / extension / attribute / root / enum / union / struct / table
    namespace  = "namespace" _ id _ ";" _
    extension  = "file_extension" _ string _ ";" _
    attribute  = "attribute" _ string _ ";" _
    root       = "root_type" _ id _ ";" _
    enum       = "enum" _ id _ ":" _ id _ "{" _ value* "}" _
    value      = id _ ("=" _ number _)? ","? _
    union      = "union" _ id _ "{" _ member* "}" _
    member     = id _ ","? _
    struct     = "struct" _ id _ "{" _ field* "}" _
    table      = "table" _ id _ "{" _ field* "}" _
    field      = id _ ":" _ type _ ("=" _ default _)? ("(" _ id _ ":" _ string _ ")" _)? ";" _
    type       = ("[" id "]") / id
    default    = number / id
    id         = ~"[A-Za-z_][A-Za-z0-9_]*"
    number     = ~"[-+]?[0-9.]+(e[-+]?[0-9]+)?"i
    string     = ~'"[^"]*"'
    _          = ~r"(\s|//[^\n]*)*"
    """
)

INTEGERS = ("byte", "ubyte", "short", "ushort", "int", "uint", "long", "ulong")


def _texts(node: Node, name: str) -> list[str]:
    """Texts of the nearest descendants called ``name``, in order."""
    found: list[str] = []
    for child in node.children:
        found.extend([child.text] if child.expr_name == name else _texts(child, name))
    return found


def _nodes(node: Node, name: str) -> list[Node]:
    found: list[Node] = []
    for child in node.children:
        found.extend([child] if child.expr_name == name else _nodes(child, name))
    return found


def _default(kind: str, text: str | None, enums: dict[str, Any]) -> Any:
    if kind in enums:
        return 0 if text is None else enums[kind]["values"][text]
    if kind == "bool":
        return text == "true"
    if kind == "float":
        return float(text or 0)
    return int(text or 0) if kind in INTEGERS else None


def compile_schema(text: str) -> dict[str, Any]:
    """The compiled form of one schema text.

    Returns a dict of ``root``, ``extension``, ``enums`` (underlying type, values), ``unions``
    (tag by member), ``structs`` (fields in order) and ``tables``: a list of
    ``[slot, name, type, default, former name or null]`` per table. A union field takes two
    slots, its tag first; the listed slot is that of the value.
    """
    tree = GRAMMAR.parse(text)
    out: dict[str, Any] = {"root": "", "extension": "", "enums": {}, "unions": {}, "structs": {}, "tables": {}}
    for enum in _nodes(tree, "enum"):
        name, kind, *_ = _texts(enum, "id")
        values: dict[str, int] = {}
        following = 0
        for value in _nodes(enum, "value"):
            number = _texts(value, "number")
            following = int(number[0]) if number else following
            values[_texts(value, "id")[0]] = following
            following += 1
        out["enums"][name] = {"type": kind, "values": values}
    for union in _nodes(tree, "union"):
        members = [_texts(m, "id")[0] for m in _nodes(union, "member")]
        out["unions"][_texts(union, "id")[0]] = {member: tag for tag, member in enumerate(members, 1)}
    for struct in _nodes(tree, "struct"):
        fields = [[_texts(f, "id")[0], _texts(f, "type")[0]] for f in _nodes(struct, "field")]
        out["structs"][_texts(struct, "id")[0]] = fields
    for table in _nodes(tree, "table"):
        slot = 0
        rows: list[list[Any]] = []
        for field in _nodes(table, "field"):
            kind = _texts(field, "type")[0]
            default = _texts(field, "default")
            former = [s.strip('"') for s in _texts(field, "string")]
            slot += kind in out["unions"]
            value = _default(kind, default[0] if default else None, out["enums"])
            rows.append([slot, _texts(field, "id")[0], kind, value, former[0] if former else None])
            slot += 1
        out["tables"][_texts(table, "id")[0]] = rows
    out["root"] = _texts(_nodes(tree, "root")[0], "id")[0]
    out["extension"] = _texts(_nodes(tree, "extension")[0], "string")[0].strip('"')
    return out


def compile_all() -> str:
    """The text of ``compiled.json``: every dialect's compiled schema, one table a line."""
    dialects = {name: compile_schema((HERE / file).read_text("utf-8")) for name, file in DIALECTS.items()}
    lines = []
    for dialect, schema in dialects.items():
        parts = []
        for key, value in schema.items():
            if isinstance(value, dict):
                rows = ",\n".join(f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
                parts.append(f"  {json.dumps(key)}: {{\n{rows}\n  }}" if rows else f"  {json.dumps(key)}: {{}}")
            else:
                parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
        lines.append(f" {json.dumps(dialect)}: {{\n" + ",\n".join(parts) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write ``compiled.json``, or with ``--check`` compare it; returns the exit code."""
    text = compile_all()
    if "--check" in arguments:
        same = COMPILED.exists() and COMPILED.read_text("utf-8") == text
        print("compiled.json matches the .fbs files" if same else "out of date: run python schema/compile.py")
        return 0 if same else 1
    COMPILED.write_text(text, "utf-8")
    print(f"wrote {COMPILED}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
