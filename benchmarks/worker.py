"""One tool on one workload, in a process of its own: ``python -m benchmarks.worker TOOL ARGUMENT...``.

The last line of output is a JSON object: ``stages``, seconds by stage, and what the stages found.
Importing a tool, and a first use of it on a few layers, are no part of any stage.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusion_engine import FusingRule
    from fusion_engine.network import Network
    from fusion_engine.workspace import Workspace

__all__ = ["TOOLS", "main"]

TRIPLE = "Activation{BatchNormalization{Convolution2d}}"
"""What is searched for where tools are compared by their matching."""


class Stages:
    """Seconds by stage, from start to end and of processor time."""

    def __init__(self) -> None:
        self._times: dict[str, list[tuple[float, float]]] = {}

    def time(self, name: str, work: Callable[[], Any], repeats: int = 1, least: float = 0.0) -> Any:
        """The result of a work, whose time is noted; the median counts where there are several of a name.

        ``least`` is how many seconds a repeat must take: short works are done as often as that needs, since
        processor time is counted in ticks of several milliseconds.
        """
        times = self._times.setdefault(name, [])
        for _ in range(repeats):
            done, wall, cpu = 0, time.perf_counter(), time.process_time()
            while not done or time.perf_counter() - wall < least:
                result = work()
                done += 1
            times.append(((time.perf_counter() - wall) / done, (time.process_time() - cpu) / done))
        return result

    def answer(self, **found: Any) -> dict[str, Any]:
        """What the process says: its stages, and what it found.

        Of wall times of a stage the median counts, of processor times, which are counted in ticks, the mean.
        """
        walls = {name: statistics.median(wall for wall, _ in times) for name, times in self._times.items()}
        cpus = {name: statistics.fmean(cpu for _, cpu in times) for name, times in self._times.items()}
        return {"stages": walls, "cpu_stages": cpus, **found}


# Workloads


def prepare(name: str, layers: str, folder: str) -> dict[str, Any]:
    """Write a workload for all tools, and what its outputs are."""
    import numpy as np

    import fusion_engine as fe
    from benchmarks import workloads

    made = workloads.plan(name, int(layers))
    base = Path(folder) / f"{name}-{layers}"
    base.parent.mkdir(parents=True, exist_ok=True)
    fe.save(workloads.network(made), base.with_suffix(".armnn"))
    np.save(base.with_suffix(".npy"), np.concatenate(workloads.evaluate(made, workloads.image())))
    try:
        model = workloads.onnx_model(made)
    except ImportError:
        pass
    else:
        base.with_suffix(".onnx").write_bytes(model.SerializeToString())
    return {"layers": len(made.steps), "folds": made.folds}


def prepare_large(mebibytes: str, path: str) -> dict[str, Any]:
    """Write the network of large weights."""
    import fusion_engine as fe
    from benchmarks import workloads

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    fe.save(workloads.large_weights(int(mebibytes)), path)
    return {}


def _close(found: Any, expected: str) -> None:
    """Outputs must be those of the plan; float32 of deep networks is off by a few units in the last place a layer."""
    import numpy as np

    wanted = np.load(expected)
    error = float(np.abs(np.concatenate(found) - wanted).max() / np.abs(wanted).max())
    if not error < 1e-4:
        raise SystemExit(f"outputs differ from the workload's by {error:g} of the largest")


def check_network(path: str, expected: str) -> dict[str, Any]:
    """Layers that compute in an .armnn file, whose outputs must be the workload's."""
    import fusion_engine as fe
    from benchmarks import workloads

    graph = fe.load(path)
    _close(workloads.evaluate_network(graph, workloads.image()), expected)
    ends = ("Input", "Output", "Constant")
    return {"layers": sum(kind not in ends for _, kind in graph.nodes(data="type"))}


def check_onnx(path: str, expected: str) -> dict[str, Any]:
    """The same of an ONNX file, computed by onnxruntime without optimizations."""
    import numpy as np
    import onnx
    import onnxruntime

    from benchmarks import workloads

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    data = workloads.image().astype(np.float32).transpose(0, 3, 1, 2)
    _close([found.transpose(0, 2, 3, 1) for found in session.run(None, {"in": data})], expected)
    graph = onnx.load(path).graph
    fed, layers = {"in"}, 0
    for node in graph.node:  # what computes weights from initializers is no layer
        if not fed.isdisjoint(node.input):
            fed.update(node.output)
            layers += 1
    return {"layers": layers}


