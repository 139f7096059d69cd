"""Ten rules on the SSD network, each broken in one small way: the first thing told is what is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusion_engine as fe
from fusion_engine.cli import main

SSD = "public/ssd_mobilenet_v3_small_coco_2019_08_14.armnn"

BROKEN = [
    # A rule that would fire if what stands in «» were right, and what is told of that.
    (
        'Activation[«activationFunction == "LeakyReLu"»]{BatchNormalization}',
        'activationFunction == "LeakyReLu" is false: it is "BoundedReLu"',
    ),
    (
        'Activation[activationFunction == "ReLu"]{BatchNormalization{«Convolution3d»}}',
        "it is no Convolution3d: it is a DepthwiseConvolution2d",
    ),
    (
        "BatchNormalization[«eps > 1»]{Convolution2d|DepthwiseConvolution2d}",
        "eps > 1 is false: it is 0.001",
    ),
    (
        "Activation{BatchNormalization{DepthwiseConvolution2d[«stride == 3x3»]}}",
        "stride == 3x3 is false: it is 2x2",
    ),
    (
        "Activation{Addition{BatchNormalization, «Constant»}}",
        "it is no Constant: it is a Reshape",
    ),
    (
        "Multiplication{Activation{Addition}, «Pooling2d»}",
        "it is no Pooling2d: it is a BatchNormalization",
    ),
    (
        "BatchNormalization{Convolution2d[kernel == 1x1 && «channels > 5000»]}",
        "channels > 5000 is false: it is 16",
    ),
    (
        'DepthwiseConvolution2d[kernel.w == 3]{Activation[«activationFunction == "TanH"»]}',
        'activationFunction == "TanH" is false: it is "ReLu"',
    ),
    (
        "«nchw|BatchNormalization{Convolution2d{Activation}}»",
        "its dataLayout is NHWC, not NCHW",
    ),
    (
        "«Concat{Reshape:2~3}»",
        "it has 6 data inputs, of which the pattern takes 3",
    ),
]


@pytest.mark.parametrize(("marked", "told"), BROKEN, ids=range(1, len(BROKEN) + 1))
def test_the_first_line_names_what_is_broken(
    marked: str, told: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = marked.replace("«", "").replace("»", "")
    file = tmp_path / "broken.rules"
    file.write_text(f"{text}\n", "utf-8")
    assert main(["explain", "--rules", str(file), str(corpus / SSD)]) == 0
    first, shown, carets = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith(f"{fe.FusingRule(text).name}: layer ")
    assert first.endswith(f": {told}")
    assert shown == f"    {text}"
    start, end = marked.index("«"), marked.index("»") - 1
    assert carets == f"    {' ' * start}{'^' * (end - start)}"
