"""The whole analysis and the explanations on small untrained networks, and their errors."""

import dataclasses
import html
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from markdown_it import MarkdownIt
from PIL import Image
from support.datasets import planes, store_world
from support.features import save_untrained

from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.common.progress import Progress
from tembed.lab.analysis import maps
from tembed.lab.analysis.analyzing import analyze
from tembed.lab.analysis.effective_fields import read_effective_field
from tembed.lab.analysis.features import cached_features, extract_features
from tembed.lab.analysis.figures import figure_png
from tembed.lab.analysis.maps import tsne
from tembed.lab.claims import measure_claims
from tembed.lab.claims.claim import Claim, Judgement, Part, read_claim, recomputed
from tembed.lab.data.catalogue import dataset
from tembed.lab.data.loading import load
from tembed.lab.data.parts.world import generate
from tembed.lab.data.readers.reading import Chunk, Reading
from tembed.lab.data.store import store
from tembed.lab.report.analysis_report import by_sentence, claim_elements, verdict_table, write_analysis
from tembed.lab.report.document import to_html, to_markdown
from tembed.lab.training.recipe import Recipe
from tembed.lab.training.run import Run
from tembed.trained.weights_file import load as load_network

GROUPS = {"vehicles": ["plane", "car", "truck", "ship", "train"], "animals": ["bird", "fish", "cat", "dog", "horse"]}
ODD = ("a|b", "<script>x</script>", "`tick`", "*star*", "two\nlines", "$x_$", "a_b_c", "&amp;", "[a](b)", "plain")
FILES = ("geometry", "sprites-predictions", "sprites-embedding", "words", "words-all", "legend")


