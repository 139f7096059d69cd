"""Accuracy of a digit classifier on held-out images, before and after fusing.

    python examples/evaluate_digits.py [MODEL] [--rules NAME] [--armnn-run PROGRAM]

Runs MODEL (``models/digits.armnn``) and what the rules make of it on the 360 images of
``digits_test.npz``, in NumPy, or in real Arm NN where a program is named that runs a model and
writes its outputs: PROGRAM --input image=FILE --out-dir DIR MODEL, raw Float32 in both files.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt
from interpreter import run

import fusion_engine as fe

HERE = Path(__file__).resolve().parent

Array = npt.NDArray[np.float32]


def load_test_set(path: Path = HERE / "digits_test.npz") -> tuple[Array, npt.NDArray[np.uint8]]:
    """Held-out images, float32 [N, 8, 8, 1] with values from 0 to 1, and their digits, uint8 [N]."""
    with np.load(path) as data:
        return (data["pixels"] / 16).astype(np.float32), data["labels"]


def run_armnn(program: Path, graph: nx.DiGraph[int], images: Array) -> Array:
    """Probabilities [N, 10] as real Arm NN gives them, one image at a time."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model, image = Path(folder) / "model.armnn", Path(folder) / "image.bin"
        fe.save(graph, model)
        for pixels in images:
            image.write_bytes(pixels.tobytes())
            subprocess.run(
                [program, "--input", f"image={image}", "--out-dir", folder, model], check=True, capture_output=True
            )
            rows.append(np.fromfile(Path(folder) / "out_0.bin", "<f4"))
    return np.stack(rows)


def main() -> None:
    """Print layers and accuracy before and after."""
    parser = argparse.ArgumentParser(description="Accuracy on held-out digits, before and after fusing.")
    parser.add_argument("model", nargs="?", type=Path, default=HERE / "models" / "digits.armnn")
    parser.add_argument("--rules", default="armnn", help="name or file of the rules (default: armnn)")
    parser.add_argument("--armnn-run", type=Path, metavar="PROGRAM", help="run in real Arm NN")
    options = parser.parse_args()

    images, labels = load_test_set()
    before = fe.load(options.model)
    after = fe.fuse(before, fe.load_rules(options.rules))
    results = []
    for title, graph in (("before", before), ("after", after)):
        if options.armnn_run:
            result = run_armnn(options.armnn_run, graph, images)
        else:
            result = run(graph, image=images)["probabilities"]
        right = int((result.argmax(1) == labels).sum())
        print(f"{title:>6}: {len(graph)} layers, {right} of {len(labels)} right, accuracy {right / len(labels):.2%}")
        results.append(result)
    print(f"largest difference of a probability: {np.abs(results[0] - results[1]).max():.0e}")


if __name__ == "__main__":
    main()
