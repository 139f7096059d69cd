"""Fuzz a target with atheris.

    python -m tests.fuzz model --runs 1000000 --corpus /tmp/corpus/model --found /tmp/found

An execution that raises, takes more than ``--timeout`` seconds, or makes the process larger than
``--memory`` MiB ends the run; its input lies in ``--found``. Options of libFuzzer may follow ``--``.
What was found and mended is kept in ``tests/fuzz/found``, for the tests to run again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

import atheris

NAMES = ("model", "text", "rule_file", "fuse")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz a target with atheris.")
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=0, help="end after so many seconds (0: never)")
    parser.add_argument("--corpus", type=Path, required=True, help="directory that seeds and finds of new paths go to")
    parser.add_argument("--found", type=Path, required=True, help="directory for inputs that fail")
    parser.add_argument("--timeout", type=int, default=10, help="seconds that an execution may take")
    parser.add_argument("--memory", type=int, default=1024, help="MiB that the process may have")
    parser.add_argument("--length", type=int, default=4096, help="bytes of the longest input")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    warnings.simplefilter("error")
    with atheris.instrument_imports(include=["fusion_engine"]):
        import fusion_engine

        # All of it now, since modules that are imported later would not be watched.
        for module in pkgutil.walk_packages(fusion_engine.__path__, "fusion_engine."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        from tests.fuzz.seeds import SEEDS
        from tests.fuzz.targets import TARGETS

    for folder in (options.corpus, options.found):
        folder.mkdir(parents=True, exist_ok=True)
    for data in SEEDS[options.target]():
        (options.corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    arguments = [
        sys.argv[0],
        str(options.corpus),
        f"-runs={options.runs}",
        f"-timeout={options.timeout}",
        f"-rss_limit_mb={options.memory}",
        f"-max_len={options.length}",
        f"-seed={options.seed}",
        f"-artifact_prefix={options.found}/{options.target}-",
        "-print_final_stats=1",
    ]
    if options.seconds:
        arguments.append(f"-max_total_time={options.seconds}")
    atheris.Setup(arguments, TARGETS[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