class Recorder(Progress):
    """Records the lines and tasks that it receives."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: set[str] = set()

    def say(self, line: str) -> None:
        self.lines.append(line)

    def update(self, task: str, done: float, total: float, **numbers: object) -> None:
        self.tasks.add(task)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    store_world(root, "tiny", 200, 16)
    made = generate(200, size=16)
    images = made.pixels()
    block = Chunk(images, made.labels.numpy(), np.zeros(len(images), np.uint8))
    store(root, "odd", Reading("generated", ODD, iter([block])), {})
    return root


@pytest.fixture(scope="module")
def weights(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    classes = load("tiny", root=root).test.classes
    for model in ("rn26", "rn26-embed", "rn26-aux"):
        save_untrained(folder / f"{model}.safetensors", model, "tiny", classes, 16)
    save_untrained(folder / "odd.safetensors", "rn26-embed", "odd", ODD, 16)
    return folder


@pytest.fixture(autouse=True)
def _quick(root: Path, quick_analysis: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(root))


@pytest.mark.slow
def test_an_analysis_writes_every_file_and_repeats_to_the_byte(weights: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    texts = []
    for number in (1, 2):
        found = analyze(
            weights / "rn26-embed.safetensors",
            baseline=weights / "rn26.safetensors",
            images_per_class=4,
            groups=GROUPS,
            cache=tmp_path / f"cache{number}",
            progress=recorder,
        )
        report = write_analysis(found, tmp_path / f"out{number}", side=800)
        texts.append(report.read_text())
    assert texts[0] == texts[1]
    files = [path for path in (tmp_path / "out1").rglob("*") if path.is_file()]
    record = json.loads((tmp_path / "out1" / "claims.json").read_text())
    measured = [claim for claim in record["claims"] if claim["weights"]["verdict"] != "not measured"]
    plotted = [claim for claim in measured if claim["controls"] or claim["shown"]]
    assert len(files) == len(FILES) + 5 + len(plotted)
    for path in files:
        other = tmp_path / "out2" / path.relative_to(tmp_path / "out1")
        assert path.read_bytes() == other.read_bytes(), path.name
    for name in FILES:
        with Image.open(tmp_path / "out1" / "figures" / f"{name}.png") as picture:
            assert picture.width >= 800
            assert picture.mode in ("RGB", "RGBA")  # full colour
    assert record["points"] == 40 * 16
    assert {"super-class probe", "entropy near zero", "words recover parts"} <= {c["name"] for c in record["claims"]}
    page = (tmp_path / "out1" / "report.html").read_text()
    assert page.count('src="data:image/') == len(FILES)
    assert all(f"| {claim['name']} | {claim['weights']['verdict']}: " in texts[0] for claim in measured)
    assert recomputed(record) == [read_claim(claim) for claim in record["claims"]]
    table = (tmp_path / "out1" / "verdicts.md").read_text()
    assert table.strip() in texts[0]
    assert page.index("geometry.png") < page.index("Claims</h2>"), "the page opens with the figures"
    assert page.count("<svg") == len(plotted)
    assert page.index("<svg") < page.index("<summary>Numbers</summary>"), "numbers are folded below the plot"
    assert record["effective_field"] == json.loads((tmp_path / "out1" / "effective_field.json").read_text())
    field = read_effective_field(record["effective_field"])
    said = texts[0].count(field.view().caption)
    assert said == len(FILES) - 1, "the caption of every figure with patches"
    assert field.note in texts[0]
    assert record["seeds"]["run"] == [str(weights / "rn26-embed.safetensors")]
    assert {"t-SNE of baseline", "t-SNE of embedding vectors", "features of rn26"} <= recorder.tasks


def test_the_table_of_verdicts_shortens_only_reasons_without_a_test() -> None:
    holds = Judgement("holds", "ahead of: x, +0.1")
    tested = Judgement("unclear", "n = 3; behind: x, -0.1 (taken alone: does not hold)", 1.0, 0.1)
    claims = [Claim("a", "", "", weights=holds, method=tested)]
    claims += [Claim("b", "", "", weights=holds, method=Judgement("unclear", "n = 1, which shows no spread"))]
    assert [row[2] for row in verdict_table(claims).rows] == [f"unclear: {tested.why}", "unclear: n = 1"]


def test_the_table_of_verdicts_lists_the_parts_of_each_sentence_together() -> None:
    holds, open_ = Judgement("holds", "x"), Judgement("no verdict", "it is ours")
    parts: tuple[tuple[str, str, Part, Judgement], ...] = (
        ("a", "words", "descriptive", holds), ("b", "", "descriptive", holds), ("c", "words", "not before", open_),
    )  # fmt: skip
    claims = [Claim(name, "", "", weights=w, method=w, sentence=key, part=part) for name, key, part, w in parts]
    table = verdict_table(claims)
    assert table.header == ("sentence", "part", "claim", "for these weights", "for the method")
    assert table.rows == (
        ("words", "descriptive", "a", "holds: x", "holds: x"),
        ("", "not before", "c", "no verdict: it is ours", ""),
        ("other", "descriptive", "b", "holds: x", "holds: x"),
    )


@pytest.mark.slow
def test_a_report_shows_class_names_with_any_characters(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = dataclasses.replace(dataset("odd"), look_alikes=tuple(itertools.pairwise(ODD)))
    monkeypatch.setattr("tembed.lab.analysis.analyzing.dataset", lambda name: record)
    found = analyze(weights / "odd.safetensors", images_per_class=4)
    for made in (found.chosen_words(), found.legend()):
        figure_png(made)
    claims = measure_claims(found)
    elements = claim_elements(claims)
    text = MarkdownIt("commonmark").enable("table").render(to_markdown(elements))
    for shown in (text, to_html("odd", elements)):
        tables = re.findall(r"<table>(.*?)</table>", shown, flags=re.DOTALL)
        cells = [{row.count("<td") for row in table.split("<tr")[2:]} for table in tables]
        assert cells == [{5}] + [{4}] * (len(tables) - 1)
        names = [" ".join(html.unescape(name).split()) for name in re.findall(r"<h4>(.*?)</h4>", shown)]
        measured = [claim for claim in claims if claim.weights.verdict != "not measured"]
        assert names == [f"{claim.name} ({claim.part})" for group in by_sentence(measured) for claim in group]
        assert "<script" not in shown
        lines, words = " ".join(html.unescape(shown).split()), [" ".join(name.split()) for name in ODD]
        assert all(f"{a} and {b} (rank " in lines for a, b in itertools.pairwise(words))


@pytest.mark.slow
def test_too_few_patches_drop_the_maps_and_not_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four test images of two classes have 64 patches; a third class has a single image and is left out."""
    made = generate(220, size=16)
    keep = torch.cat(
        [torch.nonzero(made.labels == label).flatten()[:count] for label, count in ((0, 10), (1, 10), (2, 4))]
    )
    images = made.pixels(keep.numpy())
    chunk = Chunk(images, made.labels[keep].numpy(), np.zeros(len(keep), np.uint8))
    store(tmp_path, "few", Reading("generated", ("a", "b", "c"), iter([chunk])), {})
    path = save_untrained(tmp_path / "w.safetensors", "rn26-embed", "few", ("a", "b", "c"), 16)
    recorder = Recorder()
    groups = {"x": ["a", "c"], "y": ["b"]}
    found = analyze(path, root=tmp_path, groups=groups, progress=recorder)
    assert recorder.lines[-2:] == [
        "left out, with fewer than 2 test images: c",
        "using 2 test images of each of 2 classes",
    ]
    text = write_analysis(found, tmp_path / "out").read_text()
    assert "64 patches are too few for t-SNE maps, which need 90." in text
    assert (tmp_path / "out" / "figures" / "words.png").exists()
    assert not (tmp_path / "out" / "figures" / "geometry.png").exists()
    assert "claims that were not measured" in text
    assert text.count("lists no passages") == 1, "what cannot be measured is folded away once"
    monkeypatch.setenv("TEMBED_DATA", str(tmp_path))
    assert main(["analyze", str(path), "--no-network", "--out", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out.endswith("report.html\n")
    assert not (tmp_path / "again" / "page").exists()
    assert "page/index.html" not in (tmp_path / "again" / "report.md").read_text()


def test_cached_features_are_extracted_again_only_if_damaged(weights: Path, tmp_path: Path) -> None:
    network = load_network(weights / "rn26-embed.safetensors")
    images, folder = load("tiny").test, tmp_path / "new" / "cache"
    first = cached_features(network, images, folder)
    (path,) = folder.iterdir()
    recorder = Recorder()
    again = cached_features(network, images, folder, progress=recorder)
    assert not recorder.tasks
    np.testing.assert_array_equal(first.block_output, again.block_output)
    assert (again.map_size, again.window, again.key) == (first.map_size, first.window, first.key)
    cached_features(network, images.subset(torch.arange(10)), folder)
    assert len(list(folder.iterdir())) == 2
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    repaired = cached_features(network, images, folder, progress=recorder)
    assert "again" in recorder.lines[0]
    np.testing.assert_array_equal(first.block_output, repaired.block_output)


@pytest.mark.parametrize("model", ["rn26-embed", "dn100-embed-cat"])
def test_features_are_the_maps_of_the_trace(model: str, tmp_path: Path) -> None:
    """The embedding leaves out DenseNet's bias, so that it is the mixture of the class vectors."""
    images = load("tiny").test
    path = save_untrained(tmp_path / "w.safetensors", model, "tiny", images.classes, 16)
    network = load_network(path)
    block = network.block
    assert block is not None
    if block.values.bias is not None:
        torch.nn.init.normal_(block.values.bias)
    found = extract_features(network, images.subset(torch.arange(3)))
    pixels = (planes(images)[:3] / 255 - 0.5) / 0.25
    with torch.no_grad():
        trace = network.trace(pixels)
    assert trace.softmax is not None
    assert found.softmax is not None
    assert found.embedding is not None
    assert found.mixing is not None
    assert found.values is not None
    for point in (0, 5, 37):
        image, row, column = found.position(point)
        np.testing.assert_allclose(found.softmax[point], trace.softmax[image, :, row, column], atol=1e-5)
        np.testing.assert_allclose(
            found.block_output[point], trace.block_output[image, :, row, column], rtol=1e-3, atol=1e-3
        )
    np.testing.assert_allclose(found.embedding, found.mixing @ found.values, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found.head, trace.logits.argmax(1))


@pytest.mark.slow
def test_deep_supervision_is_analysed_without_the_embedding(weights: Path, tmp_path: Path) -> None:
    found = analyze(weights / "rn26-aux.safetensors", images_per_class=4, baseline=weights / "rn26-embed.safetensors")
    assert found.embedding_sprites() is None
    verdicts = {claim.name: claim.weights.verdict for claim in measure_claims(found)}
    assert verdicts["class vectors are vertices"] == "not measured"
    assert verdicts["super-class probe"] == "not measured"  # tiny has no super-classes
    assert verdicts["mass off the true class"] != "not measured"


@pytest.mark.slow
def test_a_hundred_classes_with_an_odd_window(tmp_path: Path) -> None:
    """84 pixels make an 11x11 map with windows of 5x5."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 10)
    images = rng.integers(0, 256, (len(labels), 84, 84, 3), dtype=np.uint8)
    classes = tuple(f"class number {k}" for k in range(100))
    store(tmp_path, "wide", Reading("made", classes, iter([Chunk(images, labels, np.zeros(1000, np.uint8))])), {})
    path = save_untrained(tmp_path / "w.safetensors", "wrn16-embed", "wide", classes, 84)
    found = analyze(path, images_per_class=2, root=tmp_path)
    assert found.features.map_size == (11, 11)
    assert found.features.window == (5, 5)
    assert found.features.picture(found.images, 60).shape[0] in (38, 39)
    found.chosen_words()
    found.legend()
    assert (tmp_path / "w.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("many", [100, 1000])  # both gradient methods
def test_the_map_keeps_clusters_together_and_repeats_to_the_bit(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MANY", many)
    monkeypatch.setattr(maps, "EARLY", 40)
    monkeypatch.setattr(maps, "LATE", 40)
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 60)
    points = (rng.normal(size=(180, 70)) + 10 * np.eye(3, 70)[label]).astype(np.float32)
    found = tsne(points)
    np.testing.assert_array_equal(found, tsne(points))
    apart = np.linalg.norm(found[:, None] - found[None], axis=-1) + 1e9 * np.eye(180)
    assert (label[apart.argmin(1)] == label).all()
    assert np.isfinite(tsne(np.repeat(points[:30], 6, axis=0))).all()  # equal points
    with pytest.raises(TembedError, match="too few for a map"):
        tsne(points[:50])


def test_maps_made_in_parallel_equal_those_made_one_by_one(tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    spaces = {"all": points, "half": points[:150], "first": points[:, :2]}
    found = maps.map_all(spaces, tmp_path)
    assert list(found) == list(spaces)
    for name, space in spaces.items():
        np.testing.assert_array_equal(found[name], tsne(space))
    assert len(list(tmp_path.glob("map-*"))) == 3


def test_a_map_that_fails_stops_the_others(tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((2000, 5)).astype(np.float32)
    with pytest.raises(TembedError, match="too few"):
        maps.map_all({"few": points[:50], "many": points}, tmp_path)
    assert not list(tmp_path.glob("map-*"))


@pytest.mark.slow
def test_the_commands_write_their_files(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = str(weights / "rn26-embed.safetensors")
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps(GROUPS))
    assert main(["analyze", source, "--images-per-class", "4", "--super-classes", str(groups), "--out", "seen"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("the report: seen/report.md and seen/report.html\n")
    assert "super-class probe: " in said.out
    assert "patches of" in said.err
    assert Path("seen/page/network/model.js").is_file(), "the page can classify images"
    Image.new("RGB", (20, 20), (1, 2, 3)).save("a.png")
    assert main(["explain", source, "a.png", "./a.png"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("a.png (20x20 pixels, resized: 16x16): ")
    assert out[1].endswith("; explained/a-2.png")
    with Image.open("explained/a.png") as picture:
        assert picture.width > 1000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("analyze {weights}/rn26.safetensors --baseline {weights}/rn26.safetensors", "rn26, which has no block"),
        ("explore {weights}/rn26.safetensors --images-per-class 4", "rn26, which has no block"),
        ("analyze {weights}/rn26-embed.safetensors --images-per-class 5", "give 4 or fewer"),
        ("analyze {weights}/rn26-embed.safetensors --images-per-class 4 --super-classes g.json", "class 'zebra'"),
        ("analyze {weights}/rn26-embed.safetensors --images-per-class 4 --baseline rn26/cifar10", "on one dataset"),
        ("analyze damaged", "cannot be read as weights"),
        ("analyze flipped", "flipped"),
        ("analyze empty", "empty is not a run folder"),
        ("analyze begun", "begun has no weights yet"),
        ("analyze broken", "cannot be read as weights"),
        ("analyze nothing", "is not a run folder"),
        ("explain {weights}/rn26.safetensors g.json", "nothing to explain"),
        ("explain {weights}/rn26-embed.safetensors g.json", "g.json: not an image in a known format"),
        ("explain {weights}/rn26-embed.safetensors none.png", "none.png: it cannot be read (No such file"),
        ("explain {weights}/rn26-embed.safetensors", "at least one image"),
    ],
)
def test_a_mistake_gives_a_one_line_error(
    line: str,
    message: str,
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.json").write_text('{"a": ["zebra"], "b": ["cat"]}')
    whole = (weights / "rn26-embed.safetensors").read_bytes()
    Path("damaged").write_bytes(whole[:-100])
    Path("flipped").write_bytes(whole[:-9] + bytes([whole[-9] ^ 16]) + whole[-8:])
    Path("empty").mkdir()
    for name in ("begun", "broken"):
        Path(name).mkdir()
        Run(Path(name)).assign(Recipe.fast("rn26-embed", "tiny").complete())
    Run(Path("broken")).best_path.write_bytes(whole[:1000])
    assert main(line.format(weights=weights).split()) == 2
    error = capsys.readouterr().err.splitlines()
    assert message in error[-1]
    assert len([text for text in error if text.startswith("tembed: error")]) == 1


def test_a_missing_extra_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(TembedError, match=r"pip install 'tembed\[lab\]'"):
        tsne(np.zeros((200, 3), np.float32))
