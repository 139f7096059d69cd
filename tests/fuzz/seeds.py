"""What fuzzing starts from: our own small networks, and the golden rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.resources import folder
from fusion_engine.schema import DIALECTS, schema, slot_facts
from tests.support.encode import plain_dumps
from tests.support.nets import Net
from tests.support.strategies import random_network

__all__ = ["SEEDS"]

GOLDEN = Path(__file__).parents[1] / "golden" / "rules"


def _random_networks() -> Iterator[Network]:
    random = Random(8)
    for number in range(60):
        yield random_network(random.randrange(2**32), number % 4, DIALECTS[number % 4])


def _every_layer() -> Iterator[Network]:
    """A network for each layer type, as bare as it may be."""
    wanted = set(slot_facts()) & set(schema().layers)
    for seed in range(400):
        graph = random_network(seed, 3)
        found = {node["type"] for _, node in graph.nodes(data=True)} & wanted
        if found:
            wanted -= found
            yield graph


def _that_fuse() -> Iterator[Network]:
    """Small networks that the shipped rules change."""
    for form, layout in (("member", "NHWC"), ("constant", "NHWC"), ("constant", "NCHW")):
        net = Net(form=form, layout=layout)
        x = net.input((1, 3, 3, 2) if layout == "NHWC" else (1, 2, 3, 3))
        x = net.conv(x, [[[[1.0, 2.0]]]] if layout == "NHWC" else [[[[1.0]], [[2.0]]]], [0.5])
        x = net.activation(net.batch_norm(x, [2.0], [1.0], [0.5], [1.0]))
        net.output(x)
        yield net.graph
    net = Net()
    x = net.pad(net.input((1, 2, 2, 1)), [(0, 0), (1, 1), (1, 1), (0, 0)])
    x = net.conv(x, [[[[1.0], [2.0]], [[3.0], [4.0]]]])
    x = net.addition(net.multiplication(x, net.constant([2.0])), net.constant([1.0]))
    net.output(net.pool(x, (2, 2), "Max"))
    yield net.graph
    net = Net()
    x = net.binary("Maximum", net.input((1, 4)), net.constant([0.0]))
    x = net.activation(net.binary("Minimum", x, net.constant([6.0])), "BoundedReLu", 5.0, -1.0)
    net.output(net.reshape(net.reshape(x, (2, 2)), (4, 1)))
    yield net.graph
    net = Net()
    x = net.permute(net.permute(net.input((1, 2, 3, 4)), (0, 2, 3, 1)), (0, 3, 1, 2))
    net.output(net.transpose(x, (0, 1, 3, 2)))
    net.output(net.concat(*((x, slot) for slot in [0]), axis=1))
    yield net.graph
    net = Net()
    x = net.fully_connected(net.input((1, 2)), [[1.0, 2.0], [3.0, 4.0]], [1.0, -1.0])
    split = net.splitter(net.activation(x), 1, [1, 1])
    net.output(net.addition((split, 0), (split, 1)))
    yield net.graph


def models() -> Iterator[bytes]:
    """Files of every dialect and layer type."""
    for graph in _random_networks():
        yield fe.dumps(graph)
        yield plain_dumps(graph)
    for graph in _every_layer():
        yield fe.dumps(graph)
    yield from fusable()


def fusable() -> Iterator[bytes]:
    """Files that the rules change, and what they make of them."""
    rules = fe.load_rules("npu")
    for graph in _that_fuse():
        yield fe.dumps(graph)
        yield fe.dumps(fe.fuse(graph, rules))


def texts() -> Iterator[bytes]:
    """Every text of the golden files and the shipped rules, in both versions."""
    found = []
    for name in ("accepted.txt", "rejected.txt", "patterns.txt"):
        for line in (GOLDEN / name).read_text("utf-8").splitlines():
            head, colon, rest = line.partition(": ")
            if colon and head.rstrip("e") in ("1", "2"):
                found.append(rest)
    for name in ("armnn", "npu", "nvneural"):
        found += [text for rule in fe.load_rules(name) for text in rule.texts]
    for text in dict.fromkeys(found):
        for flags in (0, 1, 12):
            yield bytes([flags]) + text.encode()


def rule_files() -> Iterator[bytes]:
    """The golden files and the shipped ones."""
    for path in sorted([*(GOLDEN / "files").iterdir(), *(Path(str(folder("rules"))).glob("*.toml"))]):
        if path.suffix in (".toml", ".rules"):
            yield bytes([path.suffix == ".rules"]) + path.read_bytes()


SEEDS = {
    "model": models,
    "text": texts,
    "rule_file": rule_files,
    "fuse": lambda: iter([*fusable(), *(fe.dumps(graph) for graph in _random_networks())]),
}
"""By target."""
