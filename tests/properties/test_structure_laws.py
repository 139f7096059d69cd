"""Laws of the folds that move and drop: on random networks of what they are about, nothing changes but the layers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.tensor import TensorInfo
from tests.support.nets import Net, shuffled
from tests.support.strategies import networks
from tests.support.structural import SHIPPED, evaluate, same_outputs

STRUCTURAL = [
    SHIPPED[name]
    for name in (
        "dead-ends",
        "constants",
        "identity-layers",
        "quantize-pairs",
        "space-depth",
        "permute-upward",
        "permutes",
        "permute-as-reshape",
        "reshapes",
        "equal-siblings",
    )
]

QUANTIZED = {"quantization_scale": 0.125, "quantization_offset": 3}
SWAP = (3, 1, 2, 0)


class Pieces:
    """Draws a network of movements, identities, elementwise layers and constants."""

    def __init__(self, seed: int, layers: int) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.net = Net(spelling=self.random.choice(["old", "new"]))
        self.ends: list[int] = []
        for _ in range(self.random.randint(1, 2)):
            shape = self.random.choice([(1, 2, 3, 4), (2, 2, 2, 2), (1, 1, 6, 1), (4, 2, 2, 4)])
            quantized = self.random.random() < 0.3
            self.ends.append(self.net.input(shape, "QAsymmU8", **QUANTIZED) if quantized else self.net.input(shape))
        for _ in range(layers):
            at = self.random.choice(self.ends)
            made = self.random.choice(self.kinds())(at)
            if made is not None:
                self.ends.append(made)
        for at in self.random.sample(self.ends, min(len(self.ends), 3)):
            self.net.output(self.net.activation(at, "Abs") if self.random.random() < 0.7 else at)

    def kinds(self) -> tuple[Callable[[int], int | None], ...]:
        return (
            *[self.move] * 6,
            *[self.undo] * 3,
            self.reshape,
            self.one,
            self.with_constant,
            self.together,
            self.identity,
            self.pair,
            self.blocks,
            self.computed,
        )

    def info(self, at: int) -> TensorInfo:
        return self.net.info(at)

    def move(self, at: int) -> int:
        order = list(range(len(self.info(at).shape)))
        self.random.shuffle(order)
        return (self.net.permute if self.random.random() < 0.5 else self.net.transpose)(at, order)

    def undo(self, at: int) -> int | None:
        """The opposite of a Permute or Transpose, in one of the two conventions."""
        node = self.net.graph.nodes[at]
        if node["type"] not in ("Permute", "Transpose"):
            return None
        mappings = node["params"]["dimMappings"]
        back = [mappings.index(axis) for axis in range(len(mappings))]
        if self.random.random() < 0.5:
            return (self.net.permute if node["type"] == "Permute" else self.net.transpose)(at, back)
        return (self.net.transpose if node["type"] == "Permute" else self.net.permute)(at, mappings)

    def reshape(self, at: int) -> int:
        size = prod(self.info(at).shape)
        shapes = [(size,), (1, size, 1, 1), (size // 2, 2), (2, 1, size // 2), self.info(at).shape]
        return self.net.reshape(at, self.random.choice([s for s in shapes if prod(s) == size]))

    def one(self, at: int) -> int:
        return self.net.activation(at, self.random.choice(["ReLu", "Abs", "Square"]))

    def with_constant(self, at: int) -> int:
        info = self.info(at)
        shape = tuple(self.random.choice([1, n]) for n in info.shape)
        values = self.numbers.integers(0, 3, shape[self.random.randint(0, len(shape)) :])
        c = self.net.constant(values, info.data_type, quantization_scale=info.quantization_scale, quantization_offset=0)
        operands = (at, c) if self.random.random() < 0.5 else (c, at)
        kind = self.random.choice(["Addition", "Multiplication", "Subtraction", "Minimum"])
        return self.net.binary(kind, *operands, output=info)

    def together(self, at: int) -> int | None:
        """With another tensor of the same shape, or itself."""
        alike = [other for other in self.ends if self.info(other) == self.info(at)]
        return self.net.binary(self.random.choice(["Addition", "Maximum"]), at, self.random.choice(alike))

    def identity(self, at: int) -> int:
        info = self.info(at)
        rank = len(info.shape)
        views = {"numViews": 1, "numDimensions": rank, "viewOrigins": ((0,) * rank,)}
        kind, params = self.random.choice(
            [
                ("Pad", {"padList": (0,) * (2 * rank)}),
                ("Slice", {"begin": (0,) * rank, "size": info.shape}),
                ("StridedSlice", {"begin": (0,) * rank, "end": info.shape, "stride": (1,) * rank}),
                ("Concat", {**views, "concatAxis": 0}),
                ("Splitter", {"origins": views, "viewSizes": (info.shape,)}),
                ("Cast", {}),
            ]
        )
        return self.net.layer(kind, at, params=params)

    def pair(self, at: int) -> int:
        """Dequantize and Quantize of a quantized tensor; of a float one the reverse."""
        info = self.info(at)
        real, quantized = TensorInfo(info.shape), TensorInfo(info.shape, "QAsymmU8", 0.125, 3)
        if info.data_type == "Float32":
            return self.net.layer("Dequantize", self.net.layer("Quantize", at, outputs=(quantized,)), outputs=(real,))
        return self.net.layer("Quantize", self.net.layer("Dequantize", at, outputs=(real,)), outputs=(quantized,))

    def blocks(self, at: int) -> int | None:
        shape = self.info(at).shape
        if len(shape) != 4 or shape[3] % 4:
            return None
        n, h, w, c = self.net.info(below := self.net.permute(at, SWAP)).shape
        middle = self.net.layer(
            "BatchToSpaceNd",
            below,
            outputs=((n // 4, 2 * h, 2 * w, c),),
            params={"blockShape": (2, 2), "crops": (0,) * 4, "dataLayout": "NHWC"},
        )
        return self.net.transpose(middle, SWAP)

    def computed(self, at: int) -> int | None:
        """With a constant that layers compute from others."""
        info = self.info(at)
        if info.data_type != "Float32" or not info.shape:
            return None
        values = self.numbers.integers(-8, 9, info.shape[::-1])
        c = self.net.constant(values, "QAsymmS8", **QUANTIZED)
        c = self.net.layer("Dequantize", c, outputs=(TensorInfo(info.shape[::-1]),))
        c = self.net.transpose(c, range(len(info.shape))[::-1])
        c = self.net.binary("Multiplication", c, self.net.constant([0.5]))
        return self.net.addition(self.net.reshape(c, info.shape), at)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25))
def test_values_stay(seed: int, layers: int) -> None:
    """To the bit: names, order and binding ids of the outputs too; the result is at its fixpoint and valid."""
    graph = Pieces(seed, layers).net.graph
    assert fe.validate(graph) == ()
    fused = fe.fuse(graph, STRUCTURAL)
    assert fe.validate(fused) == ()
    assert len(fused) <= len(graph)
    same_outputs(graph, fused, seed)
    data = fe.dumps(fused)
    assert fe.dumps(fe.fuse(fe.loads(data), STRUCTURAL)) == data


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(0, 3))
def test_numbering_does_not_matter(seed: int, layers: int, other: int) -> None:
    graph = Pieces(seed, layers).net.graph
    assert fe.dumps(fe.fuse(shuffled(graph, other), STRUCTURAL)) == fe.dumps(fe.fuse(graph, STRUCTURAL))


@settings(max_examples=300, deadline=None)
@given(networks(max_layers=25), st.booleans())
def test_any_network_is_folded_or_left(graph: Network, everything: bool) -> None:
    """Whatever the layers hold: no error, and a valid network that a second run leaves as it is."""
    rules = list(SHIPPED.values()) if everything else STRUCTURAL
    fused = fe.fuse(graph, rules)
    assert fe.validate(fused) == ()
    data = fe.dumps(fused)
    assert fe.dumps(fe.fuse(fe.loads(data), rules)) == data


def test_the_pieces_meet_every_fold() -> None:
    fired: set[str] = set()
    for seed in range(200):
        fused = fe.fuse(Pieces(seed, 20).net.graph, STRUCTURAL)
        fired.update(fusion.rule for fusion in fused.graph["fusions"])
    assert fired == {rule.name for rule in STRUCTURAL}


def test_the_judge_tells_networks_apart() -> None:
    """A permutation too many is seen."""
    net = Net()
    net.output(net.permute(net.input((2, 3, 3)), (0, 2, 1)))
    other = Net()
    other.output(other.permute(other.input((2, 3, 3)), (0, 1, 2)), name=net.graph.nodes[2]["name"])
    inputs = {0: np.arange(18, dtype=np.float32).reshape(2, 3, 3)}
    one, two = (next(iter(evaluate(n.graph, inputs).values())) for n in (net, other))
    assert not np.array_equal(one, two)
