"""The changed parts of a network, each run before and after.

Take two networks and pairs of layers (`fusion_engine.verifying.pairing`). For every pair on the way to
an Output a claim is made that both layers give the same values:

* Of a pair that holds the same it follows from its inputs. So for each input slot, the claim is that
  what feeds it gives the same, unless that is a pair itself, the same Constant, or an equal value.
* Of any other pair its outputs are compared.

The region of a claim is what lies above it up to the nearest pairs; these, and the Inputs, are its
free inputs. Where both sides give the same whatever the free inputs are, the claim holds if those of
the pairs above it do: by induction from the Inputs down, the Outputs give the same. Where they differ,
the free inputs may be too free (a clamp is only superfluous above a layer that never leaves its
range), so the pairs next above are taken into the region, and again up to `MOST_LEVELS`. Where that
makes the difference go, it must not be because values no longer come to where the region as it was
first told both sides apart (`fusion_engine.verifying.reach`). A pair that
holds the same but whose inputs differ is judged by its outputs (weights may have taken up what an
input lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fusion_engine.engine import LayerRef
from fusion_engine.network import Network, Source, consumers, describe, edges_into
from fusion_engine.tensor import FLOATS, TensorInfo
from fusion_engine.verifying.expressions import EXPRESSIONS, LayerInexpressible, express, output_info
from fusion_engine.verifying.layer import MOST_ELEMENTS, Value
from fusion_engine.verifying.measure import Measure, measure
from fusion_engine.verifying.onnxgraph import Array, OnnxGraph, Session, carrier
from fusion_engine.verifying.pairing import Pairing, value_numbers
from fusion_engine.verifying.reach import ENOUGH, SCALES, Reach, bends, number
from fusion_engine.verifying.result import RegionCheck
from fusion_engine.verifying.trials import Corners, trials

__all__ = ["MOST_LAYERS", "MOST_LEVELS", "Checked", "Regions", "live_layers"]

MOST_LEVELS = 4
"""How many levels of pairs a region that differs is widened by: the wider, the less a difference shows."""

MOST_LAYERS = 200
"""Largest number of layers to which a region is widened."""


class _Claim(NamedTuple):
    """Two tensors are said to be the same. ``outputs``: they are a pair's own, which is looked into."""

    before: Source
    after: Source
    outputs: bool


@dataclass(frozen=True)
class _Part:
    """One side of a region: its layers, sources first, and the tensors that it reads from outside by variable."""

    layers: tuple[int, ...]
    cuts: dict[Source, str]


@dataclass(frozen=True)
class Checked:
    """A region's result, the pair whose claim it judges, and the keys of its layers as first tried, not widened."""

    check: RegionCheck
    pair: int
    before: frozenset[int]
    after: frozenset[int]


class _Running(NamedTuple):
    """One side of a region, ready to run: its first output is compared, of the others the reach is watched."""

    session: Session
    infos: list[TensorInfo]
    reaches: list[Reach]


class _Side:
    """One of the two networks: what is above a tensor."""

    def __init__(self, graph: Network, order: Sequence[int], mark: str) -> None:
        self.graph = graph
        self.mark = mark
        self.position = {key: number for number, key in enumerate(order)}
        self.live = live_layers(graph)
        self.number = value_numbers(graph, order)
        self.pair_of: dict[int, int] = {}
        self._same_value: dict[int, int] = {}

    def take_pairs(self, pairs: dict[int, int]) -> None:
        """The layers that are in a pair, each with the pair's name: its key in the network before."""
        self.pair_of = pairs
        for key in sorted(pairs, key=self.position.__getitem__):
            self._same_value.setdefault(self.number[key], key)

    def stand_in(self, key: int) -> int | None:
        """The layer in a pair that gives a layer's values: itself, or one that must give the same."""
        return key if key in self.pair_of else self._same_value.get(self.number[key])

    def part(self, start: Source, inside: bool, variable: Callable[[_Side, Source], str | None]) -> _Part:
        """What lies above a tensor, up to the tensors that have a variable; ``inside``: its own layer has none."""
        cuts: dict[Source, str] = {}
        layers: set[int] = set()
        pending = [start]
        while pending:
            source = pending.pop()
            name = None if inside and source == start else variable(self, source)
            if name is not None:
                cuts[source] = name
            elif source.layer not in layers:
                layers.add(source.layer)
                pending += [above for _, above in edges_into(self.graph, source.layer)]
        return _Part(tuple(sorted(layers, key=self.position.__getitem__)), cuts)


