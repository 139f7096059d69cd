"""The gate: what a run fails on, what a baseline excuses, exit codes, and the hooks for pre-commit."""

from __future__ import annotations

import json
import shlex
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fusion_engine as fe
from fusion_engine import Fusion, LayerRef, Refusal
from fusion_engine.cli import main
from fusion_engine.gate import KINDS, Baseline, Gate, name_below
from fusion_engine.report import ModelReport, Report
from fusion_engine.usage import Wrong
from tests.support.nets import Net
from tests.support.pages import DOCS, ROOT, blocks

NORM = LayerRef(4, "norm", "BatchNormalization")


def refused(*refusals: tuple[str, LayerRef, str], path: str = "zoo/a.armnn") -> ModelReport:
    return ModelReport(path, "unchanged", refusals=tuple(Refusal(*one) for one in refusals))


def failed(path: str = "zoo/a.armnn", reason: str = "is damaged") -> ModelReport:
    return ModelReport(path, "failed", error=f"{path}: {reason}")


def judge(now: Sequence[ModelReport], then: Sequence[ModelReport], folder: Path, directory: str = "zoo") -> Gate:
    """What becomes of a run ``now`` with a baseline of ``then``."""
    path = folder / "known.json"
    path.write_text(Report(models=list(then), paths=["zoo"]).text(), "ascii")
    return passed(Report(models=list(now)).entries, [directory], KINDS, Baseline(str(path)))


def passed(
    models: Iterable[Mapping[str, Any]], given: Sequence[str], fail_on: Sequence[str], known: Baseline | None = None
) -> Gate:
    """A gate after some models."""
    gate = Gate(given, fail_on, known)
    for model in models:
        gate.add(model)
    return gate


@pytest.mark.parametrize(
    ("path", "directories", "name"),
    [
        ("zoo/v/a.armnn", ["zoo"], "v/a.armnn"),
        ("zoo/v/a.armnn", ["./zoo//"], "v/a.armnn"),
        ("zoo//v/../a.armnn", ["other", "zoo"], "a.armnn"),
        ("zoo/v/a.armnn", ["zoo/v", "zoo"], "a.armnn"),
        ("zoo/v/a.armnn", ["zoo/v/a.armnn"], "a.armnn"),
        ("zoology/a.armnn", ["zoo"], "a.armnn"),
        ("./v/a.armnn", ["."], "v/a.armnn"),
        ("../v/a.armnn", [".", ".."], "v/a.armnn"),
        ("/zoo/v/a.armnn", ["."], "a.armnn"),
        ("/zoo/v/a.armnn", ["/"], "zoo/v/a.armnn"),
        ("s3://bucket/zoo/v/a.armnn", ["s3://bucket/zoo"], "v/a.armnn"),
        ("zoo/v/a.armnn", [], "a.armnn"),
    ],
)
def test_names(path: str, directories: list[str], name: str) -> None:
    assert name_below(path, directories) == name


def test_kinds() -> None:
    """Findings in the order of models; the gate trips on those of the kinds that were asked for."""
    checked = Fusion("into", "X", (NORM,))
    models = Report(
        models=[
            failed("b"),
            ModelReport("c", "fused", fusions=(checked,), refusals=(Refusal("r", NORM, "why"),)),
            ModelReport("d", "unchanged"),
        ]
    ).as_json()["models"]
    models[1]["fusions"][0]["verification"] = {"status": "unverified", "reason": "no meaning"}
    gate = passed(models, [], ["unverified", "failed", "failed"])
    found = passed(models, [], KINDS).tripped
    assert [(one.kind, one.model, one.path, one.rule, one.reason) for one in found] == [
        ("failed", 0, "b", None, "is damaged"),
        ("changed", 1, "c", None, None),
        ("refused", 1, "c", "r", "why"),
        ("unverified", 1, "c", "into", "no meaning"),
    ]
    assert gate.fail_on == ("failed", "unverified")
    assert [one.kind for one in gate.tripped] == ["failed", "unverified"]
    assert gate.tripped[1].words == "into at layer 4 'norm': no meaning"


def test_a_known_refusal_is_told_by_rule_and_layer(tmp_path: Path) -> None:
    known = refused(("r", NORM, "because of layer 3"))
    moved = LayerRef(17, "norm", "BatchNormalization")
    assert judge([known], [known], tmp_path).tripped[:] == []
    assert judge([refused(("r", moved, "because of layer 16"))], [known], tmp_path).tripped[:] == []
    for other in (("s", NORM, "because of layer 3"), ("r", LayerRef(4, "norm2", NORM.type), "because of layer 3")):
        gate = judge([refused(other)], [known], tmp_path)
        assert [one.kind for one in gate.tripped] == ["refused"]
        assert gate.gone == 1


