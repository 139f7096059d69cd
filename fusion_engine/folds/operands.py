"""An elementwise layer with a Constant over a layer that is linear per channel: what scale and shift share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fusion_engine.folds import Refused
from fusion_engine.folds.affine import LINEAR, Array, LinearLayer, channel_extents, linear_layer, tensor_between
from fusion_engine.folds.affine import float64 as values_of
from fusion_engine.folds.conditions import check_parameter, check_plain, constant_operand, float_info, operation
from fusion_engine.match.binding import Match
from fusion_engine.network import Source
from fusion_engine.tensor import Tensor, TensorInfo
from fusion_engine.workspace import Workspace

__all__ = ["per_channel", "with_constant"]


def with_constant(
    workspace: Workspace, match: Match, fold: str, operations: tuple[str, ...]
) -> tuple[LinearLayer, str, int, Array]:
    """The parts of a match: an elementwise layer whose operands are a linear layer and a Constant.

    Parameters
    ----------
    workspace, match
        ``match.layers`` is the elementwise layer and the linear one.
    fold, operations
        Name of the fold, and the operations that it takes, under their deprecated types.

    Returns
    -------
    target, operation, slot, values
        The linear layer, the elementwise layer's operation, the input slot of its Constant, and the
        Constant's values per output channel.

    Raises
    ------
    Refused
        Where the layers are others, the types do not fold, or the Constant varies elsewhere too.
    """
    kinds = [operation(workspace, match.layers[0]), workspace.type(match.layers[-1])] if match.layers else []
    if len(match.layers) != 2 or kinds[0] not in operations or kinds[1] not in LINEAR:
        held = ", ".join(workspace.type(key) for key in match.layers)
        raise Refused(
            f"{fold} takes {' or '.join(operations)} with a Constant over one layer of type "
            f"{', '.join(sorted(LINEAR))}; the match holds {held or 'no layer'}"
        )
    root, layer = match.layers
    check_plain(workspace, root, layer)
    slot, constant, tensor = constant_operand(workspace, root, layer)
    check_parameter(tensor, workspace.describe(constant))
    output = float_info(workspace, Source(layer, 0))
    target = linear_layer(workspace, layer)
    values = per_channel(workspace, layer, output, target.channels, constant, tensor)
    tensor_between(workspace, root, layer, 1 - slot)
    _check_growth(workspace, root, Source(layer, 0), output)
    return target, kinds[0], slot, values


def _check_growth(workspace: Workspace, root: int, source: Source, output: TensorInfo) -> None:
    after = workspace.info(Source(root, 0))
    if after is not None and len(after.shape) != len(output.shape):
        raise Refused(
            f"{workspace.describe(root)} gives rank {len(after.shape)} and "
            f"{workspace.describe(source.layer)} rank {len(output.shape)}"
        )


def per_channel(
    workspace: Workspace, layer: int, output: TensorInfo, channels: int, constant: int, tensor: Tensor
) -> Array:
    """The values of a Constant per output channel of ``layer``, shape ``(channels,)``, in float64.

    Shapes are aligned at their last axis, as the elementwise layers broadcast. The Constant may have
    an extent over 1 along the output channels only.
    """
    extents = channel_extents(workspace, layer, output, channels)
    shape = tensor.info.shape
    aligned = (1,) * (len(extents) - len(shape)) + shape
    if len(aligned) != len(extents) or any(
        own not in (1, extent) for own, extent in zip(aligned, extents, strict=True)
    ):
        along = [axis for axis, extent in enumerate(extents) if extent > 1]
        where = f"only axis {along[0]} holds its channels" if len(along) == 1 else f"its channels have shape {extents}"
        raise Refused(
            f"{workspace.describe(constant)} has shape {shape}, which is no scalar and not one value per output "
            f"channel: {workspace.describe(layer)} gives shape {output.shape}, of which {where}"
        )
    spread: npt.NDArray[np.float64] = np.broadcast_to(values_of(tensor).reshape(aligned), extents).reshape(channels)
    return spread