def check_armnn(path: str, expected: str, release: str) -> dict[str, Any]:
    """Layers that compute after the Optimize of a release of Arm NN, whose CpuRef must give the workload's outputs."""
    import numpy as np

    from benchmarks import workloads
    from tests.support.real_armnn import ArmnnFailed, locate

    real_armnn = locate()
    if isinstance(real_armnn, str):
        raise SystemExit(real_armnn)
    try:
        run = real_armnn.run(path, release, inputs={"in": workloads.image().astype(np.float32)})
        left = real_armnn.optimized(path, release)
    except ArmnnFailed as failed:
        raise SystemExit(str(failed)) from None
    _close([output.values for output in run.outputs], expected)
    return {"layers": left.total() - sum(left[kind] for kind in ("Input", "Output", "Constant", "MemCopy"))}


# This project


def _rules(names: str) -> list[FusingRule]:
    """The rules of a name.

    ``armnn`` are the rules that ship, ``batch-norm`` is that rule of them; after ``+`` comes the number of rules that
    do not match and are put before it.
    """
    import fusion_engine as fe
    from benchmarks.workloads import rule_texts

    name, _, more = names.partition("+")
    others = [fe.FusingRule(text, into=f"Other{place}") for place, text in enumerate(rule_texts(int(more or 0)))]
    rules = [rule for rule in fe.load_rules("armnn") if name in ("armnn", rule.name)]
    return others + rules


def _matches(workspace: Workspace, rule: FusingRule) -> int:
    """At how many layers of a network a rule matches."""
    from fusion_engine.match import compile_rule

    matcher = compile_rule(rule)
    roots = [root for kind in sorted(matcher.root_types) for root in workspace.of_type(kind)]
    return sum(1 for _ in matcher.first(workspace, roots))


def _warm_up() -> None:
    """Use everything once, on as many layers as it takes to be done in bulk: first uses are no part of a stage."""
    import fusion_engine as fe
    from benchmarks.workloads import chain

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "warm.armnn"
        fe.save(chain(300), path)
        fe.save(fe.fuse(fe.load(path), fe.load_rules("armnn")), path)


def ours(path: str, out: str, rules: str = "armnn") -> dict[str, Any]:
    """Load, fuse and save."""
    import fusion_engine as fe

    _warm_up()
    stages = Stages()
    chosen = _rules(rules)
    graph = stages.time("load", lambda: fe.load(path))
    fused = stages.time("fuse", lambda: fe.fuse(graph, chosen))
    stages.time("save", lambda: fe.save(fused, out))
    return stages.answer(fusions=len(fused.graph["fusions"]))


def ours_warm(path: str, out: str) -> dict[str, Any]:
    """Load, fuse and save in a process that has done the same before; the median of nine."""
    import fusion_engine as fe

    chosen, stages = _rules("armnn"), Stages()

    def work() -> int:
        fused = fe.fuse(fe.load(path), chosen)
        fe.save(fused, out)
        return len(fused.graph["fusions"])

    work()
    work()
    return stages.answer(fusions=stages.time("all", work, 9))


def ours_corpus(folder: str, out: str) -> dict[str, Any]:
    """Load, fuse and save of each model of a directory in one warm process, the median of three."""
    import fusion_engine as fe

    chosen, stages = _rules("armnn"), Stages()
    for path in sorted(Path(folder).rglob("*.armnn")):
        stages.time(str(path.relative_to(folder)), lambda path=path: fe.save(fe.fuse(fe.load(path), chosen), out), 3)
    return stages.answer()


def ours_rules(path: str, *counts: str) -> dict[str, Any]:
    """`fuse` with the batch-norm rule behind others that do not match, so many in all; in turn, the median of five."""
    import fusion_engine as fe

    _warm_up()
    graph = fe.load(path)
    sets = {count: _rules(f"batch-norm+{int(count) - 1}") for count in counts}
    stages, found = Stages(), set()
    for rules in sets.values():
        found.add(len(fe.fuse(graph, rules).graph["fusions"]))
    for _ in range(5):
        for count, rules in sets.items():
            stages.time(count, lambda rules=rules: fe.fuse(graph, rules))
    if len(found) != 1:
        raise SystemExit(f"numbers of fusions differ: {sorted(found)}")
    return stages.answer(fusions=found.pop())


