"""Writing: the bytes' structure, sharing, limits, atomicity, and flatc's opinion of them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine import resources
from fusion_engine.armnn import files, writer
from fusion_engine.armnn.decode import Decoder
from fusion_engine.errors import ModelError, OutputError
from fusion_engine.network import FrozenDict, Network
from fusion_engine.schema import SCALARS, Table, float32, schema
from fusion_engine.tensor import Tensor, TensorInfo
from tests.support.encode import plain_dumps
from tests.support.nets import Net
from tests.support.strategies import random_network
from tests.unit.test_dialects import small
from tests.unit.test_reader import chain


def constants(*tensors: Tensor) -> Network:
    """A network of Constants, each with an Output."""
    graph = fe.new_network()
    for number, tensor in enumerate(tensors):
        graph.add_node(number, type="Constant", outputs=(tensor.info,), constants=FrozenDict(input=tensor))
        graph.add_node(100 + number, type="Output", binding_id=number, outputs=())
        fe.connect(graph, number, 100 + number)
    graph.graph["outputs"] = tuple(100 + number for number in range(len(tensors)))
    return graph


def vectors(data: bytes) -> list[tuple[int, int]]:
    """(position of the elements, count) of every constant's data."""
    found = []
    decoder = Decoder(data, schema())
    root = decoder.table("SerializedGraph", decoder.root())
    for any_layer in root["layers"]:
        kind = schema().by_tag[any_layer["layer_type"]]
        table = decoder.table(kind.table.name, any_layer["layer"])
        if kind.name == "Constant":
            vector = decoder.peek_offset(table["input"]["data"], 0)
            found.append((vector + 4, struct.unpack_from("<I", data, vector)[0]))
    return found


@pytest.mark.parametrize("data_type", ["Float16", "Float32", "QAsymmS8", "Signed64", "Boolean", "QSymmS16"])
def test_elements_are_counted_little_endian_and_aligned_to_8(data_type: str) -> None:
    tensors = [Tensor.of([1, 0, 1], data_type), Tensor.of(np.arange(7)[::2], data_type)]
    data = fe.dumps(constants(*tensors))
    for (position, count), tensor in zip(vectors(data), tensors, strict=True):
        assert position % 8 == 0
        assert count == tensor.data.size
        assert data[position : position + tensor.data.nbytes] == tensor.data.astype(tensor.data.dtype).tobytes()


def test_strided_and_foreign_byte_order_arrays_are_written_by_value() -> None:
    base = np.arange(12, dtype="<f4").reshape(3, 4)
    strided = Tensor(TensorInfo((3, 2)), base[:, ::2])
    transposed = Tensor(TensorInfo((4, 3)), base.T)
    foreign = Tensor.of(np.array([1.5, 2.5], ">f4"))
    graph = fe.loads(fe.dumps(constants(strided, transposed, foreign)))
    found = [graph.nodes[key]["constants"]["input"].data.tolist() for key in graph if graph.nodes[key]["constants"]]
    assert sorted(map(str, found)) == sorted(map(str, [base[:, ::2].tolist(), base.T.tolist(), [1.5, 2.5]]))


def test_shared_memory_is_written_once_and_equal_content_is_not_shared() -> None:
    array = np.arange(1000, dtype="<f4")
    array.flags.writeable = False
    info = TensorInfo((1000,))
    shared = fe.dumps(constants(Tensor(info, array), Tensor(info, array)))
    apart = fe.dumps(constants(Tensor(info, array), Tensor(info, array.copy())))
    assert len({position for position, _ in vectors(shared)}) == 1
    assert len({position for position, _ in vectors(apart)}) == 2
    assert len(apart) - len(shared) in range(4000, 4009)
    again = fe.loads(shared)
    first, second = (again.nodes[key]["constants"]["input"] for key in again if again.nodes[key]["type"] == "Constant")
    assert first.memory == second.memory
    assert fe.dumps(again) == shared


def test_a_view_of_the_same_start_but_other_strides_is_not_taken_for_the_same() -> None:
    base = np.arange(16, dtype="<f4").reshape(4, 4)
    graph = constants(Tensor(TensorInfo((2, 2)), base[:2, :2]), Tensor(TensorInfo((2, 2)), base[::2, ::2]))
    again = fe.loads(fe.dumps(graph))
    found = [again.nodes[key]["constants"]["input"].data.tolist() for key in again if again.nodes[key]["constants"]]
    assert found == [[[0, 1], [4, 5]], [[0, 2], [8, 10]]]


