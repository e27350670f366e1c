"""`tembed explore` and `build_page`: which files they write, and what they reuse."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from support.progress import Said

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.files import InUse, locked_folder
from tembed.lab.analysis import maps
from tembed.lab.analysis.analysis_folder import default_out
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.page.builder import build_page
from tembed.trained.weights_file import find_weights


@pytest.fixture
def quick(analysis: Analysis, quick_analysis: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An analysis by the command line, in an empty folder, takes seconds."""
    monkeypatch.setenv("TEMBED_DATA", str(Path(analysis.source).parent / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_explore_writes_a_page_and_reuses_the_cache(
    analysis: Analysis, quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address))
    line = ["explore", analysis.source, "--images-per-class", "4", "--no-network", "--quiet"]
    assert main(line) == 0
    said = capsys.readouterr().out.strip()
    page = Path(said.removeprefix("the page: "))
    assert page.name == "index.html"
    assert page.parent.name == "page"
    assert (page.parent.parent / "cache").is_dir(), "the cache of tembed analyze"
    assert opened == []
    first = {path.relative_to(page.parent): path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(maps, "_tsne", fail)
    monkeypatch.setattr("tembed.lab.analysis.features.extract_features", fail)
    assert main([*line, "--out", "elsewhere", "--open"]) == 0
    assert opened == [(quick / "elsewhere" / "index.html").as_uri()]
    assert {name: (quick / "elsewhere" / name).read_bytes() for name in first} == first, "the same page byte for byte"


def test_only_pages_of_the_same_folder_wait_for_each_other(analysis: Analysis, quick: Path) -> None:
    line = ["explore", analysis.source, "--images-per-class", "2", "--no-network", "--quiet"]
    with locked_folder(default_out(analysis.source)), locked_folder(quick / "one"):
        assert main(line) == InUse.exit_code, "tembed analyze writes this page, too"
        assert main([*line, "--out", "one"]) == InUse.exit_code
        assert main([*line, "--out", "two"]) == 0


def test_a_page_elsewhere_leaves_nothing_in_the_usual_folder(analysis: Analysis, quick: Path) -> None:
    source = shutil.copy(find_weights(analysis.source), quick / "weights.safetensors")
    assert main(["explore", str(source), "--images-per-class", "2", "--no-network", "--quiet", "--out", "page"]) == 0
    assert {path.name for path in quick.iterdir()} == {"weights.safetensors", "page"}


def test_a_network_that_cannot_be_exported_is_left_out(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TembedError("this needs onnx: pip install 'tembed[onnx]'")

    monkeypatch.setattr("tembed.lab.page.page_network.to_onnx", refuse)
    build_page(analysis, tmp_path, network=False)
    (tmp_path / "network").mkdir()
    (tmp_path / "network" / "model.js").write_text("of an earlier build")
    progress = Said()
    watched = dataclasses.replace(analysis, progress=progress)
    watched.__dict__.update({name: analysis.__dict__[name] for name in ("geometry_maps", "sprite_maps", "words")})
    page = build_page(watched, tmp_path)
    assert progress.lines == ["the page cannot classify dropped images: this needs onnx: pip install 'tembed[onnx]'"]
    assert not (tmp_path / "network").exists()
    assert "this needs onnx: pip install 'tembed[onnx]'" in (page.parent / "data" / "about.js").read_text()


def test_a_folder_of_something_else_is_left_alone(analysis: Analysis, tmp_path: Path) -> None:
    """A page has folders called js and network, and so may the user's own site."""
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "mine.js").write_text("mine")
    with pytest.raises(TembedError, match="has a js that is not of a page of tembed: give another `out`"):
        build_page(analysis, tmp_path, network=False)
    assert (tmp_path / "js" / "mine.js").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["js"]
    page = build_page(analysis, tmp_path / "page", network=False)
    (page.parent / "js" / "old.js").write_text("of an earlier version")
    assert build_page(analysis, tmp_path / "page", network=False) == page
    assert not (page.parent / "js" / "old.js").exists()


def test_a_file_in_the_way_is_one_line(analysis: Analysis, tmp_path: Path) -> None:
    (tmp_path / "page").write_text("a file")
    with pytest.raises(TembedError, match="cannot write"):
        build_page(analysis, tmp_path / "page", network=False)
