"""`verify`: two networks, one made of the other by fusing, compared part by part."""

from __future__ import annotations

from math import isfinite

import networkx as nx

from fusion_engine.canonical import canonical_order
from fusion_engine.compare import difference
from fusion_engine.engine import Fusion, LayerRef
from fusion_engine.errors import VerifyError
from fusion_engine.network import Network, describe
from fusion_engine.unfusing import unfuse
from fusion_engine.validation import blaming
from fusion_engine.verifying.onnxgraph import require_runtime
from fusion_engine.verifying.pairing import Pairing
from fusion_engine.verifying.regions import Checked, Regions
from fusion_engine.verifying.result import FusionCheck, RegionCheck, Verification

__all__ = ["verify"]

_MOST_RETRIES = 8
"""How often pairs that were guessed and do not prove true are dropped."""


def verify(before: Network, after: Network, *, seed: int = 0, tolerance: float | None = None) -> Verification:
    """Run every part of a network that fusing changed, before and after, and compare.

    Opaque layers and groups are undone first, so that they are verified by what they expand to: where
    that equals what was there, nothing is left to run. The rest runs in onnxruntime on seeded random
    values and on the values where layers bend, clamp or saturate.

    Parameters
    ----------
    before
        The network as given to `fuse`.
    after
        What `fuse` made of it, or what was loaded from a file of it. Without the records of `fuse`
        layers are told by their names and connections instead of their keys.
    seed
        Of the random values; at least 0.
    tolerance
        Largest difference in floating-point tensors, relative to the largest value; by default 1e-5
        in Float32 and 2e-3 in Float16. Quantized tensors may differ by one quantum, integers not at all.

    Returns
    -------
    Verification
        Per region and per fusion: verified, unverified or failed, and the largest difference.

    Raises
    ------
    VerifyError
        Where onnx or onnxruntime is not installed, or seed or tolerance make no sense.
    ModelError
        Where a network is not as `validate` wants it, or its opaque layers cannot be undone.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/digits.armnn")
    >>> fe.verify(graph, fe.fuse(graph, fe.load_rules("armnn"))).status  # doctest: +SKIP
    'verified'
    """
    for graph in (before, after):
        if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
            raise VerifyError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise VerifyError(f"a seed is an int of at least 0, not {seed!r}")
    if tolerance is not None and not (isinstance(tolerance, int | float) and isfinite(tolerance) and tolerance >= 0):
        raise VerifyError(f"a tolerance is a number of at least 0, not {tolerance!r}")
    require_runtime()
    with blaming(before, "cannot be verified"), blaming(after, "cannot be verified"):
        return _verify(before, after, seed, tolerance)


def _verify(before: Network, after: Network, seed: int, tolerance: float | None) -> Verification:
    fusions = _fusions(after)
    ours, theirs = unfuse(before), unfuse(after)
    if difference(ours, theirs) is None:
        return Verification((), tuple([FusionCheck(fusion, "verified", 0.0) for fusion in fusions]))
    shared = None
    if "fusions" in after.graph:
        consumed = {layer.index for fusion in fusions for layer in fusion.layers[1:]}
        shared = [key for key in ours if key in before and key in theirs and key in after and key not in consumed]
    orders = (canonical_order(ours), canonical_order(theirs))
    pairing = Pairing(ours, theirs, orders[0], shared)
    checked = _checked(pairing, orders, seed, tolerance)
    first = checked
    for _ in range(_MOST_RETRIES):
        doubtful = {one.pair for one in checked if one.check.status == "failed" and one.pair in pairing.guesses}
        if not doubtful:
            break
        pairing.drop(sorted(doubtful))
        checked = _checked(pairing, orders, seed, tolerance)
    if any(one.check.status == "failed" for one in checked):
        checked = first
    regions = tuple(one.check for one in checked)
    return Verification(regions, tuple([_of_fusion(fusion, checked, before) for fusion in fusions]))


def _fusions(graph: Network) -> tuple[Fusion, ...]:
    """The records of `fuse`; none where there are none."""
    found = graph.graph.get("fusions", ())
    if not isinstance(found, tuple | list) or not all(isinstance(fusion, Fusion) for fusion in found):
        raise VerifyError("the network's graph['fusions'] is not what fuse leaves: take it out, or leave it as it was")
    return tuple(found)


def _checked(
    pairing: Pairing, orders: tuple[list[int], list[int]], seed: int, tolerance: float | None
) -> list[Checked]:
    """Everything that there is to check, with the pairs as they are."""
    ends = _ends(pairing.before, pairing.after, pairing)
    return [*ends, *Regions(pairing, orders, seed, tolerance).check()]


def _ends(before: Network, after: Network, pairing: Pairing) -> list[Checked]:
    """Inputs and Outputs that do not stay what they are: a region each, failed."""
    faults: list[tuple[int, str]] = []
    for listed in ("inputs", "outputs"):
        ours, theirs = before.graph.get(listed, ()), after.graph.get(listed, ())
        if [pairing.forward.get(key) for key in ours] != list(theirs):
            faults.append((next(iter(ours), -1), f"the network's {listed} are not the same, or not in the same order"))
        for key in ours:
            other = pairing.forward.get(key)
            if other is None:
                faults.append((key, f"{describe(before, key)} is gone from the network's {listed}"))
            elif not pairing.holds_same(key, other):
                faults.append((key, f"{describe(before, key)} is not the same after"))
    found = []
    for key, reason in faults:
        refs = (
            () if key not in before else (LayerRef(key, before.nodes[key].get("name", ""), before.nodes[key]["type"]),)
        )
        found.append(Checked(RegionCheck(refs, (), "failed", reason=reason), key, frozenset({key}), frozenset()))
    return found


def _of_fusion(fusion: Fusion, checked: list[Checked], before: Network) -> FusionCheck:
    """The worst region that a fusion's layers are in.

    Where they are in none, what it made is no longer there or is as it was, or it reaches no Output. Layers
    that other fusions made and others consumed again are in neither network: then all regions count.
    """
    keys = {layer.index for layer in fusion.layers}
    root = fusion.layers[0].index if fusion.layers else -1
    own = [one.check for one in checked if keys & one.before or root in one.after]
    if not own and not keys <= set(before):
        own = [one.check for one in checked]
    worst = max(own, key=lambda region: region.weight, default=None)
    if worst is None:
        return FusionCheck(fusion, "verified", 0.0)
    return FusionCheck(fusion, worst.status, worst.difference, worst.unit, worst.tolerance, worst.reason)
