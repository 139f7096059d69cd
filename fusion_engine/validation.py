"""What keeps a network from being a ``.armnn`` file that real Arm NN reads.

Whatever a user put into nodes, edges and the graph is looked at before it is used, so nothing here
raises on it. What holds for a layer type is data: the compiled schema and ``schema/layers.toml``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import networkx as nx
import numpy as np

from fusion_engine.checks import (
    RANGES,
    field_at,
    info_fault,
    is_int,
    params_faults,
    rule_faults,
    scalar_fault,
    shown,
    tensor_fault,
)
from fusion_engine.collector import paused
from fusion_engine.errors import ModelError, nearest
from fusion_engine.naming import layer_place
from fusion_engine.network import EMPTY, Network, inside
from fusion_engine.schema import DIALECTS, LayerType, Schema, schema, slot_facts
from fusion_engine.tensor import DTYPES, Tensor, TensorInfo

__all__ = ["Findings", "Problem", "require_valid", "validate"]


@dataclass(frozen=True)
class Problem:
    """A reason why a network cannot be saved.

    Attributes
    ----------
    layer
        Node key, or None where it is about the network as a whole.
    message
        What was found and what to do.
    name
        The layer's name.
    """

    layer: int | None
    message: str
    name: str = ""

    @property
    def place(self) -> str | None:
        """``layer 14 'relu_3'``, or None."""
        return None if self.layer is None else layer_place(self.layer, self.name)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


@dataclass(frozen=True)
class Findings:
    """What a run over a network found out, for whoever works on the network next.

    Attributes
    ----------
    problems
        What `validate` gives.
    connections
        Per layer (input slot, source, output slot) of every connection that is right, by input slot.
    alike
        Per layer a number, the same for layers that differ at most in name, sources and the elements of their
        constants: they have one type, one params object, one tuple of outputs, as many inputs, constants in the
        same fields with one TensorInfo each, the same overrides, and no binding id. A number holds as long as
        the network does; nothing follows where two layers have different ones.
    """

    problems: tuple[Problem, ...]
    connections: Mapping[int, list[tuple[int, int, int]]]
    alike: Mapping[int, int]


def validate(graph: Network) -> tuple[Problem, ...]:
    """The problems that keep a network from being saved; empty where there are none.

    Parameters
    ----------
    graph
        Any network; nothing about it need be right.

    Returns
    -------
    tuple of Problem
        First what is about the network, then layer by layer, ascending by key.

    Examples
    --------
    >>> from fusion_engine.network import new_network
    >>> graph = new_network()
    >>> graph.add_node(3, type="Convolution3d", name="c")
    >>> for problem in validate(graph):
    ...     print(problem)
    layer 3 'c': it has no params: Convolution3d needs its descriptor (an empty dict says all defaults)
    layer 3 'c': it has 0 inputs: Convolution3d has 2 or 3
    layer 3 'c': it has 0 outputs: Convolution3d has 1
    """
    with paused():
        return look_over(graph).problems


def look_over(graph: Network) -> Findings:
    """What `validate` says, and what was found on the way."""
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        return Findings((Problem(None, f"a network is a networkx.DiGraph, not a {type(graph).__name__}"),), {}, {})
    with paused():
        return _Validator(graph).run()


MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
"""What Python raises where a network's attributes are not what they should be."""


@contextmanager
def blaming(graph: Network, what: str) -> Iterator[None]:
    """Turn an error in work on a network into its first problem, where it has one: that is what it came from.

    Raises
    ------
    ModelError
        ``what`` (``cannot be fused``) and the problem.
    """
    try:
        yield
    except MALFORMED as error:
        for problem in validate(graph):
            raise ModelError(f"{what}: {problem.message}", place=problem.place) from error
        raise