def ours_match(path: str) -> dict[str, Any]:
    """Search the triple in a network that was walked over before: a Workspace of it, and the matching itself."""
    import fusion_engine as fe
    from fusion_engine.workspace import Workspace

    _warm_up()
    rule, graph, stages, matches = fe.FusingRule(TRIPLE, into="Triple"), fe.load(path), Stages(), 0
    _walk(graph)
    end = time.perf_counter() + 0.5
    while not matches or time.perf_counter() < end:
        workspace = stages.time("workspace", lambda: Workspace(graph, reading=True))
        matches = stages.time("match", lambda workspace=workspace: _matches(workspace, rule))
    return stages.answer(matches=matches)


# Limits


def _walk(graph: Network) -> int:
    """The triple, by look-ups through what NetworkX offers to everybody."""
    nodes, before = graph.nodes, graph.pred
    found = 0
    for key in nodes:
        if nodes[key]["type"] == "Activation":
            for norm in before[key]:
                if nodes[norm]["type"] == "BatchNormalization":
                    found += sum(nodes[conv]["type"] == "Convolution2d" for conv in before[norm])
    return found


def _bare_walk(graph: Network) -> int:
    """The triple, by look-ups in the plain dicts inside a DiGraph."""
    nodes, before = graph._node, graph._pred
    found = 0
    for key, node in nodes.items():
        if node["type"] == "Activation":
            for norm in before[key]:
                if nodes[norm]["type"] == "BatchNormalization":
                    for conv in before[norm]:
                        found += nodes[conv]["type"] == "Convolution2d"
    return found


def walk(path: str) -> dict[str, Any]:
    """The walk over a network that was walked over before."""
    return _walked(path, _walk)


def bare_walk(path: str) -> dict[str, Any]:
    """The same in the dicts inside."""
    return _walked(path, _bare_walk)


def _walked(path: str, work: Callable[[Network], int]) -> dict[str, Any]:
    import fusion_engine as fe

    graph, stages = fe.load(path), Stages()
    work(graph)
    return stages.answer(matches=stages.time("match", lambda: work(graph), 5, 0.1))


def read_write(path: str, out: str) -> dict[str, Any]:
    """Read a file and write the bytes."""
    stages = Stages()
    data = stages.time("load", lambda: Path(path).read_bytes())
    stages.time("save", lambda: Path(out).write_bytes(data))
    return stages.answer()


# Peers: on networks


def _types(path: str) -> Network:
    """The layers of a file that compute, as a DiGraph with ``type`` alone."""
    import networkx as nx

    import fusion_engine as fe

    graph: Network = nx.DiGraph()
    loaded = fe.load(path)
    graph.add_nodes_from((key, {"type": kind}) for key, kind in loaded.nodes(data="type"))
    graph.add_edges_from(loaded.edges)
    return graph


def networkx(path: str) -> dict[str, Any]:
    """Search the triple with NetworkX's VF2."""
    import networkx as nx
    from networkx.algorithms import isomorphism

    graph, stages = _types(path), Stages()
    pattern: Network = nx.DiGraph()
    for key, kind in enumerate(("Convolution2d", "BatchNormalization", "Activation")):
        pattern.add_node(key, type=kind)
    pattern.add_edges_from(((0, 1), (1, 2)))

    def work() -> int:
        same = isomorphism.categorical_node_match("type", None)
        matcher = isomorphism.DiGraphMatcher(graph, pattern, same)
        return sum(1 for _ in matcher.subgraph_monomorphisms_iter())

    return stages.answer(matches=stages.time("match", work))


def nncf(path: str) -> dict[str, Any]:
    """Search the triple with NNCF's matcher."""
    import networkx as nx
    from nncf.common.graph.graph_matching import find_subgraphs_matching_pattern
    from nncf.common.graph.patterns import GraphPattern

    found, stages = _types(path), Stages()
    graph = nx.MultiDiGraph()
    for key, kind in found.nodes(data="type"):
        graph.add_node(f"{key}", **{GraphPattern.METATYPE_ATTR: kind, GraphPattern.NODE_TYPE_ATTR: kind})
    graph.add_edges_from((f"{source}", f"{target}") for source, target in found.edges)
    pattern = GraphPattern()
    kinds = ("Convolution2d", "BatchNormalization", "Activation")
    keys = [pattern.add_node(**{GraphPattern.LABEL_ATTR: kind, GraphPattern.METATYPE_ATTR: [kind]}) for kind in kinds]
    pattern.add_edge(keys[0], keys[1])
    pattern.add_edge(keys[1], keys[2])
    matches = stages.time("match", lambda: find_subgraphs_matching_pattern(graph, pattern))
    return stages.answer(matches=len(matches))


# Peers: on ONNX models