def test_every_tensor_info_is_written_with_its_own_values() -> None:
    """They share pieces, and a scale of 1.0 and an offset of 0 are absent in the file."""
    scales = (0.0, -0.0, 1.0, 0.5, 0.25, 1e-50, -1.0, 3e38, float("inf"))
    infos = [TensorInfo((n, 2), "QAsymmU8", scale, n % 3) for n, scale in enumerate(scales, 1)]
    infos += [TensorInfo((n,) * n, "Float32") for n in (1, 2, 3, 4, 5)] + [TensorInfo((), "Float32", dimensionality=2)]
    infos += [TensorInfo((3,), "QSymmS8", 0.5, 0, scales, 0), TensorInfo((3,), "QAsymmU8", 0.5, -(2**31))]
    infos += [TensorInfo((2**32 - 1, 0), "Float16"), TensorInfo((3, 2), "Float32", dimension_specificity=(True, False))]
    net = Net()
    for number, info in enumerate(infos):
        key = net.input((1,), name=str(number), binding_id=number)
        net.graph.nodes[key]["outputs"] = (info,)
    again = fe.loads(fe.dumps(net.graph))
    found = {again.nodes[key]["name"]: again.nodes[key]["outputs"][0] for key in again}
    for number, info in enumerate(infos):
        wanted = replace(info, quantization_scale=float32(info.quantization_scale))
        wanted = replace(wanted, quantization_scales=tuple(map(float32, info.quantization_scales)))
        assert repr(found[str(number)]) == repr(wanted)


