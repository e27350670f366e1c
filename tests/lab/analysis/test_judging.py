"""Who is ahead of whom, which rivals count, and the command from weights to report."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.features import save_untrained

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.analysis import judge_maps, judging
from tembed.lab.analysis.attributions import ATTRIBUTIONS
from tembed.lab.analysis.judging import MEASURES, Comparison, Row, Sizes, compare, interval, judge, marked
from tembed.lab.data import catalogue
from tembed.lab.data.catalogue import Dataset
from tembed.lab.data.parts import CLASSES, OWNERS, draw, generate


def row(model: str, explanation: str, values: list[float], seed: int = 0, accuracy: float = 0.95) -> Row:
    measured = {"energy": np.array(values), "deletion": np.array(values)}
    return Row(f"{model}-{seed}", model, seed, accuracy, explanation, "answer", measured, None, 0.5, 1.0)


def test_an_interval_is_that_of_students_t() -> None:
    mean, low, high = interval(np.array([1.0, 2.0, np.nan, 3.0]))
    assert (mean, round(high - mean, 4), round(mean - low, 4)) == (2, 2.4841, 2.4841)  # 4.3027 / sqrt(3)
    assert interval(np.array([np.nan, 2.0])) == (2, -np.inf, np.inf), "one value shows nothing"


def test_ahead_means_above_zero_in_each_seed() -> None:
    sure, unsure, negative = (0.2, 0.1, 0.3), (0.1, -0.1, 0.3), (-0.2, -0.3, -0.1)
    assert Comparison("energy", "x", (sure, sure, sure)).verdict == "ahead"
    assert Comparison("energy", "x", (sure, unsure, sure)).verdict == "level"
    assert Comparison("energy", "x", (negative, negative)).verdict == "behind"
    assert Comparison("energy", "x", (sure, negative)).verdict == "level"


def test_our_map_is_compared_by_pairs_with_rivals_of_the_same_seed() -> None:
    base = np.linspace(0, 1, 20)
    rows = [
        *(row("rn26-embed", "softmax x cam", (base + 0.1).tolist(), seed) for seed in (0, 1)),
        *(row("rn26-embed", "softmax", (base + 0.5).tolist(), seed) for seed in (0, 1)),
        *(row("rn26-embed", "random", (base + 0.001 * np.arange(20)).tolist(), seed) for seed in (0, 1)),
        row("rn26", "cam", (base + 0.2).tolist(), 0),
    ]
    found = {(one.measure, one.rival): one for one in compare(rows, "rn26-embed", "softmax x cam")}
    assert {rival for _, rival in found} == {"random", "cam of rn26"}, "the block's other maps are no rivals"
    assert found["energy", "random"].verdict == "ahead", "by pairs, small gaps count"
    assert len(found["energy", "random"].intervals) == 2
    assert found["energy", "cam of rn26"].verdict == "behind"
    assert found["deletion", "cam of rn26"].verdict == "ahead", "lower is better"
    assert found["energy", "cam of rn26"].intervals[0][0] == pytest.approx(-0.1)
    with pytest.raises(TembedError, match="`ours` is 'occlusion'"):
        compare(rows, "rn26-embed", "occlusion")


def test_an_inaccurate_network_is_no_rival() -> None:
    rows = [
        row("rn26-embed", "softmax x cam", [0.1, 0.2, 0.3], accuracy=0.96),
        row("rn26", "cam", [0.2, 0.3, 0.4], accuracy=0.95),
        row("rn26-aux", "cam", [0.2, 0.3, 0.4], accuracy=0.925),
    ]
    found = marked(rows)
    assert [one.competitive for one in found] == [True, True, False]
    assert {one.rival for one in compare(found, "rn26-embed", "softmax x cam")} == {"cam of rn26"}


@pytest.mark.slow
def test_the_command_judges_and_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Dataset("toys", classes=CLASSES, generate=partial(generate, 120, size=8), draw=draw, owners=OWNERS)
    monkeypatch.setitem(catalogue._RECORDS, "toys", record)
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(judge_maps, "TIMED", 1)
    run, out = save_untrained(tmp_path / "w.safetensors", "rn26-embed", "toys", CLASSES, 8), tmp_path / "out"
    assert main(["judge", str(run), "--images-per-class", "2", "--out", str(out), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "softmax x gradient of rn26-embed on toys: 20 images, 1 seed" in said
    found = json.loads((out / "judge.json").read_text("utf-8"))
    assert {name for one in found["rows"] for name in one["measures"]} == set(MEASURES)
    assert {one["explanation"] for one in found["rows"]} == set(ATTRIBUTIONS)
    assert found["seeds"] == [0]
    for one in found["rows"]:
        assert one["measures"]["correctness"]["n"] + one["measures"]["correctness"]["dropped"] == 20
        if one["explanation"] == "area":
            assert one["measures"]["over area"]["mean"] == 0
            assert one["measures"]["TS"]["mean"] == 0.5
    report = (out / "report.md").read_text("utf-8")
    assert "Caution: the network was trained on whole images only" in report


@pytest.mark.usefixtures("use_worlds")
def test_data_without_a_way_to_remove_parts_is_judged_by_cells_and_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rival = (save_untrained(tmp_path / f"{m}.safetensors", m, "dots", CLASSES, 8) for m in ("rn20", "rn26"))
    monkeypatch.setattr(
        judging, "available", lambda network: [ATTRIBUTIONS[name] for name in ("halfway gradient", "random")]
    )
    found = judge([run], [rival], sizes=Sizes(2, 2, 2, 2, 1, 4))
    assert {name for row in found.rows for name in row.values} == {
        *("grid", "cells", "deletion", "insertion", "sanity all", "sanity top")
    }
    assert [(row.model, row.explanation) for row in found.rows] == [
        *(("rn20", "halfway gradient"), ("rn20", "random"), ("rn26", "halfway gradient"))
    ], "null explanations appear once"
    assert "random" in {one.rival for one in found.comparisons}
    with pytest.raises(TembedError, match="other classes"):
        judge([run], [save_untrained(tmp_path / "x.safetensors", "rn26", "dots", CLASSES[:4], 8)])