def require_valid(graph: Network) -> Findings:
    """Raise the first problem of a network that has any; else what was found out about it.

    Raises
    ------
    ModelError
        With the layer, the problem and how many more there are.
    """
    findings = look_over(graph)
    problems = findings.problems
    if problems:
        more = _count(len(problems) - 1, "more problem")
        rest = f" (and {more}: validate lists them)" if len(problems) > 1 else ""
        raise ModelError(problems[0].message + rest, place=problems[0].place)
    return findings


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _pairs(slots: Any) -> tuple[list[tuple[int, int]], bool]:
    """The pairs in an edge's slots that are right, and whether that is all there is."""
    if type(slots) is tuple and len(slots) == 1 and type(slots[0]) is tuple and len(slots[0]) == 2:
        output, slot = slots[0]
        if type(output) is type(slot) is int and 0 <= output < _SLOTS and 0 <= slot < _SLOTS:
            return [slots[0]], True
    if not isinstance(slots, tuple | list) or not slots:
        return [], False
    found = [
        (int(pair[0]), int(pair[1]))
        for pair in slots
        if isinstance(pair, tuple | list) and len(pair) == 2 and all(is_int(n) and 0 <= int(n) < _SLOTS for n in pair)
    ]
    return found, len(found) == len(slots)


_SLOTS = len(RANGES["uint"])
"""Slot numbers are below it."""


@dataclass(frozen=True)
class _Plan:
    """What holds for a layer type in a dialect."""

    kind: LayerType
    facts: Mapping[str, Any]
    tensors: frozenset[str]


@cache
def _plan(dialect: str, name: str) -> _Plan | None:
    kind = schema(dialect).layers.get(name)
    return None if kind is None else _Plan(kind, slot_facts()[name], frozenset(path[-1] for path in kind.tensors))