def flatc_json(folder: Path, data: bytes, dialect: str) -> bytes:
    """A file as flatc tells it, defaults written out."""
    (folder / "m.bin").write_bytes(data)
    name = {"seed": "seed", "19.02": "v19_02", "19.05": "v19_05", "current": "current"}[dialect]
    (folder / "s.fbs").write_text((resources.folder("schema") / f"{name}.fbs").read_text("utf-8"))
    subprocess.run(
        [
            *("flatc", "--json", "--raw-binary", "--strict-json", "--defaults-json", "--allow-non-utf8"),
            *("-o", ".", "s.fbs", "--", "m.bin"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return (folder / "m.json").read_bytes()


def every_table(data: bytes) -> Iterator[tuple[Decoder, Table, int]]:
    """Every table of a file in the current dialect, with its position."""
    decoder, facts = Decoder(data, schema()), schema()
    pending = [("SerializedGraph", decoder.root())]
    while pending:
        name, position = pending.pop()
        table = facts.tables[name]
        yield decoder, table, position
        for f in table.fields:
            place = decoder.peek_offset(position, f.slot) if f.kind in ("table", "tables", "union") else 0
            if place and f.kind == "union":
                tag = data[decoder.peek(position, f.slot - 1)]
                pending.append((next(m for m, t in facts.unions[f.type].items() if t == tag), place))
            elif place:
                places = [place] if f.kind == "table" else decoder.targets(place)
                pending.extend((f.type, p) for p in places)


@pytest.mark.parametrize(("one", "other"), [(np.int8(-1), np.uint8(255)), (np.int32(7), np.int64(7)), (1, np.int16(1))])
def test_numbers_of_numpy_are_written_by_their_value(one: Any, other: Any) -> None:
    net = Net()
    at = net.input((2, 2))
    for axis in (one, other):
        at = net.layer("Softmax", at, outputs=(TensorInfo((2, 2)),), params=FrozenDict(beta=1.0, axis=axis))
    net.output(at)
    found = [node["params"]["axis"] for node in fe.loads(fe.dumps(net.graph)).nodes.values() if node["params"]]
    assert found == [int(one), int(other)]


@pytest.mark.parametrize(
    ("one", "other"), [(0.1, float32(0.1)), (0, 0.0), (1e-46, 0.0), (1, 1.0), (np.float32(0.25), 0.25)]
)
def test_scales_that_are_one_in_a_file_are_one_table(one: Any, other: Any) -> None:
    def written(first: Any, second: Any) -> bytes:
        net = Net()
        at = net.input((2, 2))
        for scale in (first, second):
            info = TensorInfo((2, 2), "QAsymmU8", quantization_scale=scale)
            at = net.layer("Floor", at, outputs=(info,))
        net.output(at)
        return fe.dumps(net.graph)

    assert written(one, other) == written(other, one) == written(one, one)
    assert fe.dumps(fe.loads(written(one, other))) == written(one, other)


def test_tables_say_their_true_size() -> None:
    """Every table's vtable covers its last field (a fault of flatbuffers before 25.12)."""
    data = fe.dumps(random_network(5, 40, "current"))
    seen: set[str] = set()
    for decoder, table, position in every_table(data):
        place, _ = decoder.vtable(position)
        declared = struct.unpack_from("<H", data, place + 2)[0]
        for f in table.fields:
            field = decoder.peek(position, f.slot)
            if field:
                code = schema().enums[f.type].format if f.kind == "enum" else SCALARS.get(f.type, "I")
                size = 8 if f.kind == "struct" else struct.calcsize(code if f.kind in ("enum", "scalar") else "I")
                assert field + size - position <= declared, (table.name, f.name)
        seen.add(table.name)
    assert {"TensorInfo", "InputSlot", "OutputSlot", "LayerBase", "AnyLayer", "BindableLayerBase"} <= seen


@pytest.mark.parametrize("dialect", ["seed", "19.02", "19.05", "current"])
def test_vtables_are_written_once_and_tensor_infos_that_are_equal_too(dialect: str) -> None:
    net = Net(dialect)
    x = net.input((1, 4), name="x")
    for number in range(20):
        x = net.layer("Softmax", x, params={"beta": 1.0}, name=f"f{number}")
    net.output(x)
    data = fe.dumps(net.graph)
    assert len(data) < len(plain_dumps(net.graph))
    assert data.count(struct.pack("<3I", 2, 1, 4)) == 1  # the vector of the only shape


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["seed", "19.02", "19.05", "current"])
@pytest.mark.skipif(shutil.which("flatc") is None, reason="flatc (Debian: flatbuffers-compiler) is not installed")
def test_flatc_sees_what_it_sees_of_the_plain_twin(tmp_path: Path, dialect: str, seed: int) -> None:
    graph = random_network(seed, 60, dialect)
    fast, plain = (flatc_json(tmp_path, data, dialect) for data in (fe.dumps(graph), plain_dumps(graph)))
    assert fast == plain
    assert fast.count(b'"layer_type"') == len(graph)


def test_over_the_limit_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BUFFER", 2**20)
    graph = constants(Tensor.of(np.zeros(2**19, "<f4")))
    with pytest.raises(ModelError, match="ends below 2 GiB"):
        fe.save(graph, tmp_path / "big.armnn")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "model.armnn"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        fe.save(constants(Tensor.of([1.0])), target)
    assert [path.name for path in tmp_path.iterdir()] == ["model.armnn"]
    assert target.read_bytes() == b"old"


def test_where_it_cannot_be_written_it_says_so(tmp_path: Path) -> None:
    graph = constants(Tensor.of([1.0]))
    with pytest.raises(OutputError, match="No such file or directory"):
        fe.save(graph, tmp_path / "missing" / "x.armnn")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError):
        fe.save(graph, tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_permissions_follow_the_umask_or_the_file_that_was_there(tmp_path: Path) -> None:
    graph = constants(Tensor.of([1.0]))
    old = os.umask(0o027)
    try:
        fe.save(graph, tmp_path / "new.armnn")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new.armnn").stat().st_mode) == 0o640
    (tmp_path / "new.armnn").chmod(0o604)
    fe.save(graph, tmp_path / "new.armnn")
    assert stat.S_IMODE((tmp_path / "new.armnn").stat().st_mode) == 0o604


@pytest.mark.parametrize("missing", [(), ("copy_file_range",), ("preadv", "posix_fadvise")])
def test_weights_of_a_mapped_file_are_copied_by_whatever_the_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    data = fe.dumps(constants(Tensor.of(np.arange(100_000, dtype="<f4")), Tensor.of([7], "QAsymmU8")))
    (tmp_path / "big.armnn").write_bytes(data)
    monkeypatch.setattr(files, "READ_WHOLE", 1000)
    graph = fe.load(tmp_path / "big.armnn")
    monkeypatch.setattr(files, "BLOCK", 3000)
    monkeypatch.setattr(files, "WRITEBACK", 50_000)
    for name in missing:
        monkeypatch.delattr(files.os, name)
    fe.save(graph, tmp_path / "copy.armnn")
    assert (tmp_path / "copy.armnn").read_bytes() == data
    assert fe.dumps(graph) == data
    for key in graph:
        graph.nodes[key]["name"] = f"a longer name than before {key}"  # so that weights move by less than a page
    fe.save(graph, tmp_path / "moved.armnn")
    assert (tmp_path / "moved.armnn").read_bytes() == fe.dumps(graph) != data


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no posix_fadvise")
def test_what_is_written_is_handed_on_to_the_disk_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WRITEBACK", 100_000)
    asked = []
    monkeypatch.setattr(files.os, "posix_fadvise", lambda _, start, length, advice: asked.append((start, length)))
    graph = constants(Tensor.of(np.arange(100_000, dtype="<f4")), Tensor.of(np.arange(50_000, dtype="<f4")))
    fe.save(graph, tmp_path / "big.armnn")
    assert (tmp_path / "big.armnn").read_bytes() == fe.dumps(graph)
    starts, lengths = zip(*asked, strict=True)
    assert starts == (0, *np.cumsum(lengths)[:-1])
    assert len(asked) >= 5
    assert min(lengths) >= 100_000


def test_what_the_kernel_does_not_copy_between_these_files_is_copied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fe.dumps(constants(Tensor.of(np.arange(100_000, dtype="<f4"))))
    (tmp_path / "big.armnn").write_bytes(data)
    monkeypatch.setattr(files, "READ_WHOLE", 1000)
    graph = fe.load(tmp_path / "big.armnn")
    asked = []

    def refuse(*arguments: object) -> int:
        asked.append(arguments)
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(files.os, "copy_file_range", refuse, raising=False)
    fe.save(graph, tmp_path / "copy.armnn")
    assert (tmp_path / "copy.armnn").read_bytes() == data
    assert len(asked) == 1

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "copy_file_range", fail, raising=False)
    with pytest.raises(OutputError, match="Input/output error"):
        fe.save(graph, tmp_path / "copy.armnn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.armnn", "copy.armnn"]


def test_a_file_that_ends_while_it_is_copied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fe.dumps(constants(Tensor.of(np.arange(100_000, dtype="<f4"))))
    (tmp_path / "big.armnn").write_bytes(data)
    monkeypatch.setattr(files, "READ_WHOLE", 1000)
    graph = fe.load(tmp_path / "big.armnn")
    monkeypatch.setattr(files.os, "copy_file_range", lambda *_: 0, raising=False)
    with pytest.raises(ModelError, match=r"big\.armnn: the file was shortened while in use: load it again"):
        fe.save(graph, tmp_path / "copy.armnn")
    assert [path.name for path in tmp_path.iterdir()] == ["big.armnn"]


def test_the_writers_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys, hashlib, fusion_engine as fe\nprint(hashlib.sha256(fe.dumps(fe.load(sys.argv[1]))).hexdigest())\n"
    )
    (tmp_path / "m.armnn").write_bytes(chain())
    found = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "m.armnn"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.skipif(shutil.which("flatc") is None, reason="flatc (Debian: flatbuffers-compiler) is not installed")
@pytest.mark.parametrize("dialect", ["seed", "19.02", "19.05", "current"])
def test_flatc_decodes_what_is_written(tmp_path: Path, dialect: str) -> None:
    decoded = json.loads(flatc_json(tmp_path, fe.dumps(fe.loads(small(dialect))), dialect))
    assert [entry["layer_type"] for entry in decoded["layers"]] == ["InputLayer", "OutputLayer"]
    connection = decoded["layers"][1]["layer"]["base"]["base"]["inputSlots"][0]["connection"]
    assert connection == {"sourceLayerIndex": 0, "outputSlotIndex": 0}
    assert (decoded["inputIds"], decoded["outputIds"]) == ([0], [1])