def test_one_excuses_one(tmp_path: Path) -> None:
    """Layers may have one name, or none: the third of three is new where two are known."""
    nameless = ("r", LayerRef(1, "", "Activation"), "why")
    gate = judge([refused(nameless, nameless, nameless)], [refused(nameless, nameless)], tmp_path)
    assert (len(gate.known), len(gate.tripped), gate.gone) == (2, 1, 0)
    gate = judge([refused(nameless)], [refused(nameless, nameless)], tmp_path)
    assert (len(gate.known), len(gate.tripped), gate.gone) == (1, 0, 1)


def test_a_known_failure_is_told_by_its_model(tmp_path: Path) -> None:
    assert not judge([failed()], [failed(reason="is damaged otherwise")], tmp_path).failed
    assert judge([failed("zoo/b.armnn")], [failed()], tmp_path).failed
    gate = judge([refused(("r", NORM, "why"))], [failed()], tmp_path)
    assert [one.kind for one in gate.tripped] == ["refused"], "what a model that failed was refused was not known"
    assert gate.gone == 1


def test_a_change_is_never_known(tmp_path: Path) -> None:
    fused = ModelReport("zoo/a.armnn", "fused")
    assert [one.kind for one in judge([fused], [fused], tmp_path).tripped] == ["changed"]


def test_models_are_told_by_path_then_by_name_below_what_was_given(tmp_path: Path) -> None:
    then = [failed("zoo/v/a.armnn"), failed("zoo/w/a.armnn")]
    assert not judge([failed("/build/7/zoo/w/a.armnn")], then, tmp_path, "/build/7/zoo").failed
    assert judge([failed("/build/7/zoo/x/a.armnn")], then, tmp_path, "/build/7/zoo").failed
    assert not judge([failed("./zoo/w/a.armnn")], then, tmp_path, "zoo/w").failed, "one path"
    assert judge([failed("a.armnn")], then, tmp_path, "a.armnn").failed
    path = tmp_path / "known.json"
    path.write_text(Report(models=then, paths=[one.path for one in then]).text(), "ascii")
    models = Report(models=[failed("elsewhere/a.armnn")]).as_json()["models"]
    assert passed(models, ["elsewhere"], KINDS, Baseline(str(path))).failed, "which of the two would it be?"


