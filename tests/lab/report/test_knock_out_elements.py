"""The knock-outs in a report, in words, tables and a figure."""

import html
import json
from pathlib import Path

import pytest
from support.datasets import planes, store_world
from support.features import save_untrained

from tembed.lab.analysis import knock_outs as signs
from tembed.lab.analysis.knock_outs import NO_EMBEDDING, OTHERS, KnockOut, KnockOuts, trained_knock_outs
from tembed.lab.data.loading import load
from tembed.lab.report.document import to_html, to_markdown
from tembed.lab.report.knock_out_elements import knock_out_elements, training_history
from tembed.trained.weights_file import load as load_network

OUT = {NO_EMBEDDING: KnockOut(0.88, 0.01, 0.002, 0.00001), OTHERS: KnockOut(0.885, 0.005, 0.004, 0.3, 3)}
SIGNS = KnockOuts(4000, 0.89, 0.014, OUT, 0.25, (1.0, 2.0, 3.0), (0.5, 0.25), -0.125)


def test_the_section_has_the_sentence_the_knock_outs_and_the_numbers() -> None:
    text = html.unescape(to_markdown(knock_out_elements(SIGNS)))
    assert "f' is worth 1.00 points [0.61, 1.39]. Removing f' costs more than sampling noise (p < 0.0001)." in text
    assert "| f' = 0 | 88.00% | +1.00 [+0.61, +1.39] | < 0.0001 | costs accuracy |" in text
    assert "| f' of another image (3 draws) | 88.50% | +0.50 [-0.28, +1.28] | 0.3 | within sampling noise |" in text
    for row in (
        "| share of f' in the variance of what the block writes | 1.40% |",
        "| patches that match no class | 25.00% |",
        "| sum of a patch's mixing weights: median [quartiles] | 2.00 [1.00, 3.00] |",
        "| gradient in front of the block: norm for the head's loss | 0.5 |",
        "| cosine of the two gradients | -0.125 |",
    ):
        assert row in text
    assert "figures/" not in text
    assert "<table" in to_html("vital signs", knock_out_elements(SIGNS))


def test_deep_supervision_shows_its_gradients_only() -> None:
    text = to_markdown(knock_out_elements(KnockOuts(100, 0.9, gradient_norms=(1.0, 2.0), gradient_cosine=0.5)))
    assert "not fed back" in text
    assert "sampling noise" not in text
    assert "| the same for the patches' loss | 2 |" in text
    frozen = to_markdown(knock_out_elements(KnockOuts(100, 0.9)))
    assert "everything in front of the block is frozen" in frozen


def test_the_figure_shows_the_epochs_that_logged_the_share(tmp_path: Path) -> None:
    history = [{"epoch": n, "val_accuracy": 0.5, "variance_share": 0.3 - 0.1 * n} for n in (1, 2)]
    assert "figures/vital-signs.svg" in to_markdown(knock_out_elements(SIGNS, history))
    for nothing in (history[:1], [{"epoch": 1, "variance_share": None}], []):
        assert "figures/" not in to_markdown(knock_out_elements(SIGNS, nothing))
    (tmp_path / "recipe.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in history))
    assert training_history(str(tmp_path)) == history
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "variance')
    assert training_history(str(tmp_path)) == []
    assert training_history("rn26-embed/cifar10") == []


def test_trained_weights_are_measured_on_random_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by class, the first 30 images would show three of ten classes only."""
    store_world(tmp_path, "tiny", 400, 8)
    images = load("tiny", root=tmp_path).test
    images = images.subset(images.labels.argsort())
    network = load_network(save_untrained(tmp_path / "w.safetensors", "rn26-embed", "tiny", images.classes, 8))
    seen = []

    def measure(model: object, fetch: signs.Fetch, labels: object, *rest: object) -> None:
        seen.append((labels, fetch))

    monkeypatch.setattr(signs, "_measure", measure)
    monkeypatch.setattr(signs, "IMAGES", 30)
    trained_knock_outs(network, images)
    ((labels, fetch),) = seen
    assert len(labels) == 30
    assert len(labels.unique()) >= 8
    expected = (planes(images).float() / 255 - 0.5) / 0.25
    shown = fetch(labels.argsort()[:5])
    assert all((expected - picture).abs().flatten(1).max(1).values.min() < 1e-5 for picture in shown)
