"""What lint says cannot happen does not happen: on random networks, with rules read off them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

import fusion_engine as fe
from fusion_engine.errors import FuseError
from fusion_engine.language.parser import parse
from fusion_engine.language.rule import FusingRule
from fusion_engine.language.rulefile import read_rules
from fusion_engine.language.sources import Source
from fusion_engine.language.tree import Element, Group, Item, Rule
from fusion_engine.linting.findings import Finding
from fusion_engine.linting.linter import findings_of
from fusion_engine.linting.proving import Claim, Prover
from fusion_engine.match import compile_rule
from fusion_engine.network import FrozenDict, Network, edges_into
from fusion_engine.workspace import Workspace
from tests.support.nets import Net
from tests.support.patterns import Patterns, random_network


def prepared(random: Random) -> Network:
    graph = random_network(random)
    for key, node in graph.nodes(data=True):
        if node["type"] == "Concat":  # the networks are for matching: as they come they cannot be saved
            views = len(edges_into(graph, key))
            node["params"] = FrozenDict(numViews=views, numDimensions=0, viewOrigins=((),) * views)
    return graph


def cut(text: str, random: Random) -> str:
    """A text with the braces of its root, or those of a layer below, left out: what covers it, often."""
    opening = [i for i, sign in enumerate(text) if sign == "{"]
    if not opening or random.random() < 0.3:
        return text
    start = random.choice(opening)
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[:start] + text[end + 1 :]
    raise AssertionError(text)


def escaped(text: str) -> str:
    """A text as TOML writes it with an escape, so that places count in the text itself."""
    return f'"\\u{ord(text[0]):04x}{json.dumps(text)[2:]}'


def rule_file(graph: Network, random: Random) -> bytes:
    """A few rules of one or two texts, of which some are cut out of others, and now and then a fold."""
    patterns = Patterns(graph, random)
    texts: list[str] = []
    written: list[str] = []
    for number in range(random.randint(2, 4)):
        own = []
        for _ in range(random.choice([1, 1, 2])):
            text = patterns.text(random.choice(list(graph))) if random.random() < 0.6 or not texts else ""
            own.append(text or cut(random.choice(texts), random))
        if random.random() < 0.5:
            own.reverse()
        texts += own
        if random.random() < 0.1:
            written.append('[[rule]]\nname = "fold"\nmatch = "Activation{Activation}"\nfold = "activation-chain"')
        action = random.choice(["into", "into", "group"])
        ordered = random.choice(["true", "false", "false"])
        written.append(f'[[rule]]\nname = "r{number}"\nmatch = [{", ".join(map(escaped, own))}]')
        written[-1] += f'\n{action} = "Made{number}"\nordered = {ordered}'
    if random.random() < 0.5:
        written.reverse()
    return "\n".join(written).encode()


def outcome(graph: Network, rules: list[FusingRule]) -> tuple[bytes, Counter[str]] | None:
    """What rules make and how often each fires; None where that takes too many steps."""
    try:
        fused = fe.fuse(graph, rules)
    except FuseError:
        return None
    if any("steps" in refusal.reason for refusal in fused.graph["refusals"]):
        return None
    return fe.dumps(fused), Counter(fusion.rule for fusion in fused.graph["fusions"])


def elements(rule: Rule) -> Iterator[Element]:
    stack: list[Rule | Item] = [rule]
    while stack:
        node = stack.pop()
        if isinstance(node, Rule):
            stack.extend(node.inputs or ())
            continue
        for choice in node.choices:
            yield choice
            if isinstance(choice.body, Group):
                stack.extend(choice.body.items)
            elif isinstance(choice.body, Rule):
                stack.append(choice.body)


def without(rule: FusingRule, finding: Finding) -> FusingRule:
    """The rule without the text or the alternative that is never reached."""
    texts = list(rule.texts)
    index = next(i for i, text in enumerate(texts) if text == finding.fault.text)
    if finding.fault.reason.startswith("match "):
        index = int(finding.fault.reason.split()[1]) - 1
        del texts[index]
    else:
        offset = finding.fault.column - 1
        found = next(one for one in elements(parse(texts[index])) if one.body.span.start == offset)
        assert texts[index][found.span.start - 1] == "|"
        texts[index] = texts[index][: found.span.start - 1] + texts[index][found.span.end :]
    return FusingRule(
        texts, name=rule.name, into=rule.into, group=rule.group, ordered=rule.ordered, results=rule.results
    )


def laws(seed: int) -> Counter[str]:
    """Lint rules for a network and see that what is said holds there; gives the kinds of what was said."""
    random = Random(seed)
    graph = prepared(random)
    source = Source("x.toml", rule_file(graph, random))
    rules, errors = read_rules([source])
    if errors:
        return Counter()
    told: Counter[str] = Counter()
    before = outcome(graph, rules)
    if before is None:
        return told
    for finding in findings_of([source])[0]:
        told[finding.check] += 1
        number = next(i for i, rule in enumerate(rules) if rule.name == finding.fault.rule)
        if finding.check == "shadowed":
            assert before[1][rules[number].name] == 0, (seed, finding.fault.reason, rules)
            told["fired beside a shadowed one"] += bool(before[1])
        elif finding.check == "unreachable" and (finding.fault.outer is None or len(set(rules[number].texts)) > 1):
            changed = without(rules[number], finding)
            assert outcome(graph, [*rules[:number], changed, *rules[number + 1 :]]) in (before, None), (
                seed,
                finding.fault.reason,
                rules[number].texts,
            )
            told["fires with what is not reached"] += before[1][rules[number].name] > 0
        elif finding.fault.reason.endswith("nothing matches") and finding.fault.column == 1:
            # It is about the root, so the whole text never matches.
            alone = FusingRule(finding.fault.text, group="Alone", results=rules[number].results)
            assert sum(1 for root in graph for _ in compile_rule(alone).matches(Workspace(graph), root)) == 0
            told["root with no such inputs"] += 1
    return told


@pytest.mark.parametrize("start", range(4))
def test_what_cannot_happen_does_not(start: int) -> None:
    told: Counter[str] = Counter()
    for seed in range(start * 150, start * 150 + 150):
        told += laws(seed)
    assert told["shadowed"] > 10
    assert told["fired beside a shadowed one"] > 5
    assert told["unreachable"] > 10
    assert told["fires with what is not reached"] > 2
    assert told["root with no such inputs"] > 2


# Conditions

_PARTS = (
    *(f"{name} {op} {value}" for name in ("poolWidth", "kernel.w", "padLeft") for op in ("<", ">=", "==", "<>")
      for value in (0, 1, 2, "2.5", -1)),
    *(f"kernel {op} {value}" for op in ("<", ">", "==", "<>", ">=") for value in ("1x1", "2x1")),
    *(f"{left} {op} {right}" for left, right in (("poolWidth", "poolHeight"), ("poolHeight", "padLeft"))
      for op in ("<", "<=", "==", "<>")),
    *(f'poolType {op} "{value}"' for op in ("==", "<>") for value in ("Max", "Average", "L2")),
    "output.scale >= 0", "output.scale <> 1", "output.n == 1",
)  # fmt: skip


def condition(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        return random.choice(_PARTS)
    joint = random.choice([" && ", " || "])
    parts = [condition(random, depth - 1) for _ in range(random.randint(2, 3))]
    return f"({joint.join(parts)})"


def poolings() -> Network:
    """A Pooling2d for every combination of some values of the fields that conditions ask for."""
    net = Net()
    source = net.input((1, 4, 4, 1))
    for width, height, left, kind in product((0, 1, 2, 3), (0, 1, 2), (0, 1, 2, 3), ("Max", "Average", "L2")):
        params = {"poolWidth": width, "poolHeight": height, "padLeft": left, "poolType": kind}
        net.layer("Pooling2d", source, params=params)
    return net.graph


def test_conditions_that_are_proved_are_so() -> None:
    work = Workspace(poolings())
    layers = [key for key in work.graph if work.type(key) == "Pooling2d"]
    assert len(layers) == 144
    random = Random(7)
    said: Counter[str] = Counter()
    for _ in range(400):
        rule = FusingRule(f"Pooling2d[{condition(random, 3)}]", group="P")
        constraint = rule.patterns[0][0].constraint
        assert constraint is not None
        matcher = compile_rule(rule)
        matched = sum(1 for key in layers if next(iter(matcher.matches(work, key)), None) is not None)
        if not Prover().possible([Claim(constraint)], lambda _: "Pooling2d"):
            said["never"] += 1
            assert matched == 0, rule.text
        elif not Prover().possible([Claim(constraint, False)], lambda _: "Pooling2d"):
            said["always"] += 1
            assert matched == len(layers), rule.text
        else:
            said["neither"] += 1
            said["neither, and so it is"] += 0 < matched < len(layers)
    assert said["never"] > 10
    assert said["always"] > 5
    assert said["neither, and so it is"] > 0.9 * said["neither"]