def test_what_is_gone_is_told_of_the_models_of_the_run(tmp_path: Path) -> None:
    then = [failed("zoo/a.armnn"), failed("zoo/b.armnn"), refused(("r", NORM, "why"), path="zoo/c.armnn")]
    gate = judge([ModelReport("zoo/a.armnn", "unchanged"), failed("zoo/d.armnn")], then, tmp_path)
    assert gate.gone == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"report_version": 2, "models": []}',
        '{"report_version": 1}',
        '{"report_version": 1, "models": 3}',
        '{"report_version": 1, "models": [3]}',
        '{"report_version": 1, "models": [{"path": "a"}]}',
        '{"report_version": 1, "models": [{"path": 3, "status": "x", "error": "", "refusals": [], "fusions": []}]}',
        '{"report_version": 1, "models": [{"path": "a", "status": "x", "refusals": [3], "fusions": []}]}',
        '{"report_version": 1, "paths": 3, "models": []}',
        '{"path": "a"}\n{"path": "b"}\n',
        "[" * 100_000,
    ],
)
def test_what_is_no_report_is_no_baseline(text: str, tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text(text, "utf-8")
    with pytest.raises(Wrong) as caught:
        Baseline(str(path))
    assert caught.value.texts[0].endswith("is no report of this version: write one with --report FILE.json")


def test_a_baseline_of_a_large_run_is_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    told = {"20.02": ["x" * 30_000]}
    models = [{**failed(f"zoo/{number}.armnn").as_json(), "cannot_load": told} for number in range(200)]
    document = {**Report(paths=["zoo"]).as_json(), "models": models}
    path.write_text(json.dumps(document, indent=2), "ascii")
    del document, models
    tracemalloc.start()
    try:
        known = Baseline(str(path))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 6_000_000
    assert most < 1_500_000
    assert not passed([failed("zoo/199.armnn").as_json()], ["zoo"], KINDS, known).failed


def test_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", "\0"):
        with pytest.raises(Wrong) as caught:
            Baseline(str(path))
        assert "cannot be read: " in caught.value.texts[0]


# The command


def network(refuse: bool) -> bytes:
    """A batch norm that is folded, or one that is refused since its convolution is used elsewhere too."""
    net = Net()
    conv = net.conv(net.input((1, 2, 2, 1), name="x"), weights=[[[[2.0]]]], name="conv")
    net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name="norm"))
    if refuse:
        net.output(net.activation(conv))
    return fe.dumps(net.graph)


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``zoo/``: one model that folds."""
    monkeypatch.chdir(tmp_path)
    Path("zoo").mkdir()
    Path("zoo/folds.armnn").write_bytes(network(refuse=False))
    return Path("zoo")


RUN = ("fuse", "zoo", "--only", "batch-norm", "-q")


def test_exit_codes(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = (*RUN, "--dry-run")
    assert main([*dry]) == 0
    assert main([*dry, "--fail-on", "failed", "--fail-on", "refused"]) == 0
    assert main([*dry, "--fail-on", "changed"]) == 3
    (zoo / "bad.armnn").write_bytes(b"bad")
    assert main([*dry]) == 1
    assert main([*dry, "--fail-on", "refused"]) == 1
    assert main([*dry, "--fail-on", "failed"]) == 3
    (zoo / "refused.armnn").write_bytes(network(refuse=True))
    capsys.readouterr()
    assert main([*dry, "--fail-on", "refused", "--fail-on", "failed"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "fusion-engine: new: failed: zoo/bad.armnn: the root table: 3 bytes are too few for an .armnn file",
        "fusion-engine: new: refused: zoo/refused.armnn: batch-norm at layer 3 'norm': "
        "layer 2 'conv' is used elsewhere too: layer 4 'activation_5' reads it",
        "fusion-engine: --fail-on: 1 failed, 1 refused",
    ]


def test_results_are_written_all_the_same(zoo: Path) -> None:
    """The gate looks at what was done, also by an earlier run."""
    (zoo / "refused.armnn").write_bytes(network(refuse=True))
    for _ in range(2):
        assert main([*RUN, "--out", "out", "--fail-on", "changed"]) == 3
        assert main([*RUN, "--out", "out", "--fail-on", "refused"]) == 3
        assert sorted(path.name for path in Path("out").glob("*.armnn")) == ["folds.armnn", "refused.armnn"]


def test_a_ratchet(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is known passes, what is new does not, and what is gone is told."""
    (zoo / "bad.armnn").write_bytes(b"bad")
    (zoo / "refused.armnn").write_bytes(network(refuse=True))
    gates = ("--fail-on", "failed", "--fail-on", "refused", "--baseline", "known.json")
    assert main([*RUN, "--out", "out", "--report", "known.json"]) == 1
    assert main([*RUN, "--out", "out", "--baseline", "known.json"]) == 0
    assert main([*RUN, "--out", "out", *gates, "--report", "now.json"]) == 0
    gate = json.loads(Path("now.json").read_text("ascii"))["gate"]
    assert [one["kind"] for one in gate.pop("known")] == ["failed", "refused"]
    assert gate == {"fail_on": ["failed", "refused"], "baseline": "known.json", "tripped": [], "gone": 0}
    (zoo / "worse.armnn").write_bytes(b"worse")
    assert main([*RUN, "--out", "out", "--baseline", "known.json"]) == 1
    assert main([*RUN, "--out", "out", *gates]) == 3
    (zoo / "worse.armnn").unlink()
    (zoo / "bad.armnn").write_bytes(network(refuse=False))
    capsys.readouterr()
    assert main([*RUN, "--out", "out", *gates]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "fusion-engine: known from the baseline: 1 finding; gone since: 1: write it anew with --report FILE.json",
        "fusion-engine: --fail-on: 0 failed, 0 refused",
    ]
    Path("elsewhere").mkdir()
    zoo.rename("elsewhere/zoo")
    assert main(["fuse", "elsewhere/zoo", "--only", "batch-norm", "--dry-run", *gates]) == 0


def test_other_commands(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "zoo", "--release", "23.08", "--dry-run", "--fail-on", "changed"]) == 0
    assert main(["convert", "zoo", "--release", "20.08", "--dry-run", "--fail-on", "changed"]) == 3
    assert main(["unfuse", "zoo", "--dry-run", "--fail-on", "changed", "--report", "r.xml"]) == 0
    assert 'name="unfuse" tests="1"' in Path("r.xml").read_text("utf-8")
    for command in (["convert", "zoo", "--release", "20.08"], ["unfuse", "zoo"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, "--dry-run", "--fail-on", "refused"])
        assert caught.value.code == 2


