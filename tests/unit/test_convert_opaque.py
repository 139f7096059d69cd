"""convert: opaque layers."""

from __future__ import annotations

import numpy as np
import pytest

import fusion_engine as fe
from fusion_engine.network import edges_into
from fusion_engine.recipes import read_recipe
from fusion_engine.tensor import TensorInfo
from tests.support.converted import chain, named, types
from tests.support.nets import Net
from tests.support.opaques import fuse_layers


@pytest.mark.parametrize("release", ["19.11", "20.08", "21.05", "21.08", "22.02", "22.05", "24.08"])
def test_opaque_layers_cross(release: str) -> None:
    net, layers = chain()
    fused = fuse_layers(net.graph, layers, "Block", code=7)
    found = fe.loads(fe.dumps(fused, release=release))
    stand_in = named(found, "Block:relu")
    recipe = read_recipe(found, stand_in)
    assert recipe is not None
    assert (recipe["rule"], recipe["result"], recipe["code"]) == ("a rule", "Block", 7)
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, release))
    assert next(one for one in fe.loads_in(found) if one.release == release).loads
    assert fe.equal(fe.convert(found, "20.08"), fused)


def test_nested_opaque_layers_cross() -> None:
    net, (relu, depthwise, conv) = chain()
    fused = fuse_layers(fuse_layers(net.graph, [depthwise, conv], "Inner"), [relu, depthwise], "Outer")
    found = fe.convert(fused, "23.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "23.08"))
    recipe = read_recipe(found, named(found, "Outer:relu"))
    assert recipe is not None
    assert recipe["layers"][1]["recipe"]["featureVersions"] == [1, 1, 1]
    assert fe.dumps(fe.convert(found, "20.08")) == fe.dumps(fused)


def test_names_of_opaque_layers_stay() -> None:
    net = Net(form="member", feature_versions=(1, 0, 0))
    x = net.input((1, 2, 2, 1))
    keys = []
    for _ in range(2):
        conv = net.conv(x, np.ones((1, 1, 1, 1)), name="conv")
        keys.append((net.activation(conv, name="relu"), conv))
        net.output(keys[-1][0])
    fused = net.graph
    for layers in reversed(keys):
        fused = fuse_layers(fused, layers, "Block")
    names = {key: fused.nodes[key]["name"] for key, _ in keys}
    assert sorted(names.values()) == ["Block:relu", "Block:relu#2"]
    found = fe.convert(fused, "23.08")
    assert {key: found.nodes[key]["name"] for key, _ in keys} == names
    assert fe.equal(fe.convert(found, "20.08"), fused)


def test_data_inputs_keep_their_order() -> None:
    net = Net()
    x, y = net.input((1, 2)), net.input((1, 2))
    minus = net.layer("ElementwiseBinary", y, x, params={"operation": "Sub"})
    squared = net.layer("ElementwiseBinary", minus, x, params={"operation": "SqDiff"})
    root = net.activation(squared, name="root")
    net.output(root)
    fused = fuse_layers(net.graph, [root, squared, minus], "Block")
    before = [source.layer for _, source in edges_into(fused, root)][:3]
    found = fe.convert(fused, "20.08")
    assert [source.layer for _, source in edges_into(found, root)][:3] == before
    again = fe.unfuse(found)
    assert fe.equal(again, fe.convert(net.graph, "20.08"))
    recipe = read_recipe(found, root)
    assert recipe is not None
    assert [layer["type"] for layer in recipe["layers"]] == [
        "Activation",
        "Multiplication",
        "Subtraction",
        "Subtraction",
    ]


def test_constants_that_the_rule_named() -> None:
    net = Net(spelling="new")
    x, c = net.input((1, 2)), net.constant([[1, 2]], name="c")
    added = net.addition(x, c)
    root = net.activation(added, name="root")
    net.output(root)
    fused = fuse_layers(net.graph, [root, added], "Block", constants=[c])
    found = fe.convert(fused, "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))
    recipe = read_recipe(found, root)
    assert recipe is not None
    assert (recipe["inputs"], len(recipe["constants"])) == (1, 1)


def test_old_dialects_with_opaque_layers() -> None:
    """Fused, a network of 19.02 is a current one; unfused after a conversion it is of the release."""
    net = Net("19.02", form="member")
    conv = net.conv(net.input((1, 2, 2, 1)), np.ones((1, 1, 1, 1)))
    relu = net.layer("Activation", conv, params={"function": "ReLu"}, name="relu")
    net.output(relu)
    fused = fuse_layers(net.graph, [relu, conv], "Block")
    found = fe.convert(fused, "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))
    assert not any("opaque layers" in warning for warning in found.graph.get("warnings", ()))


def test_refusals_name_layers_inside_opaque_ones() -> None:
    net = Net()
    tile = net.layer("Tile", net.input((1, 2)), params={"m_Multiples": (1, 1)}, name="tile")
    inner = net.activation(tile, name="inner")
    root = net.activation(inner, name="root")
    net.output(root)
    fused = fuse_layers(fuse_layers(net.graph, [inner, tile], "Inner"), [root, inner], "Outer")
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(fused, "23.05")
    (obstacle,) = caught.value.obstacles
    assert obstacle.layers == (root,)
    assert obstacle.places == (f"'tile' in layer {root} 'Outer:root'",)


def test_an_opaque_layer_that_becomes_a_constant() -> None:
    net = Net()
    fill = net.layer("Fill", net.input((2,), "Signed32"), outputs=[TensorInfo((1, 2))], params={"value": 2.0})
    relu = net.activation(fill, name="relu")
    net.output(relu)
    with pytest.raises(fe.ConversionError, match=r"'Block:fill_1' cannot be made again .*unfuse it first") as caught:
        fe.convert(fuse_layers(net.graph, [fill], "Block"), "20.08")
    assert caught.value.obstacles[0].layers == (fill,)
    found = fe.convert(fuse_layers(net.graph, [relu, fill], "Block"), "20.08")
    assert fe.equal(fe.unfuse(found), fe.convert(net.graph, "20.08"))


def test_no_stand_in_before_19_11() -> None:
    net, layers = chain()
    fused = fuse_layers(net.graph, layers, "Block")
    with pytest.raises(fe.ConversionError) as caught:
        fe.convert(fused, "19.08")
    assert str(caught.value) == (
        "Arm NN 19.08 cannot hold it: opaque layers: there is no StandIn (unfuse them first) (possible since 19.11): "
        f"layer {layers[0]} 'Block:relu'"
    )
    assert fe.convert(fe.unfuse(fused), "19.08").graph["feature_versions"] == (0, 0, 0)


def test_stand_ins_of_others_stay() -> None:
    net = Net(feature_versions=(1, 0, 0))
    net.output(net.stand_in(net.input((1, 2)), outputs=[(1, 2)], name="theirs"))
    found = fe.convert(net.graph, "23.08")
    assert types(found) == types(net.graph)
    assert any("'theirs' is left as it is" in warning for warning in found.graph["warnings"])