def onnxscript(path: str, out: str) -> dict[str, Any]:
    """Fold batch norms with onnxscript's rewriter."""
    import onnx_ir
    from onnxscript.rewriter import rewrite

    rules = _onnxscript_rules()
    stages = Stages()
    model = stages.time("load", lambda: onnx_ir.load(path))
    result = stages.time("fuse", lambda: rewrite(model, rules))
    stages.time("save", lambda: onnx_ir.save(result, out))
    return stages.answer()


def _onnxscript_rules() -> Any:
    # The rules have no public name of their own; all of the public ones would do more than is compared.
    return importlib.import_module("onnxscript.rewriter.rules.common._fuse_batchnorm").rules


def onnxscript_match(path: str) -> dict[str, Any]:
    """Search the triple with onnxscript's rewriter."""
    import onnx_ir
    from onnxscript.rewriter import pattern

    def triple(op: Any, x: Any, w: Any, b: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
        conv = op.Conv(x, w, b)
        return op.Relu(op.BatchNormalization(conv, gamma, beta, mean, variance))

    model, stages = onnx_ir.load(path), Stages()
    rule = pattern.RewriteRule(triple, lambda op, **_: None)

    def work() -> int:
        return sum(bool(rule.match(model, model.graph, node)) for node in model.graph)

    return stages.answer(matches=stages.time("match", work))


def onnxruntime(path: str, out: str) -> dict[str, Any]:
    """onnxruntime's offline optimization at its basic level, from file to file."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = out
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    stages = Stages()
    providers = ["CPUExecutionProvider"]
    stages.time("all", lambda: runtime.InferenceSession(path, options, providers=providers))
    return stages.answer()


def onnxoptimizer(path: str, out: str) -> dict[str, Any]:
    """Fold batch norms with onnxoptimizer."""
    import onnx
    import onnxoptimizer as optimizer

    stages = Stages()
    model = stages.time("load", lambda: onnx.load(path))
    result = stages.time("fuse", lambda: optimizer.optimize(model, ["fuse_bn_into_conv"]))
    stages.time("save", lambda: onnx.save(result, out))
    return stages.answer()


def onnxsim(path: str, out: str) -> dict[str, Any]:
    """Simplify with onnxsim."""
    import onnx
    import onnxsim as simplifier

    stages = Stages()
    model = stages.time("load", lambda: onnx.load(path))
    result, _ = stages.time("fuse", lambda: simplifier.simplify(model))
    stages.time("save", lambda: onnx.save(result, out))
    return stages.answer()


def torch_fx(name: str, layers: str, expected: str) -> dict[str, Any]:
    """Fold batch norms with torch.fx, and check."""
    import numpy as np
    import torch
    from torch.fx.experimental.optimization import fuse

    from benchmarks import workloads

    torch.set_num_threads(1)
    module, stages = workloads.torch_module(workloads.plan(name, int(layers))), Stages()
    fused = stages.time("fuse", lambda: fuse(module))
    if int(layers) <= 10_000:
        with torch.no_grad():
            data = torch.from_numpy(workloads.image().astype(np.float32).transpose(0, 3, 1, 2).copy())
            _close([found.numpy().transpose(0, 2, 3, 1) for found in fused(data)], expected)
    left = sum(node.op in ("call_module", "call_function") for node in fused.graph.nodes)
    return stages.answer(layers=left)


TOOLS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "prepare-large": prepare_large,
    "check-network": check_network,
    "check-onnx": check_onnx,
    "check-armnn": check_armnn,
    "ours": ours,
    "ours-warm": ours_warm,
    "ours-corpus": ours_corpus,
    "ours-rules": ours_rules,
    "ours-match": ours_match,
    "walk": walk,
    "bare-walk": bare_walk,
    "read-write": read_write,
    "networkx": networkx,
    "nncf": nncf,
    "onnxscript": onnxscript,
    "onnxscript-match": onnxscript_match,
    "onnxruntime": onnxruntime,
    "onnxoptimizer": onnxoptimizer,
    "onnxsim": onnxsim,
    "torch.fx": torch_fx,
}


def main(arguments: list[str]) -> None:
    """Run a tool and print what it says; a package that is not there is told as such."""
    name, *rest = arguments
    try:
        answer = TOOLS[name](*rest)
    except ImportError as error:
        print(json.dumps({"error": f"not installed: {error.name or error}"}))
        raise SystemExit(1) from None
    sys.stdout.flush()
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # taking down a large network object by object is no part of what is measured


if __name__ == "__main__":
    main(sys.argv[1:])
