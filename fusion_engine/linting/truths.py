"""Conditions that are always true or never, alone or beside the others of their layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fusion_engine.language.pattern import AllOf, AnyOf, Constraint, Operand, PatternLayer, Test
from fusion_engine.linting.domains import domain_of, plain_name
from fusion_engine.linting.patterns import Standing
from fusion_engine.linting.proving import Claim, Prover
from fusion_engine.linting.sites import Ledger, Site
from fusion_engine.schema import schema
from fusion_engine.spellings import spellings

__all__ = ["Judge", "given"]

MAX_CLAIMS = 64
"""Most conditions at one layer of which those that exclude each other are looked for."""

_SCOPES = {"Float16": "fp16", "Float32": "fp32"}
_LAYOUTS = {"NCHW": ("NCHW", "NCDHW"), "NHWC": ("NHWC", "NDHWC")}


def given(standing: Standing) -> tuple[Test | AnyOf, ...]:
    """What scopes say of a layer, as conditions; their spans are the layer's."""
    layer = standing.layer
    found: list[Test | AnyOf] = []
    if layer.data_type is not None:
        found.append(Test(Operand("output.dataType", layer.id, "enum"), "==", layer.data_type, layer.span))
    names = [] if layer.result or layer.type == "StridedSlice" else spellings(layer.type)
    descriptors = [schema().layers[name].descriptor for name in names]
    if descriptors and all(one is not None and "dataLayout" in one.by_name for one in descriptors):
        known = schema().enums["DataLayout"].values
        operand = Operand("dataLayout", layer.id, "enum")
        for layout in standing.layouts:
            values = [value for value in _LAYOUTS[layout] if value in known]
            found.append(AnyOf(tuple(Test(operand, "==", value, layer.span) for value in values)))
    return tuple(found)


