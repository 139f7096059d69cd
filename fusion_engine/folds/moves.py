"""What the folds that move and drop layers share: preconditions on a layer, permutations, taking a layer out."""

from __future__ import annotations

from collections.abc import Iterable

from fusion_engine.folds import Refused
from fusion_engine.folds.conditions import check_override
from fusion_engine.network import Source, warnings_of
from fusion_engine.tensor import FLOATS, Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = [
    "LAYOUT_WARNING",
    "PERMUTES",
    "bypass",
    "check_bypass",
    "drop",
    "feed",
    "feeding",
    "inverse",
    "mappings",
    "mind_layout_scheme",
    "permutation",
    "require_same_values",
    "reshaped_to",
    "same_values",
    "shaped_info",
]

PERMUTES = frozenset({"Permute", "Transpose"})
"""The layer types that reorder dimensions."""

UNKNOWN_EXTENT = 0xFFFFFFFF
"""The entry of a targetShape that stands for whatever is left."""


def feeding(workspace: Workspace, key: int, inputs: int = 1) -> tuple[Source, ...]:
    """What feeds a layer that has its descriptor, one output, and these inputs as the file describes them.

    Parameters
    ----------
    inputs
        Number of input slots, counted from 0.

    Raises
    ------
    Refused
        Where any of that does not hold.
    """
    node = workspace.node(key)
    if node.get("params", {}) is None:
        raise Refused(f"{workspace.describe(key)} has no descriptor")
    if node.get("unconnected"):
        raise Refused(f"{workspace.describe(key)} has an unconnected input")
    if len(workspace.outputs(key)) != 1:
        raise Refused(f"{workspace.describe(key)} has {len(workspace.outputs(key))} outputs instead of one")
    found = workspace.inputs(key)
    slots = [slot for slot, _ in found]
    if slots != list(range(inputs)):
        raise Refused(f"{workspace.describe(key)} has inputs on slots {slots} instead of {list(range(inputs))}")
    for slot, source in found:
        check_override(workspace, key, slot, shaped_info(workspace, source))
    return tuple(source for _, source in found)


def shaped_info(workspace: Workspace, source: Source) -> TensorInfo:
    """TensorInfo of an output, its shape known; Refused where it is not."""
    info = workspace.info(source)
    if info is None:
        raise Refused(f"the output of {workspace.describe(source.layer)} has no TensorInfo")
    if not info.known:
        raise Refused(f"the output of {workspace.describe(source.layer)} has a shape that the file leaves open")
    return info