class _Validator:
    """One run over one network: the network as a whole, then each layer."""

    def __init__(self, graph: Network) -> None:
        self.graph = graph
        self.general: list[Problem] = []
        self.found: list[Problem] = []
        nodes = inside(graph).nodes
        self.nodes: dict[int, dict[str, Any]] = {key: data for key, data in nodes.items() if type(key) is int}
        self.connections: dict[int, list[tuple[int, int, int]]] = {key: [] for key in self.nodes}
        """Per layer (input slot, source, output slot) of the connections that are right."""
        self.descending: list[int] = []
        """Sources of those that do not lead from a smaller key to a larger one."""
        self.wrong_edges: dict[int, list[tuple[int, str]]] = {}
        self.listed: set[int] = set()
        self.layer = 0
        self.name = ""
        self._held: dict[int, tuple[Any, np.dtype[Any]]] = {}
        """Shape and dtype of TensorInfos, for `_alike`."""
        self._infos: dict[int, str | None] = {}
        self._tensors: dict[int, str | None] = {}
        self._params: dict[tuple[str, int], list[str]] = {}
        self.schema = self._dialect()

    def run(self) -> Findings:
        by_binding = self._versions()
        for strange in sorted(shown(key) for key in self.graph if type(key) is not int):
            self._say_general(f"the node key {strange} is no int: layers are keyed by ints")
        self._edges()
        nodes = self.nodes.items() if by_binding else ()
        bound = [(key, node) for key, node in nodes if node.get("binding_id") is not None]
        for listed, kind in (("inputs", "Input"), ("outputs", "Output")):
            self._list(listed, kind)
            if by_binding:
                self._binding_ids(listed, kind, bound)
        self._cycle()
        right: dict[tuple[Any, ...] | None, int] = {}
        numbers: dict[int, int] = {}
        for number, key in enumerate(sorted(self.nodes)):
            self.layer, self.name = key, ""
            node = self.nodes[key]
            try:
                alike = self._alike(key, node)
                known = right.get(alike)
                if known is not None:
                    numbers[key] = known
                    continue
                numbers[key] = number
                before = len(self.found)
                self._layer(key, node)
                if alike is not None and len(self.found) == before:
                    right[alike] = number
            except Exception as error:  # raised by an object of the user's own
                self._say(f"its attributes cannot be read: {type(error).__name__}")
        return Findings((*self.general, *self.found), self.connections, numbers)

    def _alike(self, key: int, node: dict[str, Any]) -> tuple[Any, ...] | None:
        """Equal for layers of which all are right if one is: they share the objects that are looked at.

        What each layer has of its own is looked at here: name, connections, and whether the data of a tensor
        is what its TensorInfo says. None where anything is unusual.
        """
        name, kind, outputs = node.get("name", ""), node.get("type"), node.get("outputs", ())
        if type(name) is not str or not name.isascii() or type(kind) is not str or type(outputs) is not tuple:
            return None
        if "binding_id" in node or "unconnected" in node:
            return None
        connections = self.connections[key]
        if key in self.wrong_edges or not self._connected(connections):
            return None
        constants, overrides = node.get("constants"), node.get("overrides")
        if not constants and overrides is None:
            return (kind, id(node.get("params")), id(outputs), len(connections))
        held: list[Any] = []
        if overrides is not None:
            if not isinstance(overrides, dict):
                return None
            for slot, value in overrides.items():
                if type(slot) is not int or type(value) is not tuple or len(value) != 2 or type(value[0]) is not bool:
                    return None
                held += (slot, value[0], id(value[1]))
        if constants and not (isinstance(constants, dict) and self._hold(constants, held)):
            return None
        return (kind, id(node.get("params")), id(outputs), len(connections), *held)

    def _hold(self, constants: dict[Any, Any], held: list[Any]) -> bool:
        """Whether constants are Tensors whose data is what their TensorInfos say; appends fields and TensorInfos."""
        for field, tensor in constants.items():
            if type(field) is not str or type(tensor) is not Tensor:
                return False
            info, data = tensor.info, tensor.data
            known = self._held.get(id(info))
            if known is None:
                if type(info) is not TensorInfo or type(info.data_type) is not str or info.data_type not in DTYPES:
                    return False
                known = self._held[id(info)] = (info.shape, DTYPES[info.data_type])
            if type(data) is not np.ndarray or data.shape != known[0] or data.dtype != known[1]:
                return False
            held += (field, id(info))
        return True

    def _connected(self, connections: list[tuple[int, int, int]]) -> bool:
        """Whether connections end at the input slots 0, 1, ... in that order and begin at outputs that there are."""
        nodes = self.nodes
        for number, (slot, source, output) in enumerate(connections):
            outputs = nodes[source].get("outputs", ())
            if slot != number or type(outputs) is not tuple or output >= len(outputs):
                return False
        return True

    def _say(self, message: str) -> None:
        self.found.append(Problem(self.layer, message, self.name))

    def _say_general(self, message: str) -> None:
        self.general.append(Problem(None, message))

    # The network as a whole

    def _dialect(self) -> Schema:
        dialect = self.graph.graph.get("dialect", "current")
        if isinstance(dialect, str) and dialect in DIALECTS:
            return schema(dialect)
        self._say_general(f"the dialect is {shown(dialect)}: it is one of {', '.join(map(repr, DIALECTS))}")
        return schema()

    def _versions(self) -> bool:
        """Whether the file lists Inputs and Outputs by binding id."""
        versions = self.graph.graph.get("feature_versions", (1, 1, 1))
        right = isinstance(versions, tuple | list) and len(versions) == 3
        if not right or not all(is_int(version) and int(version) in RANGES["uint"] for version in versions):
            self._say_general(f"feature_versions is {shown(versions)}: it is three numbers, such as (1, 1, 1)")
            return False
        if any(versions) and "featureVersions" not in self.schema.tables[self.schema.root].by_name:
            dialect = self.schema.dialect
            self._say_general(f"feature_versions is {shown(versions)}: the {dialect} dialect holds (0, 0, 0) only")
        return bool(versions[0] >= 1)

    def _edges(self) -> None:
        """Sorts out which connections are right; those of a layer by input slot."""
        nodes, connections = self.nodes, self.connections
        known: dict[int, tuple[Any, list[tuple[int, int]], bool]] = {}
        """What `_pairs` says of slots by id; most edges share theirs."""
        several = []
        for source, targets in inside(self.graph).succ.items():
            if source not in nodes:
                continue
            for target, data in targets.items():
                entries = connections.get(target)
                if entries is None:
                    continue
                slots: Any = data.get("slots")
                found = known.get(id(slots))
                if found is None:
                    found = known[id(slots)] = (slots, *_pairs(slots))
                for output, slot in found[1]:
                    entries.append((slot, source, output))
                if len(entries) > 1:
                    several.append(entries)
                if source >= target:
                    self.descending.append(source)
                if not found[2]:
                    self.wrong_edges.setdefault(target, []).append((source, shown(slots)))
        for entries in several:
            entries.sort()

    def _list(self, listed: str, kind: str) -> None:
        keys = self.graph.graph.get(listed, ())
        if not isinstance(keys, tuple | list):
            self._say_general(f"the graph's {listed} is {shown(keys)}: it is a tuple of the keys of the {kind}s")
            return
        for key in keys:
            if type(key) is not int or key not in self.nodes:
                self._say_general(f"the graph's {listed} lists {shown(key)}, which is no layer: take it off")
            elif not self._is(key, kind):
                self._say_general(f"the graph's {listed} lists layer {key}, which is no {kind}: take it off")
            elif key in self.listed:
                self._say_general(f"the graph's {listed} lists layer {key} twice")
            else:
                self.listed.add(key)

    def _is(self, key: int, kind: str) -> bool:
        found = self.nodes[key].get("type")
        return isinstance(found, str) and found == kind

    def _binding_ids(self, listed: str, kind: str, bound: list[tuple[int, dict[str, Any]]]) -> None:
        """A listed layer is named by its binding id, so no other layer of its kind may have that one."""
        holders: dict[int, list[int]] = {}
        for key, node in bound:
            number: Any = node["binding_id"]
            if is_int(number) and self._is(key, kind):
                holders.setdefault(int(number), []).append(key)
        for number, keys in sorted(holders.items()):
            if len(keys) > 1 and not self.listed.isdisjoint(keys):
                same = ", ".join(map(str, sorted(keys)))
                self._say_general(f"the {kind}s {same} have one binding id, {number}: {listed} names layers by it")

    def _cycle(self) -> None:
        """Reports one cycle, beginning at its smallest key.

        A cycle has a connection that does not lead upwards, and its source has inputs. Mostly there is none such:
        files have sources first, and what is added to a network is a Constant.
        """
        if not any(self.connections[source] for source in self.descending):
            return
        consumers: dict[int, list[int]] = {key: [] for key in self.nodes}
        for key, connections in self.connections.items():
            for _, source, _ in connections:
                consumers[source].append(key)
        waiting = {key: len(connections) for key, connections in self.connections.items()}
        ready = [key for key, count in waiting.items() if not count]
        for key in ready:
            for target in consumers[key]:
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        if len(ready) == len(waiting):
            return
        sources = {key: {source for _, source, _ in found} for key, found in self.connections.items()}
        left = {key for key, count in waiting.items() if count}
        trail: dict[int, None] = {}
        key = min(left)
        while key not in trail:
            trail[key] = None
            key = min(sources[key] & left)
        upwards = list(trail)
        cycle: list[Any] = upwards[upwards.index(key) :][::-1]
        at = cycle.index(min(cycle))
        cycle = [*cycle[at:], *cycle[:at], cycle[at]]
        path = " -> ".join(map(str, cycle if len(cycle) <= 12 else [*cycle[:10], "...", cycle[-1]]))
        self._say_general(f"the layers {path} feed each other in a cycle")

    # One layer

    def _layer(self, key: int, node: dict[str, Any]) -> None:
        self._name(node.get("name", ""))
        outputs = self._outputs(node.get("outputs", ()))
        kind = node.get("type")
        plan = _plan(self.schema.dialect, kind) if isinstance(kind, str) else None
        if plan is None:
            self._unknown_type(kind)
            self._inputs(node)
            return
        params = self._right_params(plan, node.get("params"))
        constants = self._constants(plan, node.get("constants"))
        if not plan.kind.bindable and node.get("binding_id") is not None:
            self._say("it has a binding_id, which only Input and Output have: remove it")
        if plan.kind.bindable and scalar_fault("int", node.get("binding_id")) is not None:
            self._say(f"its binding_id is {shown(node.get('binding_id'))}: it is an int of 32 bits")
        inputs = self._inputs(node)
        self._fits(plan, inputs, outputs, params, constants)
        if kind == "Input" and key not in self.listed and self.graph.succ[key]:
            self._say("this Input has consumers, and the graph's inputs does not list it: add it there")

    def _name(self, name: Any) -> None:
        if not isinstance(name, str):
            self._say(f"its name is {shown(name)}: a name is a str")
            return
        self.name = name
        if not name.isascii():
            try:
                name.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                self._say(f"its name has the lone surrogate U+{ord(name[error.start]):04X}, which UTF-8 cannot hold")

    def _unknown_type(self, kind: Any) -> None:
        if kind is None:
            self._say("it has no type: set the name of a LayerType")
        elif not isinstance(kind, str):
            self._say(f"its type is {shown(kind)}: a type is the name of a LayerType")
        elif kind in schema().layers:
            self._say(f"the {self.schema.dialect} dialect has no {kind}: set the graph's dialect to 'current'")
        else:
            self._say(f"there is no layer type {shown(kind)}{nearest(kind[:100], list(self.schema.layers))}")

    def _info(self, info: Any) -> str | None:
        if id(info) not in self._infos:
            self._infos[id(info)] = info_fault(info, self.schema)
        return self._infos[id(info)]

    def _tensor(self, tensor: Any) -> str | None:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = tensor_fault(tensor, self._info)
        return self._tensors[id(tensor)]

    def _outputs(self, outputs: Any) -> tuple[Any, ...] | None:
        """The TensorInfos; None where it is no tuple."""
        if not isinstance(outputs, tuple | list):
            self._say(f"outputs is {shown(outputs)}: it is a tuple of TensorInfos, one per output slot")
            return None
        for slot, info in enumerate(outputs):
            if info is None:
                self._say(f"output slot {slot} has no TensorInfo: real readers need one")
            elif (fault := self._info(info)) is not None:
                self._say(f"output slot {slot} {fault}")
        return tuple(outputs)

    def _right_params(self, plan: _Plan, params: Any) -> Mapping[str, Any] | None:
        """The parameters; None where they are missing or wrong."""
        kind, table = plan.kind.name, plan.kind.descriptor
        if params is None and plan.facts.get("descriptor"):
            self._say(f"it has no params: {kind} needs its descriptor (an empty dict says all defaults)")
            return None
        if params is None:
            return EMPTY
        if not isinstance(params, Mapping):
            self._say(f"params is {shown(params)}: it is a dict of the descriptor's fields")
            return None
        if table is None:
            if params:
                self._say(f"it has the parameter {shown(min(map(str, params)))}: {kind} has no descriptor")
            return EMPTY
        known = (kind, id(params))
        if known not in self._params:
            faults = list(params_faults(table, params, self.schema))
            self._params[known] = faults or list(rule_faults(plan.facts, table, params, self.schema))
        for fault in self._params[known]:
            self._say(fault)
        return None if self._params[known] else params

    def _constants(self, plan: _Plan, constants: Any) -> Mapping[str, Any]:
        if constants is None:
            return EMPTY
        if not isinstance(constants, Mapping):
            self._say(f"constants is {shown(constants)}: it is a dict of Tensors by field")
            return EMPTY
        for field in sorted(constants, key=str) if constants else ():
            if field not in plan.tensors:
                has = ", ".join(path[-1] for path in plan.kind.tensors) or "none"
                self._say(f"there is no constant {shown(field)} in {plan.kind.name}: it has {has}")
            elif (fault := self._tensor(constants[field])) is not None:
                self._say(f"its constant {field!r} {fault}")
        return constants

    # Slots

    def _inputs(self, node: dict[str, Any]) -> int | None:
        """The number of input slots; None where they are not right."""
        before = len(self.found)
        for source, slots in sorted(self.wrong_edges.get(self.layer, ())):
            self._say(
                f"the edge from layer {source} has slots {slots}: "
                "it is a tuple of (output slot, input slot) pairs, as connect makes them"
            )
        connections = self.connections[self.layer]
        for slot, source, output in connections:
            outputs = self.nodes[source].get("outputs", ())
            if isinstance(outputs, tuple | list) and output >= len(outputs):
                has = _count(len(outputs), "output")
                self._say(f"input slot {slot} is connected to output slot {output} of layer {source}, which has {has}")
        numbers = [slot for slot, _, _ in connections]
        if numbers != list(range(len(numbers))):
            self._gap(numbers)
        elif node.get("unconnected"):
            self._say(f"input slots {shown(node['unconnected'])} are not connected: connect them")
        if node.get("overrides") is not None:
            self._overrides(node["overrides"], set(numbers))
        return len(numbers) if len(self.found) == before else None

    def _gap(self, numbers: list[int]) -> None:
        """The first fault of input slots that are not 0, 1, ..., sorted as they are."""
        at = next(at for at, number in enumerate(numbers) if number != at)
        if at and numbers[at] == numbers[at - 1]:
            self._say(f"more than one connection ends at input slot {numbers[at]}: disconnect one")
        else:
            self._say(f"input slot {at} is not connected, and slot {numbers[at]} is: connect it")

    def _overrides(self, overrides: Any, slots: set[int]) -> None:
        if not isinstance(overrides, Mapping):
            self._say(f"overrides is {shown(overrides)}: it is a dict of (flag, TensorInfo or None) by input slot")
            return
        if overrides and "isOverridden" not in self.schema.tables["InputSlot"].by_name:
            self._say(f"the {self.schema.dialect} dialect cannot hold overrides")
            return
        for slot in sorted(overrides, key=str):
            value = overrides[slot]
            if not is_int(slot) or slot not in slots:
                self._say(f"overrides names input slot {shown(slot)}, which is not connected")
            elif not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[0], bool):
                self._say(f"the override of input slot {slot} is {shown(value)}: it is (flag, TensorInfo or None)")
            elif value[1] is not None and (fault := self._info(value[1])) is not None:
                self._say(f"the override of input slot {slot} {fault}")

    # The facts of the layer type

    def _fits(
        self,
        plan: _Plan,
        inputs: int | None,
        outputs: tuple[Any, ...] | None,
        params: Mapping[str, Any] | None,
        constants: Mapping[str, Any],
    ) -> None:
        facts = plan.facts
        if inputs is not None:
            self._counted(plan, params, _count(inputs, "input"), facts["inputs"], inputs)
        if outputs is not None:
            self._counted(plan, params, _count(len(outputs), "output"), facts["outputs"], len(outputs))
        self._needed(plan, facts.get("tensors", ()), constants)
        if params is not None:
            for rule in facts.get("tensors_if", ()):
                if self._field(plan, params, rule["field"]) == rule["value"]:
                    self._needed(plan, rule["tensors"], constants)
            if "weights" in facts and inputs is not None:
                self._weights(plan, facts["weights"], inputs, params, constants)
        if plan.kind.name == "Constant":
            self._constant(outputs, constants.get("input"))

    def _field(self, plan: _Plan, params: Mapping[str, Any], path: str) -> Any:
        assert plan.kind.descriptor is not None
        return field_at(plan.kind.descriptor, params, path, self.schema)

    def _counted(self, plan: _Plan, params: Mapping[str, Any] | None, has: str, rule: Any, count: int) -> None:
        if isinstance(rule, str):
            if params is not None and count != (wanted := self._field(plan, params, rule)):
                self._say(f"it has {has}, and its {rule} is {wanted}")
        elif count not in (allowed := [rule] if isinstance(rule, int) else rule):
            self._say(f"it has {has}: {plan.kind.name} has {' or '.join(map(str, allowed))}")

    def _needed(self, plan: _Plan, needed: Iterable[str], constants: Mapping[str, Any]) -> None:
        for field in needed:
            if field not in constants:
                self._say(f"it lacks the constant {field!r}, which {plan.kind.name} needs")

    def _weights(
        self, plan: _Plan, where: str, inputs: int, params: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> None:
        """Weights and bias are members, or on input slots 1 and 2."""
        bias = bool(self._field(plan, params, "biasEnabled"))
        if where == "members" or (where == "either" and inputs == 1):
            self._needed(plan, ("weights", "biases") if bias else ("weights",), constants)
        elif "weights" in constants or "biases" in constants:
            self._say("it has weights both as constants and on input slot 1: take one of them away")
        elif self.schema.dialect != "current":
            self._say(f"the {self.schema.dialect} dialect has no weights on input slots: make them constants")
        elif inputs in (2, 3) and inputs != 2 + bias:
            says = "true: connect the bias to input slot 2" if bias else "false: input slot 2 is too many"
            self._say(f"it has {_count(inputs, 'input')}, and its biasEnabled is {says}")

    def _constant(self, outputs: tuple[Any, ...] | None, tensor: Any) -> None:
        info = outputs[0] if outputs else None
        if not isinstance(tensor, Tensor) or not isinstance(info, TensorInfo):
            return
        if self._tensor(tensor) is None and self._info(info) is None and info.elements != tensor.info.elements:
            self._say(f"its tensor has the shape {tensor.info.shape}, its output {info.shape}: the sizes differ")