def live_layers(graph: Network) -> set[int]:
    """The layers that reach a listed Output, these among them."""
    found: set[int] = set()
    pending = [key for key in graph.graph.get("outputs", ()) if key in graph]
    while pending:
        key = pending.pop()
        if key not in found:
            found.add(key)
            pending += graph.pred[key]
    return found


class Regions:
    """The regions of two networks.

    Parameters
    ----------
    pairing
        The networks and their pairs.
    orders
        The layers of both, sources first.
    seed, tolerance
        As of `verify`.
    """

    def __init__(
        self, pairing: Pairing, orders: tuple[Sequence[int], Sequence[int]], seed: int, tolerance: float | None
    ) -> None:
        self._pairing = pairing
        self._order = orders[0]
        self._before = _Side(pairing.before, orders[0], "b")
        self._after = _Side(pairing.after, orders[1], "a")
        self._before.take_pairs({key: key for key in pairing.forward})
        self._after.take_pairs(dict(pairing.backward))
        self._seed = seed
        self._tolerance = tolerance

    def check(self) -> Iterator[Checked]:
        """Check every claim, in canonical order."""
        done: dict[_Claim, Checked] = {}
        for key in self._order:
            if key not in self._pairing.forward or key not in self._before.live:
                continue
            if self._before.graph.nodes[key]["type"] == "Input":
                continue
            other = self._pairing.forward[key]
            if other not in self._after.live:
                continue
            claims = self._input_claims(key, other)
            yield from self._judge(claims, key, other, done)

    def _judge(
        self, claims: list[_Claim] | None, key: int, other: int, done: dict[_Claim, Checked]
    ) -> Iterator[Checked]:
        """Check the claims of a pair; those of its outputs where there are no others, or where others fail."""
        if claims is not None:
            found = [(claim, done[claim] if claim in done else self._checked(claim, key)) for claim in claims]
            end = self._before.graph.nodes[key]["type"] == "Output"
            if end or all(one.check.status == "verified" for _, one in found):
                yield from (one for claim, one in found if claim not in done)
                done.update(found)
                return
        for claim in self._output_claims(key, other):
            if claim not in done:
                done[claim] = self._checked(claim, key)
                yield done[claim]

    # Claims

    def _input_claims(self, key: int, other: int) -> list[_Claim] | None:
        """What must be the same above a pair that holds the same; None where its outputs have to be compared."""
        if not self._pairing.holds_same(key, other):
            return None
        ours, theirs = dict(edges_into(self._before.graph, key)), dict(edges_into(self._after.graph, other))
        if ours.keys() != theirs.keys():
            return None
        claims = []
        for slot, source in ours.items():
            twin = theirs[slot]
            kinds = (self._before.graph.nodes[source.layer]["type"], self._after.graph.nodes[twin.layer]["type"])
            if kinds == ("Constant", "Constant"):
                if not self._pairing.holds_same(source.layer, twin.layer):
                    return None
            elif self._pairing.forward.get(source.layer) != twin.layer or source.slot != twin.slot:
                claims.append(_Claim(source, twin, False))
        return list(dict.fromkeys(claims))

    def _output_claims(self, key: int, other: int) -> list[_Claim]:
        """The outputs of a pair that anybody reads."""
        slots = {use.slot for use in consumers(self._before.graph, key)}
        slots |= {use.slot for use in consumers(self._after.graph, other)}
        return [_Claim(Source(key, slot), Source(other, slot), True) for slot in sorted(slots)]

    # Regions

    def _parts(self, claim: _Claim, opened: set[int]) -> tuple[_Part, _Part]:
        def variable(side: _Side, source: Source) -> str | None:
            layer = side.stand_in(source.layer)
            if layer is not None:
                pair = side.pair_of[layer]
                kind = side.graph.nodes[layer]["type"]
                if pair not in opened and self._alike(Source(pair, source.slot)):
                    return f"p{pair}_{source.slot}"
                if kind != "Input":
                    return None
            return f"{side.mark}{source.layer}" if side.graph.nodes[source.layer]["type"] == "Input" else None

        return (
            self._before.part(claim.before, claim.outputs, variable),
            self._after.part(claim.after, claim.outputs, variable),
        )

    def _alike(self, source: Source) -> bool:
        """Whether an output of a pair can be the same tensor: it has one shape and holds numbers in one way."""
        return _alike(
            output_info(self._before.graph, source),
            output_info(self._after.graph, Source(self._pairing.forward[source.layer], source.slot)),
        )

    def _checked(self, claim: _Claim, owner: int) -> Checked:
        first: tuple[_Part, _Part] | None = None
        opened: set[int] = set()
        sealed: set[int] = set()
        result: Measure | str = "nothing was run"
        level = 0
        while True:
            parts = self._parts(claim, opened)
            first = first or parts
            try:
                result = self._run(claim, parts, first)
            except LayerInexpressible as error:
                pair = self._pair_of(error.key, opened)
                if pair is None and isinstance(result, Measure):
                    break  # it cannot be looked at more closely
                if pair is None:
                    return self._checks(owner, first, RegionCheck((), (), "unverified", reason=error.reason))
                opened.discard(pair)
                sealed.add(pair)
                continue
            if isinstance(result, str):
                status = "unverified" if result.startswith("onnxruntime") else "failed"
                return self._checks(owner, first, RegionCheck((), (), status, reason=result))  # type: ignore[arg-type]
            if result.passed or level == MOST_LEVELS:
                break
            level += 1
            wider = self._wider(parts, opened | sealed)
            if not wider or sum(len(part.layers) for part in parts) > MOST_LAYERS:
                break
            opened |= wider
        return self._checks(owner, first, self._verdict(claim, result))

    def _pair_of(self, key: int, opened: set[int]) -> int | None:
        """The pair that a layer was taken into the region by."""
        found = {side.pair_of[key] for side in (self._before, self._after) if key in side.pair_of}
        return next((pair for pair in sorted(found) if pair in opened), None)

    def _wider(self, parts: tuple[_Part, _Part], known: set[int]) -> set[int]:
        """The pairs next above a region that can be looked into."""
        found = set()
        for side, part in zip((self._before, self._after), parts, strict=True):
            for source in part.cuts:
                layer = side.stand_in(source.layer)
                if layer is not None:
                    found.add(side.pair_of[layer])
        return {pair for pair in found - known if self._expressible(pair)}

    def _expressible(self, pair: int) -> bool:
        kinds = (self._before.graph.nodes[pair], self._after.graph.nodes[self._pairing.forward[pair]])
        return all(node["type"] in EXPRESSIONS for node in kinds)

    # Running

    def _run(self, claim: _Claim, parts: tuple[_Part, _Part], first: tuple[_Part, _Part]) -> Measure | str:
        """The difference of both sides, or why there is none. ``first``: the region before it was widened."""
        infos = (output_info(self._before.graph, claim.before), output_info(self._after.graph, claim.after))
        variables: dict[str, TensorInfo] = {}
        corners = Corners()
        runs: list[_Running] = []
        for side, part, narrow, target in zip(
            (self._before, self._after), parts, first, (claim.before, claim.after), strict=True
        ):
            onnx, known = OnnxGraph(), {}
            for source in sorted(part.cuts, key=lambda s: (side.position[s.layer], s.slot)):
                name, info = part.cuts[source], output_info(side.graph, source)
                if info is None:
                    raise LayerInexpressible(side.graph, source.layer, "the shape of its output is not known")
                if info.elements > MOST_ELEMENTS:
                    raise LayerInexpressible(side.graph, source.layer, f"it gives more than {MOST_ELEMENTS} elements")
                variables.setdefault(name, info)
                known[source] = Value(onnx.input(name, info.shape, carrier(info)), info)
            corners.see(side.graph, part.layers)
            found = express(onnx, side.graph, part.layers, known)
            if target not in found:
                raise LayerInexpressible(side.graph, target.layer, f"it has no output {target.slot}")
            watched = self._watched(side, narrow, part != narrow, found)
            names = [found[target].name, *(name for name, _, _ in watched)]
            session = _session(side, target, onnx, names)
            runs.append(_Running(session, [info for _, info, _ in watched], [reach for _, _, reach in watched]))
        if infos[0] is None or infos[1] is None or not _alike(*infos):
            return f"{self._what(claim)} {_shown(infos[0])} before and {_shown(infos[1])} after"
        result = self._tried(claim, runs, infos[0], trials(variables, corners, self._seed))
        if isinstance(result, str) or not result.passed:
            return result
        reaches = [reach for run in runs for reach in run.reaches]
        if not any(_grows(info, corners) for info in variables.values()):
            return result  # all that there is was drawn from
        for scale in SCALES:
            if all(reach.bounded if scale > ENOUGH else reach.reached for reach in reaches):
                return result
            values = trials(variables, corners, self._seed, scale)
            further = self._tried(claim, runs, infos[0], values, finite_only=True)
            if isinstance(further, str) or not further.passed:
                return further
            result = replace(result, difference=max(result.difference, further.difference))
        return replace(result, reached=all(reach.bounded for reach in reaches))

    def _watched(
        self, side: _Side, narrow: _Part, widened: bool, found: Mapping[Source, Value]
    ) -> list[tuple[str, TensorInfo, Reach]]:
        """Where values have to come to: what bends, and in a widened region what was drawn freely before it was."""
        corners: dict[Source, tuple[float, ...]] = {}
        for source, numbers in bends(side.graph, narrow.layers):
            corners[source] = corners.get(source, ()) + numbers
        if widened:
            seen = Corners()
            seen.see(side.graph, narrow.layers)
            widest = max(1.0, *map(abs, seen.numbers))
            for source in narrow.cuts:
                corners[source] = (*corners.get(source, ()), -widest, widest)
        order = sorted(corners, key=lambda s: (side.position[s.layer], s.slot))
        return [
            (found[source].name, found[source].info, Reach(corners[source]))
            for source in order
            if source in found and found[source].info.canonical_type != "Boolean"
        ]

    def _tried(
        self,
        claim: _Claim,
        runs: Sequence[_Running],
        info: TensorInfo,
        tried: Iterable[dict[str, Array]],
        finite_only: bool = False,
    ) -> Measure | str:
        """The difference of both sides on some values; what is watched takes them in."""
        results: tuple[list[Array], list[Array]] = ([], [])
        seen: list[list[list[Array]]] = [[[] for _ in run.reaches] for run in runs]
        for values in tried:
            for run, found_in, watched in zip(runs, results, seen, strict=True):
                try:
                    found, *others = run.session.run(values)
                except Exception as error:  # onnxruntime's own classes have no common root but this
                    return f"onnxruntime: {type(error).__name__}: {error}"
                found_in.append(found)
                for into, array in zip(watched, others, strict=True):
                    into.append(array)
        for arrays in results:
            wrong = next((array.shape for array in arrays if array.shape != info.shape), None)
            if wrong is not None:
                return f"{self._what(claim)} shape {wrong}, its TensorInfo says {info.shape}"
        for run, watched in zip(runs, seen, strict=True):
            for reach, of, arrays in zip(run.reaches, run.infos, watched, strict=True):
                reach.see([number(of, array) for array in arrays])
        return measure(*results, info, self._tolerance, finite_only=finite_only)

    def _what(self, claim: _Claim) -> str:
        return f"{describe(self._before.graph, claim.before.layer)} gives"

    def _verdict(self, claim: _Claim, result: Measure | str) -> RegionCheck:
        if isinstance(result, str):
            raise TypeError(result)
        measured = (result.difference, result.unit, result.tolerance)
        if not result.passed:
            ours = describe(self._before.graph, claim.before.layer)
            theirs = describe(self._after.graph, claim.after.layer)
            reason = f"what {ours} gave before and {theirs} gives after differ by {result}"
            return RegionCheck((), (), "failed", *measured, reason)
        if not result.finite:
            return RegionCheck((), (), "unverified", *measured, "it gave no finite number to compare")
        if not result.reached:
            reason = f"values do not come to where {describe(self._before.graph, claim.before.layer)} could differ"
            return RegionCheck((), (), "unverified", *measured, reason)
        return RegionCheck((), (), "verified", *measured)

    def _checks(self, owner: int, parts: tuple[_Part, _Part], check: RegionCheck) -> Checked:
        """The result with the layers of the region."""
        before, after = (
            tuple(
                [
                    LayerRef(key, side.graph.nodes[key].get("name", ""), side.graph.nodes[key]["type"])
                    for key in p.layers
                ]
            )
            for side, p in zip((self._before, self._after), parts, strict=True)
        )
        whole = RegionCheck(before, after, check.status, check.difference, check.unit, check.tolerance, check.reason)
        return Checked(whole, owner, frozenset(parts[0].layers), frozenset(parts[1].layers))


def _grows(info: TensorInfo, corners: Corners) -> bool:
    """Whether values of this type can be drawn from a larger range."""
    return info.canonical_type in FLOATS or (
        info.canonical_type in ("Signed32", "Signed64") and corners.indices is None
    )


def _session(side: _Side, target: Source, onnx: OnnxGraph, names: Sequence[str]) -> Session:
    try:
        return onnx.session(names)
    except Exception as error:  # onnxruntime's own classes have no common root but this
        text = f"onnxruntime does not take the region: {error}"
        raise LayerInexpressible(side.graph, target.layer, text) from error


def _alike(one: TensorInfo | None, other: TensorInfo | None) -> bool:
    if one is None or other is None or one.shape != other.shape or one.canonical_type != other.canonical_type:
        return False
    return one.canonical_type in FLOATS or one.quantization == other.quantization


def _shown(info: TensorInfo | None) -> str:
    if info is None:
        return "a tensor of unknown shape"
    quantized = "" if info.canonical_type in FLOATS else f", quantized {info.quantization[1:]}"
    return f"{info.data_type} {info.shape}{quantized}"