def same_values(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether equal bytes are equal values: one data type, and where that is quantized one quantization."""
    if one.canonical_type != other.canonical_type:
        return False
    if one.canonical_type in FLOATS or one.canonical_type == "Boolean":
        return not one.quantization_scales and not other.quantization_scales
    return one.quantization == other.quantization


def require_same_values(workspace: Workspace, *sources: Source) -> None:
    """Refuse where outputs differ in data type or quantization, or have a quantization per axis."""
    first, *others = (shaped_info(workspace, source) for source in sources)
    for source, info in zip(sources, (first, *others), strict=True):
        if info.quantization_scales:
            raise Refused(f"the output of {workspace.describe(source.layer)} has a quantization per axis")
        if not same_values(first, info):
            raise Refused(
                f"the output of {workspace.describe(source.layer)} is {_quantized(info)}, "
                f"that of {workspace.describe(sources[0].layer)} {_quantized(first)}"
            )


def _quantized(info: TensorInfo) -> str:
    if info.data_type in FLOATS or info.data_type == "Boolean":
        return info.data_type
    return f"{info.data_type} of scale {info.quantization_scale:g} and offset {info.quantization_offset}"


# Taking a layer out


def check_bypass(workspace: Workspace, key: int, source: Source) -> None:
    """Refuse where the consumers of a layer's output 0 cannot be fed by ``source`` instead.

    Shape, data type and quantization must be the same, and no Input may come to feed an Output.
    """
    own = shaped_info(workspace, Source(key, 0))
    info = shaped_info(workspace, source)
    if own.shape != info.shape:
        raise Refused(
            f"{workspace.describe(key)} gives shape {own.shape} and {workspace.describe(source.layer)} {info.shape}"
        )
    if not same_values(own, info):
        raise Refused(
            f"{workspace.describe(key)} gives {_quantized(own)} and {workspace.describe(source.layer)} "
            f"{_quantized(info)}"
        )
    if workspace.type(source.layer) == "Input":
        for use in workspace.uses(key):
            if workspace.type(use.layer) == "Output":
                raise Refused(
                    f"without {workspace.describe(key)} nothing is left between Input "
                    f"{workspace.describe(source.layer)} and Output {workspace.describe(use.layer)}"
                )


def bypass(workspace: Workspace, key: int, source: Source, others: Iterable[int] = ()) -> None:
    """Feed the consumers of a layer by ``source``; remove the layer and those of ``others`` left without a use."""
    feeders = [feeder.layer for _, feeder in workspace.inputs(key)]
    for use in workspace.uses(key):
        workspace.disconnect(use.layer, use.input_slot)
        workspace.connect(source, use.layer, use.input_slot)
    workspace.remove(key)
    drop(workspace, others)
    workspace.drop_unused(feeder for feeder in feeders if feeder != source.layer)


def feed(workspace: Workspace, key: int, *sources: Source) -> None:
    """Feed a layer that `feeding` has found right by other outputs, from slot 0 on."""
    workspace.rewire(key, sources)
    workspace.unset(key, "overrides")


def drop(workspace: Workspace, keys: Iterable[int]) -> None:
    """Remove those of the layers, given from consumers to sources, that have no use left."""
    for key in keys:
        if key in workspace.graph and not workspace.uses(key):
            workspace.remove(key)


LAYOUT_WARNING = "of rank 4 in a network of weightsLayoutScheme 0"
"""What the warnings of `mind_layout_scheme` hold; they are about networks of that scheme alone."""


def mind_layout_scheme(workspace: Workspace, tensor: Tensor, place: str) -> None:
    """Let later releases read a Constant of rank 4 as it is, or warn that they do not.

    Where ``weightsLayoutScheme`` is 0, Arm NN from release 22.05 on permutes every Constant of a file,
    since it takes them for weights of depthwise convolutions. One of another rank it rejects, so that
    a file with such Constants only is safe until they become ones of rank 4. Scheme 1 says the truth
    of a network without depthwise convolutions; with one it must stay.
    """
    graph = workspace.graph.graph
    bindings, scheme, as_inputs = graph.get("feature_versions", (1, 1, 1))
    if scheme != 0 or len(tensor.info.shape) != 4 or tensor.info.elements == 1:
        return
    depthwise = any(True for _ in workspace.of_type("DepthwiseConvolution2d"))
    if graph.get("dialect", "current") == "current" and not depthwise:
        graph["feature_versions"] = (bindings, 1, as_inputs)
        workspace.touch_all()
        return
    first, former = workspace.memo.get("moves.rank 4", (place, 0))
    workspace.memo["moves.rank 4"] = (first, former + 1)
    kept = [text for text in warnings_of(workspace.graph) if text != _rank_4(first, former)]
    graph["warnings"] = (*kept, _rank_4(first, former + 1))


def _rank_4(first: str, number: int) -> str:
    """The warning of Constants that arise in a network whose layout later releases take otherwise."""
    others, become = (f" and {number - 1} more", "become Constants") if number > 1 else ("", "becomes a Constant")
    return (
        f"{first}{others} {become} {LAYOUT_WARNING}: releases from 22.05 on "
        "permute such Constants, so only older ones compute what is meant; --release 23.08 carries it to a newer one"
    )


# Dimensions


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes ``order``.

    Examples
    --------
    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    found = [0] * len(order)
    for position, of in enumerate(order):
        found[of] = position
    return tuple(found)


def mappings(type_name: str, order: tuple[int, ...]) -> tuple[int, ...]:
    """The dimMappings of a Permute or Transpose whose output dimension i is the input's ``order[i]``.

    A Transpose's dimMappings say where each output dimension comes from, a Permute's where each
    input dimension goes.
    """
    return inverse(order) if type_name == "Permute" else order


def permutation(workspace: Workspace, key: int) -> tuple[int, ...]:
    """What a Permute or Transpose does: output dimension i is the input's dimension ``order[i]``.

    Raises
    ------
    Refused
        Where its dimMappings are no permutation, or do not lead from its input's shape to its output's.
    """
    (source,) = feeding(workspace, key)
    before, after = shaped_info(workspace, source), shaped_info(workspace, Source(key, 0))
    given = tuple(workspace.param(key, "dimMappings"))
    if sorted(given) != list(range(len(before.shape))):
        place = workspace.describe(key)
        raise Refused(f"the dimMappings {given} of {place} are no permutation of its input's {len(before.shape)} axes")
    order = mappings(workspace.type(key), given)
    if tuple([before.shape[of] for of in order]) != after.shape:
        place = workspace.describe(key)
        raise Refused(f"{place} gives shape {after.shape}, which its dimMappings do not make of {before.shape}")
    return order


def reshaped_to(workspace: Workspace, key: int) -> tuple[int, ...]:
    """The shape that a Reshape gives; Refused where its targetShape is another than its output's TensorInfo."""
    (source,) = feeding(workspace, key)
    before, after = shaped_info(workspace, source), shaped_info(workspace, Source(key, 0))
    target = tuple(workspace.param(key, "targetShape"))
    fits = len(target) == len(after.shape) and all(
        wanted in (size, UNKNOWN_EXTENT) for wanted, size in zip(target, after.shape, strict=True)
    )
    if not fits or target.count(UNKNOWN_EXTENT) > 1 or before.elements != after.elements:
        place = workspace.describe(key)
        raise Refused(f"{place} makes {target} of {before.shape}, but its output's TensorInfo has {after.shape}")
    return after.shape
