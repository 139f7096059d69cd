"""batch-norm-chain: a BatchNormalization over another becomes one.

The upper one is a factor and a summand per channel, which the lower one takes into its γ and β; its
μ, σ² and ε stay.
"""

from __future__ import annotations

from fusion_engine.folds import Accepts, Fold, Refused
from fusion_engine.folds.affine import Plan, apply_plan, channel_extents, norm_layer, norm_statistics
from fusion_engine.folds.batch_norm import layers_of, norm_deviation, norm_scale_and_shift
from fusion_engine.match.binding import Match
from fusion_engine.workspace import Workspace

__all__ = ["FOLD", "apply", "check"]


def check(workspace: Workspace, match: Match) -> Plan:
    """The γ and β of the one that both become; ``match.layers`` is the upper and the lower one.

    Raises
    ------
    Refused
        Where they count channels along other axes or in another number, where an σ² + ε is not
        positive, and where a result is no number of its type.
    """
    upper, lower, output = layers_of(workspace, match, "batch-norm-chain", frozenset({"BatchNormalization"}))
    target = norm_layer(workspace, lower)
    channels = target.channels
    norm_deviation(workspace, lower, norm_statistics(workspace, lower, channels)["variance"])
    places = [channel_extents(workspace, key, output, channels) for key in (lower, upper)]
    if places[0] != places[1]:
        layouts = [workspace.param(key, "dataLayout") for key in (lower, upper)]
        raise Refused(f"{workspace.describe(lower)} is {layouts[0]} and {workspace.describe(upper)} {layouts[1]}")
    return target.absorb(workspace, *norm_scale_and_shift(workspace, upper, channels))


def apply(workspace: Workspace, match: Match, plan: Plan) -> int:
    """Give the lower one its new γ and β and let it take the upper one's place."""
    return apply_plan(workspace, match.root, plan)


FOLD = Fold(check, apply, reach=2, accepts=(Accepts((frozenset({"BatchNormalization"}),) * 2),))
