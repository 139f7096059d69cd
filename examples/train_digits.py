"""Train a small classifier of handwritten digits and write it as an .armnn file, batch norms and all.

    python -m pip install torch scikit-learn
    python examples/train_digits.py

The data are the 1,797 images of 8x8 pixels that come with scikit-learn; a fifth of them, the same
share of every digit, is held out. Writes ``models/digits.armnn`` and, for ``evaluate_digits.py``,
the held-out images as ``digits_test.npz``.
"""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt
import torch
from chain import Chain
from interpreter import run
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import fusion_engine as fe

HERE = Path(__file__).resolve().parent
EPOCHS, BATCH, RATE, SEED = 12, 32, 0.01, 20

Array = npt.NDArray[np.float32]


def block(inputs: int, outputs: int) -> list[nn.Module]:
    """Convolution, batch norm, ReLU."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def classifier() -> nn.Sequential:
    """The network as PyTorch sees it (NCHW)."""
    return nn.Sequential(
        *block(1, 16),
        *block(16, 32),
        nn.MaxPool2d(2),
        *block(32, 32),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def train(images: Array, labels: npt.NDArray[np.int64]) -> nn.Sequential:
    """Train on images [N, 8, 8, 1] with values from 0 to 1."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    model = classifier()
    x, y = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), torch.from_numpy(labels)
    steps = EPOCHS * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1}: mean loss {total / len(x):.4f}")
    return model.eval()


def convert(model: nn.Sequential) -> nx.DiGraph[int]:
    """The trained network as an Arm NN network for one image, [1, 8, 8, 1]."""
    chain = Chain((1, 8, 8, 1), "image")
    name = ""
    for number, layer in enumerate(model):
        tensors = {field: tensor.numpy() for field, tensor in layer.state_dict().items()}
        if isinstance(layer, nn.Conv2d):
            name = f"conv{number}"
            ohwi = tensors["weight"].transpose(0, 2, 3, 1)
            chain.convolution(name, ohwi, padding=(1, 1, 1, 1))
        elif isinstance(layer, nn.BatchNorm2d):
            chain.batch_norm(
                f"{name}/batch_norm",
                mean=tensors["running_mean"],
                variance=tensors["running_var"],
                beta=tensors["bias"],
                gamma=tensors["weight"],
                eps=layer.eps,
            )
        elif isinstance(layer, nn.ReLU):
            chain.relu(f"{name}/relu")
        elif isinstance(layer, nn.MaxPool2d):
            chain.pool(f"max{number}", "Max", (2, 2), 2)
        elif isinstance(layer, nn.AvgPool2d):
            chain.pool(f"mean{number}", "Average", (4, 4), 4)
        elif isinstance(layer, nn.Flatten):
            chain.flatten("features")  # 1 x 1 pixel is left, so NCHW and NHWC flatten alike
        else:
            name = f"dense{number}"
            chain.fully_connected(name, tensors["weight"], tensors["bias"])
    chain.softmax("softmax")
    return chain.output("probabilities")


def main() -> None:
    """Train, convert, check that nothing was lost, write."""
    data = load_digits()
    pixels = data.images.astype(np.uint8)[..., np.newaxis]
    labels = data.target.astype(np.int64)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=360, stratify=labels, random_state=SEED
    )
    model = train((train_pixels / 16).astype(np.float32), train_labels)

    images = (test_pixels / 16).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).softmax(1).numpy()
    right = int((expected.argmax(1) == test_labels).sum())
    print(f"accuracy on held-out images in PyTorch: {right}/{len(images)} = {right / len(images):.2%}")

    graph = convert(model)
    found = run(graph, image=images)["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    fe.save(graph, HERE / "models" / "digits.armnn")
    np.savez_compressed(HERE / "digits_test.npz", pixels=test_pixels, labels=test_labels.astype(np.uint8))


if __name__ == "__main__":
    main()
