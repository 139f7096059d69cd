"""Time load, fuse and save over the shared workloads: ``python -m benchmarks.run``.

Medians of several runs in this process, in milliseconds; slopes on log-log between sizes, and the
ratio that tells whether constant data is moved as blocks (64 MiB against 1 MiB, to stay below 100).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import fusion_engine as fe
from benchmarks.workloads import chain, weights

SIZES = (1_000, 3_000, 10_000)


def median(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall time in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def chains() -> None:
    """The stages on Conv-BatchNorm-ReLU chains, with their slopes."""
    rules = fe.load_rules("armnn")
    stages: dict[str, list[float]] = {"load": [], "fuse": [], "save": []}
    for size in SIZES:
        data = fe.dumps(chain(size))
        graph = fe.loads(data)
        fused = fe.fuse(graph, rules)
        assert len(fused.graph["fusions"]) == size // 3
        stages["load"].append(median(lambda data=data: fe.loads(data)))  # type: ignore[misc]
        stages["fuse"].append(median(lambda graph=graph: fe.fuse(graph, rules)))  # type: ignore[misc]
        stages["save"].append(median(lambda fused=fused: fe.dumps(fused)))  # type: ignore[misc]
    print("chain".ljust(8), *(f"{size:>10,}" for size in SIZES), "     slope")
    for stage, times in stages.items():
        slope = math.log(times[-1] / times[0]) / math.log(SIZES[-1] / SIZES[0])
        print(stage.ljust(8), *(f"{t:>10.1f}" for t in times), f"{slope:>10.2f}")


def blocks() -> None:
    """Load and save of large constants."""
    times = []
    for size in (1, 64):
        data = fe.dumps(weights(size))
        times.append(median(lambda data=data: fe.dumps(fe.loads(data)), 9))  # type: ignore[misc]
    print(f"\n1 MiB {times[0]:.2f} ms, 64 MiB {times[1]:.2f} ms: ratio {times[1] / times[0]:.0f}")


if __name__ == "__main__":
    chains()
    blocks()
