"""Laws of conversion between releases."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine.network import Network
from fusion_engine.releases.facts import find_release, release_names
from fusion_engine.releases.needs import needs_of
from fusion_engine.workspace import Workspace
from tests.support.evaluate import evaluate
from tests.support.matches import random_match
from tests.support.nets import Net, shuffled
from tests.support.opaques import into
from tests.support.strategies import networks

RELEASES = st.sampled_from(release_names())
SINCE_1908 = st.sampled_from(release_names()[3:])
SEEDS = st.integers(0, 2**32 - 1)


def converted(graph: Network, release: str) -> Network | None:
    """The network for a release, or None where it is refused, with obstacles."""
    try:
        return fe.convert(graph, release)
    except fe.ConversionError as error:
        refused = error
    assert refused.obstacles
    return None


def reads(graph: Network, release: str) -> bool:
    return not needs_of(graph).obstacles(find_release(release))


def weighted_network(seed: int) -> Network:
    """A network that every release from 19.08 on can hold, and that computes something: weights in member form."""
    random = Random(seed)
    numbers = np.random.RandomState(seed % 2**31)
    net = Net(form="member", feature_versions=(0, 0, 0), layout=random.choice(("NHWC", "NCHW")))
    channels = random.randint(1, 3)

    def shaped(count: int) -> tuple[int, ...]:
        return (1, 3, 3, count) if net.layout == "NHWC" else (1, count, 3, 3)

    def kernel(outputs: int, inputs: int) -> np.ndarray:
        shape = (outputs, 1, 1, inputs) if net.layout == "NHWC" else (outputs, inputs, 1, 1)
        return numbers.uniform(-1, 1, shape)

    x = net.input(shaped(channels))
    shared = {}
    for _ in range(random.randint(1, 6)):
        name = random.choice(("", "a", "a/weights", "layer"))
        bias = random.random() < 0.5
        match random.choice(("conv", "depthwise", "relu", "add", "same weights")):
            case "conv":
                outputs = random.randint(1, 4)
                values = numbers.uniform(-1, 1, outputs) if bias else None
                x, channels = net.conv(x, kernel(outputs, channels), values, name=name), outputs
            case "depthwise":
                multiplier = random.randint(1, 3)
                weights = numbers.uniform(-1, 1, (multiplier, channels, 1, 2))
                x, channels = net.depthwise(x, weights, name=name, padLeft=1), channels * multiplier
            case "same weights":
                weights = shared.setdefault(channels, net.tensor(kernel(channels, channels)))
                x = net.conv(x, weights, name=name)
            case "add":
                x = net.addition(x, x, name=name)
            case _:
                x = net.activation(x, random.choice(("ReLu", "TanH")), name=name)
    net.output(x)
    return net.graph


@settings(max_examples=60, deadline=None)
@given(networks(), RELEASES)
def test_what_is_converted_is_read(graph: Network, release: str) -> None:
    """A conversion gives a network that the release reads, or obstacles; again it changes nothing."""
    before = fe.dumps(graph)
    found = converted(graph, release)
    assert fe.dumps(graph) == before
    if found is not None:
        assert fe.validate(found) == ()
        data = fe.dumps(found)
        again = fe.loads(data)
        assert fe.equal(found, again)
        assert reads(again, release)
        assert fe.dumps(again, release=release) == data


@settings(max_examples=40, deadline=None)
@given(networks(), RELEASES, SEEDS)
def test_order_and_numbers_of_layers_do_not_matter(graph: Network, release: str, seed: int) -> None:
    found = converted(graph, release)
    other = converted(shuffled(graph, seed), release)
    assert (found is None) == (other is None)
    if found is not None and other is not None:
        assert fe.dumps(found) == fe.dumps(other)


@settings(max_examples=60, deadline=None)
@given(SEEDS, SINCE_1908, SINCE_1908)
def test_there_and_back(seed: int, here: str, there: str) -> None:
    graph = fe.convert(weighted_network(seed), here)
    back = fe.convert(fe.loads(fe.dumps(graph, release=there)), here)
    assert fe.difference(back, graph) is None
    assert fe.dumps(back) == fe.dumps(graph)


@settings(max_examples=30, deadline=None)
@given(SEEDS, SINCE_1908)
def test_the_outputs_stay(seed: int, release: str) -> None:
    graph = weighted_network(seed)
    shape = graph.nodes[graph.graph["inputs"][0]]["outputs"][0].shape
    image = np.random.RandomState(seed % 2**31).uniform(-1, 1, shape)
    expected = evaluate(graph, {0: image})
    found = evaluate(fe.convert(graph, release), {0: image})
    assert list(found) == list(expected)
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(release_names()[4:]), st.sampled_from(release_names()[4:]))
def test_opaque_layers_cross(seed: int, here: str, there: str) -> None:
    """Unfused after the conversion is converted without fusing; back, the opaque network is the same."""
    from fusion_engine import opaque

    graph = fe.convert(weighted_network(seed), here)
    work, random = Workspace(graph), Random(seed)
    for number in range(3):
        roots = [key for key in work.order() if work.type(key) not in ("Input", "Output", "Constant")]
        match = random_match(work, random.choice(roots), random)
        opaque.apply(work, match, opaque.check(work, match, into(f"Fused{number}", code=number)))
    opaque.settle(work)
    fused = work.graph
    crossed = fe.loads(fe.dumps(fused, release=there))
    assert reads(crossed, there)
    assert fe.difference(fe.unfuse(crossed), fe.convert(graph, there)) is None
    assert fe.difference(fe.convert(crossed, here), fe.convert(fused, here)) is None