def test_a_report_that_cannot_be_written(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other reports are written, and the gate is still heard."""

    def full(path: str, parts: Any) -> None:
        if path.endswith(".json"):
            raise fe.OutputError(f"{path}: cannot be written: No space left on device")
        Path(path).write_bytes(b"".join(parts))

    monkeypatch.setattr("fusion_engine.armnn.files.write_atomically", full)
    reports = ("--report", "r.json", "--report", "r.csv")
    assert main([*RUN, "--dry-run", *reports]) == 1
    assert Path("r.csv").read_text("utf-8").startswith("path,output,status")
    assert main([*RUN, "--dry-run", *reports, "--fail-on", "changed"]) == 3


def test_hooks(zoo: Path, tmp_path: Path) -> None:
    """Both do what they say, as pre-commit runs them: the entry, then the files."""
    yaml = pytest.importorskip("yaml", reason="there is no PyYAML, which mkdocs brings")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    entries = {hook["id"]: shlex.split(hook["entry"]) for hook in hooks}
    assert list(entries) == ["fusion-engine", "fusion-engine-lint"]
    assert {entry[0] for entry in entries.values()} == {"fusion-engine"}
    fuse, lint = entries["fusion-engine"][1:], entries["fusion-engine-lint"][1:]
    assert main([*fuse, "zoo/folds.armnn"]) == 3
    main(["fuse", "zoo", "--out", "fused"])
    assert main([*fuse, "fused/folds.armnn"]) == 0
    (tmp_path / "bad.armnn").write_bytes(b"bad")
    assert main([*fuse, "fused/folds.armnn", "bad.armnn"]) == 3
    (tmp_path / "mine.rules").write_text("syntax 2\n", "utf-8")
    assert main([*lint, "mine.rules"]) == 2


def test_the_job_of_the_documentation(zoo: Path) -> None:
    """Its command runs, passes with what is known, trips on what is new, and writes what the job keeps."""
    yaml = pytest.importorskip("yaml", reason="there is no PyYAML, which mkdocs brings")
    (text,) = [block.text for block in blocks(DOCS / "howto" / "batch.md") if block.title == "models.yml"]
    steps = yaml.safe_load(text)["jobs"]["models"]["steps"]
    (command,) = [shlex.split(step["run"]) for step in steps if step.get("run", "").startswith("fusion-engine")]
    (zoo / "bad.armnn").write_bytes(b"bad")
    assert main(["fuse", "zoo", "--dry-run", "--report", "known.json"]) == 1
    assert main(command[1:]) == 0
    assert all(Path(name).stat().st_size for name in steps[-1]["with"]["path"].split())
    (zoo / "worse.armnn").write_bytes(b"bad")
    assert main(command[1:]) == 3


NAMES = st.sampled_from(["", "a", "b"])
REFUSED = st.lists(
    st.builds(Refusal, NAMES, st.builds(LayerRef, st.integers(0, 3), NAMES, NAMES), st.text(max_size=3)), max_size=4
)
MODELS = st.lists(
    st.builds(
        lambda path, bad, refusals: failed(path) if bad else ModelReport(path, "fused", refusals=tuple(refusals)),
        st.sampled_from(["zoo/a", "zoo/b", "zoo/c/a", "d"]),
        st.booleans(),
        REFUSED,
    ),
    max_size=6,
)


@given(MODELS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_has_nothing_new_beside_itself(tmp_path: Path, models: list[ModelReport]) -> None:
    gate = judge(models, models, tmp_path)
    assert {finding.kind for finding in gate.tripped} <= {"changed"}
    assert gate.gone == 0


@given(MODELS, MODELS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_finding_is_new_or_known_and_excused_once(
    tmp_path: Path, now: list[ModelReport], then: list[ModelReport]
) -> None:
    gate = judge(now, then, tmp_path)
    alone = passed(Report(models=now).entries, ["zoo"], KINDS).tripped
    assert sorted(map(repr, (*gate.tripped, *gate.known))) == sorted(map(repr, alone))
    known = passed(Report(models=then).entries, ["zoo"], KINDS).tripped
    assert not Counter(finding.key for finding in gate.known) - Counter(finding.key for finding in known)
