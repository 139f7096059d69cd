"""Random small networks, and rule texts read off them so that they match now and then."""

from __future__ import annotations

from random import Random

import numpy as np

from fusion_engine.network import Network, Source, sources
from fusion_engine.recipes import read_recipe
from tests.support.nets import Net

SHAPE = (1, 2, 2, 2)
TYPES = (
    "Activation",
    "Addition",
    "Concat",
    "Constant",
    "Convolution2d",
    "ElementwiseBinary",
    "Input",
    "Multiplication",
    "Pooling2d",
    "StandIn",
    "Subtraction",
)


def random_network(random: Random) -> Network:
    """Up to eleven layers over one or two Inputs, of few types, with shared sources; every layer reaches an Output."""
    layouts = ["NHWC"] if random.random() < 0.7 else ["NHWC", "NCHW"]
    net = Net(layout=layouts[0])
    pool: list[tuple[int, int]] = [(net.input(SHAPE), 0)]
    if random.random() < 0.5:
        pool.append((net.input(SHAPE, data_type=random.choice(["Float32", "Float16"])), 0))
    if random.random() < 0.5:
        pool.append((net.constant(np.ones(SHAPE)), 0))
    for _ in range(random.randint(2, 7)):
        recent = pool[-3:]
        a, b = random.choice(recent), random.choice(recent if random.random() < 0.7 else pool)
        kind = random.choice(["act", "binary", "binary", "binary", "concat", "conv", "pool", "split"])
        if kind == "act":
            pool.append((net.activation(a, random.choice(["ReLu", "TanH"])), 0))
        elif kind == "binary":
            word = random.choice(["Addition", "Addition", "Multiplication", "Subtraction"])
            pool.append((net.binary(word, a, b, spelling=random.choice(["old", "new"])), 0))
        elif kind == "concat":
            more = [random.choice(pool) for _ in range(random.randint(0, 3))]
            pool.append((net.layer("Concat", a, b, *more, outputs=(SHAPE,)), 0))
        elif kind == "conv":
            computed = random.random() < 0.3
            layout = random.choice(layouts)
            shape = (2, 1, 1, 2) if layout == "NHWC" else (2, 2, 1, 1)
            weights = net.layer("Concat", b, outputs=(shape,)) if computed else np.ones(shape)
            bias = random.choice([None, [0.0, 0.0]])
            pool.append((net.conv(a, weights, bias, layout=layout, output=net.info(a)), 0))
        elif kind == "pool":
            pool.append((net.pool(a, (1, 1), layout=random.choice(layouts)), 0))
        else:
            key = net.stand_in(a, outputs=(SHAPE, SHAPE))
            pool += [(key, 0), (key, 1)]
    for key in list(net.graph):
        if not net.graph.succ[key]:
            net.output(key)
    return net.graph


