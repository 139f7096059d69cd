"""Names that break what puts them into HTML, SVG, DOT or JavaScript without care."""

from __future__ import annotations

import numpy as np

from fusion_engine import FusingRule, fuse
from fusion_engine.network import Network
from tests.support.nets import Net

NAMES = (
    "<script>document.title='run'</script>",
    "</script><script>document.title='run'</script>",
    '"><img src=x onerror="document.title=\'run\'">',
    "<!--<script>",
    "]]></title><svg onload=\"document.title='run'\">",
    "&lt;b&gt; &amp; &#60;",
    '"]; n [label="x',
    "a\\",
    "\\N \\G \\l",
    "<table><tr><td>x</td></tr></table>",
    "line\nbreak\ttab\x00\x1b[31m",
    "\u2028\u2029\u202egnp.exe",
    "bytes \udcff\udc80",
    "${1+1} `x` {{7*7}} %s %(a)s",
    "表示" * 40,
    "e\u0301🙂" * 30,
    "x" * 5000,
    "constructor",
    "__proto__",
)


def hostile_network() -> Network:
    """A chain of activations that have these names, an opaque layer with one among them."""
    net = Net()
    at = net.input((1, 4, 4, 1), name=NAMES[0])
    for name in NAMES:
        at = net.activation(at, "ReLu", name=name)
    at = net.conv(at, np.ones((1, 1, 1, 1)), [0], name=NAMES[1])
    net.output(net.activation(at, name=NAMES[2]), name=NAMES[3])
    return net.graph


def hostile_rule() -> FusingRule:
    """A rule whose name is hostile too."""
    return FusingRule("Activation{Convolution2d}", into="Pair", name=NAMES[2])


def hostile_fused() -> Network:
    """What the rule makes of the network."""
    return fuse(hostile_network(), hostile_rule())
