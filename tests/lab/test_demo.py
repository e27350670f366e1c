"""The demo trains two networks and writes the ordinary analysis and the ordinary report."""

import io
import json
from pathlib import Path

import pytest
from support.datasets import store_world

from tembed.common.progress import Lines
from tembed.lab.demo import Demo, run_demo
from tembed.lab.training.run import Run


@pytest.mark.slow
def test_the_demo_ends_with_both_accuracies_and_both_pages(
    tmp_path: Path, quick_analysis: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_world(tmp_path / "datasets", "tiny", 200, 16)
    demo, out = Demo(epochs=2, train_images=60, images_per_class=4, data="tiny"), tmp_path / "out"
    *accuracies, caution, analysis, report, page = run_demo(demo, out, root=tmp_path / "datasets").splitlines()
    for line, model in zip(accuracies, ("rn26", "rn26-embed"), strict=True):
        result = Run.open(out / model).result
        assert result is not None
        assert line.split()[0] == model
        assert f"test accuracy {100 * result['test_accuracy']:.1f} % (40 images, one seed)" in line
    assert "one seed each" in caution
    for line, heading in ((analysis, "What the block sees"), (report, "measured beside the paper")):
        assert heading in Path(line.partition(": ")[2]).read_text()
    assert page.partition(": ")[2] == (out / "analysis" / "page" / "index.html").as_uri()
    assert '"model":"rn26-embed"' in (out / "analysis" / "page" / "data" / "about.js").read_text()
    assert (out / "analysis" / "page" / "network" / "model.js").is_file(), "the page can classify images"
    assert 'href="page/index.html"' in (out / "analysis" / "report.html").read_text()
    record = json.loads((out / "analysis" / "claims.json").read_text())
    assert (record["model"], record["images"], record["baseline"]) == ("rn26-embed", 40, str(out / "rn26"))

    monkeypatch.setattr(
        "tembed.lab.demo.write_analysis", lambda *_, **__: None
    )  # saves time; its maps are cached anyway
    notices = io.StringIO()
    again = run_demo(demo, out, root=tmp_path / "datasets", progress=Lines(notices))
    assert again.splitlines()[:2] == accuracies
    assert "epoch" not in notices.getvalue(), "a finished run was trained again"
