"""Make a network of the build of MobileNet v1, its batch norms unfolded, with random weights.

    python examples/make_mobilenet.py [DIRECTORY]

Depthwise separable blocks, each batch norm a layer of its own, ReLU6 after each: what a converter
gives that does not fold. A quarter of the usual width, 64x64 pixels, 10 classes, and nine blocks
instead of thirteen, so that the files stay small. The weights are seeded: the same files each time.

Writes the network twice into DIRECTORY (``models``): ``mobilenet.armnn`` with its weights in
Constant layers on input slots, as converters do since Arm NN 22.05, and ``mobilenet-20.08.armnn``
with its weights as members of the layers, which 20.08 reads and later releases do too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt
from chain import Chain, same_padding

import fusion_engine as fe

HERE = Path(__file__).resolve().parent
SIZE, CLASSES, SEED = 64, 10, 7
BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (256, 2))
"""Output channels and stride of each depthwise separable block."""

Array = npt.NDArray[np.float32]


class Weights:
    """Seeded random parameters in the ranges that trained ones have."""

    def __init__(self, seed: int) -> None:
        # RandomState's streams never change between NumPy releases; uniform() is plain arithmetic.
        self._random = np.random.RandomState(seed)

    def uniform(self, low: float, high: float, *shape: int) -> Array:
        """Evenly spread values."""
        return self._random.uniform(low, high, shape).astype(np.float32)

    def filters(self, fan_in: int, *shape: int) -> Array:
        """Weights whose sum over ``fan_in`` rectified inputs keeps their second moment."""
        bound = float(np.sqrt(6 / fan_in))
        return self.uniform(-bound, bound, *shape)


def mobilenet(weights: str = "inputs", seed: int = SEED) -> nx.DiGraph[int]:
    """The network; ``weights`` is the form its layers hold them in, see `chain.Chain`."""
    random = Weights(seed)
    chain = Chain((1, SIZE, SIZE, 3), "image", weights=weights)

    def norm(name: str, channels: int) -> None:
        chain.batch_norm(
            f"{name}/batch_norm",
            mean=random.uniform(-0.5, 0.5, channels),
            variance=random.uniform(0.5, 2.0, channels),
            beta=random.uniform(-0.5, 1.0, channels),
            gamma=random.uniform(0.5, 2.0, channels),
            eps=0.001,
        )
        chain.relu6(f"{name}/relu6")

    size, channels = SIZE // 2, 8
    chain.convolution("stem", random.filters(3 * 9, channels, 3, 3, 3), stride=2, padding=same_padding(SIZE, 3, 2) * 2)
    norm("stem", channels)
    for number, (outputs, stride) in enumerate(BLOCKS, start=1):
        name = f"block{number}/depthwise"
        chain.depthwise(
            name, random.filters(9, 3, 3, channels), stride=stride, padding=same_padding(size, 3, stride) * 2
        )
        norm(name, channels)
        name = f"block{number}/pointwise"
        chain.convolution(name, random.filters(channels, outputs, 1, 1, channels))
        norm(name, outputs)
        size, channels = -(-size // stride), outputs
    chain.pool("mean", "Average", (size, size), 1)
    chain.flatten("features")
    chain.fully_connected("logits", random.filters(channels, CLASSES, channels), random.uniform(-0.1, 0.1, CLASSES))
    chain.softmax("softmax")
    return chain.output("probabilities")


FILES = {"mobilenet.armnn": "inputs", "mobilenet-20.08.armnn": "members"}
"""The form of the weights in each file."""


def main(directory: Path = HERE / "models") -> None:
    """Write both files."""
    for name, weights in FILES.items():
        fe.save(mobilenet(weights), directory / name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