class Patterns:
    """Rule texts read off a network.

    What is written down is true of the layers it is read from about four times out of five; so some
    patterns match, and most of those that do not fail deep inside.
    """

    def __init__(self, graph: Network, random: Random) -> None:
        self.graph = graph
        self.random = random

    def text(self, root: int) -> str:
        """A text that may match at a root."""
        return self.layer(Source(root, 0), self.random.randint(1, 4))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def layer(self, source: Source, depth: int) -> str:
        scope = ""
        if self.chance(0.1):
            scope = self.random.choice(["fp32|", "fp16|", "nhwc|", "nchw|", "fp32|nhwc|"])
        text = scope + self.type(source.layer) + self.condition(source)
        if depth > 0 and self.chance(0.75):
            inputs = self.inputs(source.layer)
            items = self.items(inputs, depth - 1) if inputs else "?:0~"
            text += "{" + items + "}"
        return text

    def type(self, key: int) -> str:
        name: str = self.graph.nodes[key]["type"]
        made = read_recipe(self.graph, key) if name == "StandIn" else None
        if made is not None:
            name = made["result"]
        if self.chance(0.05):
            return self.random.choice(TYPES)
        if name in ("Addition", "Multiplication", "Subtraction") and self.chance(0.2):
            return "ElementwiseBinary"
        if name == "ElementwiseBinary" and self.chance(0.7):
            operation = self.graph.nodes[key]["params"]["operation"]
            return {"Add": "Addition", "Mul": "Multiplication", "Sub": "Subtraction"}[operation]
        return name

    def condition(self, source: Source) -> str:
        tests: list[str] = []
        node = self.graph.nodes[source.layer]
        while self.chance(0.15):
            options = [f'name == "{node["name"]}"', 'name <> "x"', 'name == "x"']
            if node["type"] not in ("Output", "Convolution2d"):
                options += [f'output.dataType == "{self.random.choice(["Float32", "Float16"])}"', "output.c >= 2"]
            if node["type"] not in ("Input", "Constant"):
                options += ["input.c == 2", "input.c > 2 || output.c <= 2"]
            if node["type"] == "Activation":
                options += ['activationFunction == "ReLu"', 'activationFunction <> "ReLu"', "a < 1"]
            tests.append(self.random.choice(options))
        return f"[{self.random.choice([' && ', ' || ']).join(tests)}]" if tests else ""

    def inputs(self, key: int) -> list[Source]:
        found = sources(self.graph, key)
        node = self.graph.nodes[key]
        made = read_recipe(self.graph, key) if node["type"] == "StandIn" else None
        if made is not None:
            return found[: made["inputs"]]
        if node["type"] == "Convolution2d":
            return [s for i, s in enumerate(found) if i == 0 or self.graph.nodes[s.layer]["type"] != "Constant"]
        if len(found) == 2 and self.chance(0.3):
            found.reverse()
        return found

    def items(self, inputs: list[Source], depth: int) -> str:
        """Items for a run of inputs, now and then with one too many or too few."""
        parts: list[str] = []
        rest = list(inputs)
        while rest:
            run = 1 if len(rest) == 1 or self.chance(0.6) else self.random.randint(2, len(rest))
            parts.append(self.item(rest[:run], depth))
            rest = rest[run:]
            if self.chance(0.1):
                parts.append(
                    self.selection(self.random.choice(inputs), depth) + self.random.choice([":0~1", ":0", ":0~"])
                )
        if self.chance(0.05):
            parts.append("?")
        return ", ".join(parts)

    def item(self, run: list[Source], depth: int) -> str:
        """One item for a run of one or more inputs."""
        count = len(run)
        if count == 1:
            suffix = self.random.choice([":1", ":0~1", ":1~", ":0~", ":0~2"]) if self.chance(0.2) else ""
            return self.selection(run[0], depth) + suffix
        form = self.random.randrange(4)
        if form == 0:
            return f"({self.items(run, depth)})" + ("!" if self.chance(0.1) else "")
        if form == 1:
            some = self.random.sample(run, min(2, count))
            choices = "|".join(self.element(source, depth) for source in some)
            return choices + self.random.choice([":0~", ":1~", f":{count}", f":{count - 1}~{count}", f":{count}~"])
        if form == 2:
            inner = self.items(run[: self.random.randint(1, count)], depth)
            return f"({inner}):{self.random.choice(['0~', '1~', '0~2', '1~3', '2'])}"
        return self.random.choice(["?:0~", "?:1~", f"?:{count}", f"?|{self.element(run[0], depth)}:0~"])

    def selection(self, source: Source, depth: int) -> str:
        choices = [self.element(source, depth)]
        while self.chance(0.2):
            other = Source(self.random.choice(list(self.graph)), 0)
            choices.insert(self.random.randint(0, 1), self.element(source if self.chance(0.6) else other, depth - 1))
        return "|".join(choices)

    def element(self, source: Source, depth: int) -> str:
        if self.chance(0.2) or self.graph.nodes[source.layer]["type"] == "Output":
            return "?"
        return self.layer(source, depth) + ("!" if self.chance(0.12) else "")


# Texts of many groups and ranges, whatever the network


def tangled_network(random: Random) -> Network:
    """Additions, Concats, Floors and poolings over the last few layers each, so that much is shared."""
    net = Net(layout=random.choice(["NHWC", "NCHW"]))
    pool = [net.input(SHAPE), net.input(SHAPE)]
    for _ in range(random.randint(3, 8)):
        recent = pool[-3:]
        kind = random.choice(["Addition", "Addition", "Concat", "Concat", "Floor", "Pooling2d"])
        if kind == "Pooling2d":
            pool.append(net.pool(random.choice(recent), (1, 1), layout=random.choice(["NHWC", "NCHW"])))
            continue
        count = {"Addition": 2, "Floor": 1}.get(kind) or random.randint(1, 6)
        pool.append(net.layer(kind, *(random.choice(recent) for _ in range(count)), outputs=(SHAPE,)))
    for key in list(net.graph):
        if not net.graph.succ[key]:
            net.output(key)
    return net.graph


def tangled_text(random: Random, depth: int = 4) -> str:
    """A text of nested groups, alternatives, ranges, marks and scopes."""
    kind = random.choice(["Addition", "Addition", "Concat", "Concat", "Floor", "Pooling2d"])
    scope = random.choice(["nchw|", "nhwc|", "fp32|", "fp16|"]) if random.random() < 0.08 else ""
    condition = random.choice(["[output.c == 2]", '[name == "x"]']) if random.random() < 0.12 else ""
    if random.random() < 0.35 or depth == 0:
        return scope + kind + condition
    if kind == "Addition" and random.random() < 0.6:
        inside = f"{_tangled_element(random, depth - 1)}, {_tangled_element(random, depth - 1)}"
    else:
        inside = _tangled_items(random, depth - 1)
    return f"{scope}{kind}{condition}{{{inside}}}"


def _tangled_element(random: Random, depth: int) -> str:
    chance = random.random()
    text = "?"
    if chance >= 0.3:
        group = chance < 0.55 and depth > 0
        text = f"({_tangled_items(random, depth - 1)})" if group else tangled_text(random, depth)
        text += "!" if random.random() < 0.08 else ""
    return f"{text}|{_tangled_element(random, max(depth - 1, 0))}" if random.random() < 0.3 else text


def _tangled_items(random: Random, depth: int) -> str:
    ranges = ["", "", "", "", "", ":0~", ":0~", ":1~", ":0", ":2", ":0~1", ":1~3"]
    count = random.choice([1, 1, 2, 2, 3])
    return ", ".join(_tangled_element(random, depth) + random.choice(ranges) for _ in range(count))