@dataclass
class Judge:
    """Judges the conditions of one match text.

    Parameters
    ----------
    rule, text
        The numbers of the rule in its file and of the text in the rule.
    source
        The text.
    type_of
        The layer type of each pattern layer by its id.
    prover, ledger
        What proves, and where it is noted.
    """

    rule: int
    text: int
    source: str
    type_of: Callable[[int], str]
    prover: Prover
    ledger: Ledger

    def layer(self, standing: Standing) -> None:
        """Note what the condition of a layer can never be, or always is."""
        layer, scopes = standing.layer, given(standing)
        if layer.constraint is None:
            site = Site.of(layer.span, self.rule, self.text)
            self.ledger.look(site, "always-false", self.mark(layer))
            if not self.possible(scopes):
                reason = f"the scopes on {layer.type} exclude each other: nothing is of both"
                self.ledger.find(site, "always-false", reason, self.mark(layer))
            return
        never = self.single(layer, layer.constraint)
        for either in _alternatives(layer.constraint):
            if self.always(either):
                first = next(_tests(either))
                reason = f"one of the alternatives from {self.words(first)} on always holds"
                self.ledger.find(self.site(first), "always-true", reason, self.mark(layer))
        self.ways(layer, layer.constraint, scopes, never)

    def single(self, layer: PatternLayer, constraint: Constraint) -> set[int]:
        """Judge each test by itself; gives those that are never true."""
        never: set[int] = set()
        for test in _tests(constraint):
            site = self.site(test)
            self.ledger.look(site, "always-false", self.mark(layer))
            self.ledger.look(site, "always-true", self.mark(layer))
            told = f"{self.words(test)} is always {{}}{_because(test, self.type_of)}"
            if not self.possible([test]):
                never.add(id(test))
                self.ledger.find(site, "always-false", told.format("false"), self.mark(layer))
            elif not self.prover.possible([Claim(test, False)], self.type_of):
                self.ledger.find(site, "always-true", told.format("true"), self.mark(layer))
        return never

    def ways(self, layer: PatternLayer, constraint: Constraint, scopes: Sequence[Constraint], never: set[int]) -> None:
        """Judge the condition, and where it may hold each alternative in it beside what must hold with that."""
        stack: list[tuple[Constraint, list[Constraint]]] = [(constraint, list(scopes))]
        while stack:
            part, beside = stack.pop()
            plain = [one for one in beside if isinstance(one, Test)]
            told = any(id(test) in never for test in (*_tests(part), *plain))
            if not told and self.together(layer, part, beside, scopes):
                continue
            conditions = _flat(part)
            for one in conditions if len(conditions) + len(beside) <= MAX_CLAIMS else ():
                if isinstance(one, AnyOf):
                    others = [*beside, *(other for other in conditions if other is not one)]
                    stack.extend((choice, others) for choice in reversed(one.parts))

    def together(
        self, layer: PatternLayer, part: Constraint, beside: Sequence[Constraint], scopes: Sequence[Constraint]
    ) -> bool:
        """Judge a condition beside others that must hold with it; True where it cannot hold."""
        core = self.core(part, beside)
        if core is None:
            return False
        candidates = [one for one in core if one not in scopes] or [part]
        in_text = [one for one in candidates if not self.site(next(_tests(one))).definition]
        told = (in_text or candidates)[-1]  # what the rule itself says is to blame before what a definition says
        others = [_scope(one) if one in scopes else self.text_of(one) for one in core if one is not told]
        reason = (
            f"is never true beside {' and '.join(others)}" if others else "is never true: its parts exclude each other"
        )
        site = self.site(next(_tests(told)))
        self.ledger.find(site, "always-false", f"{self.text_of(told)} {reason}", self.mark(layer))
        return True

    def core(self, part: Constraint, beside: Sequence[Constraint]) -> list[Constraint] | None:
        """Conditions that cannot hold together, none to spare; None where all may, or where it is not for ``part``."""
        claims = [*beside, *_flat(part)]
        if self.possible(claims) or not self.possible(beside):
            return None
        for one in list(claims) if len(claims) <= MAX_CLAIMS else ():
            rest = [other for other in claims if other is not one]
            if not self.possible(rest):
                claims = rest
        return claims

    def possible(self, constraints: Sequence[Constraint]) -> bool:
        """Whether conditions can hold together."""
        return self.prover.possible([Claim(one) for one in constraints], self.type_of)

    def always(self, either: AnyOf) -> bool:
        """Whether one of some alternatives always holds, though none of them always does."""
        alone = (self.prover.possible([Claim(part, False)], self.type_of) for part in either.parts)
        return all(alone) and not self.prover.possible([Claim(either, False)], self.type_of)

    def mark(self, layer: PatternLayer) -> tuple[int, int, int]:
        """What tells a layer from all others of the file."""
        return self.rule, self.text, layer.id

    def site(self, test: Test) -> Site:
        """Where a test is written."""
        if test.definition is None:
            return Site.of(test.span, self.rule, self.text)
        return Site.of(test.definition.span, self.rule, self.text, test.definition.name)

    def words(self, test: Test) -> str:
        """A test as it is written."""
        site = self.site(test)
        whole = self.ledger.file.layers[site.definition] if site.definition else self.source
        return " ".join(whole[site.span[0] : site.span[1]].split())

    def text_of(self, constraint: Constraint) -> str:
        """A condition as it is written, long ones cut short."""
        if isinstance(constraint, Test):
            return self.words(constraint)
        joint = " && " if isinstance(constraint, AllOf) else " || "
        tests = list(_tests(constraint))
        return f"({joint.join(map(self.words, tests[:3]))}{f'{joint}...' if len(tests) > 3 else ''})"


def _scope(constraint: Constraint) -> str:
    """A scope as it is written; ``constraint`` is of `given`."""
    value = str(next(_tests(constraint)).right)
    return f"the scope {_SCOPES.get(value, value.lower())}|"


def _because(test: Test, type_of: Callable[[int], str]) -> str:
    """What the value can be, where that is why."""
    sides = [side for side in (test.left, test.right) if isinstance(side, Operand)]
    if len(sides) != 1 or sides[0].kind == "dimension":
        return ""
    kind, name = type_of(sides[0].at), sides[0].name
    domain = domain_of(kind, plain_name(kind, name))
    if domain.empty:
        return f": {kind} has no such slot"
    return "" if domain.only is not None and len(domain.only) > 4 else f": {name} is {domain}"


def _tests(constraint: Constraint) -> Iterator[Test]:
    stack = [constraint]
    while stack:
        part = stack.pop()
        if isinstance(part, Test):
            yield part
        else:
            stack.extend(reversed(part.parts))


def _alternatives(constraint: Constraint) -> Iterator[AnyOf]:
    stack = [constraint]
    while stack:
        part = stack.pop()
        if isinstance(part, AnyOf):
            yield part
        if not isinstance(part, Test):
            stack.extend(reversed(part.parts))


def _flat(constraint: Constraint) -> list[Constraint]:
    """The conditions that all must hold."""
    found: list[Constraint] = []
    stack = [constraint]
    while stack:
        part = stack.pop()
        if isinstance(part, AllOf):
            stack.extend(reversed(part.parts))
        else:
            found.append(part)
    return found
