"""A network of one's own is described, and then used like a trained one of this package."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from support.foreign import Plain
from support.onnx import open_session

import tembed
from tembed.common.errors import TembedError

FACTS = {"classes": ("ant", "bee", "cow"), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "size": 32}
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)


def attached(**options: object) -> "tembed.attachment.Attached":  # type: ignore[name-defined]
    torch.manual_seed(0)
    return tembed.attach(tembed.create_model("rn20", 3), "stage2", 3, example=32, start="paper", **options).eval()


def test_a_described_network_predicts_as_it_computes() -> None:
    model = attached()
    assert tembed.describe(model, **FACTS) is model
    found = tembed.predict(model, list(PICTURES), accelerator="cpu")
    mean, std = (torch.tensor(FACTS[name]).view(3, 1, 1) for name in ("mean", "std"))
    images = (torch.from_numpy(PICTURES).permute(0, 3, 1, 2) / 255 - mean) / std
    with torch.no_grad():
        expected = model(images).logits.softmax(1)
    torch.testing.assert_close(torch.from_numpy(np.stack([one.probabilities for one in found])), expected)
    assert found[0].classes == FACTS["classes"]
    assert found[0].patch_prediction in FACTS["classes"]


def test_a_described_network_is_explained() -> None:
    model = tembed.describe(attached(), **FACTS)
    (found,) = tembed.analysis.explain(model, PICTURES[0], accelerator="cpu")
    (prediction,) = tembed.predict(model, PICTURES[0], accelerator="cpu")
    np.testing.assert_allclose(found.probabilities, prediction.probabilities, atol=1e-6)
    assert found.patch_probabilities.shape == (16, 16, 3)


def test_a_described_network_is_saved_and_loaded(tmp_path: Path) -> None:
    model = attached(window=3, maximizer="entropic")
    model.image_size = 32
    tembed.describe(model, **FACTS, fit="pad", built_by="tembed:rn20")
    folder = tembed.save_pretrained(model, tmp_path / "hub")
    again = tembed.load(folder)
    assert again.description.model == "tembed:rn20@stage2"
    assert (again.description.fit, again.description.classes, again.block.match.window) == (
        "pad",
        FACTS["classes"],
        (3, 3),
    )
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(x).logits, model(x.to(memory_format=torch.channels_last)).logits)
    pair = [tembed.predict(one, PICTURES[0], accelerator="cpu")[0] for one in (model, folder)]
    np.testing.assert_allclose(pair[0].probabilities, pair[1].probabilities, atol=1e-6)


@pytest.mark.slow
def test_a_described_network_of_ones_own_is_exported_with_its_preprocessing(tmp_path: Path) -> None:
    """onnxruntime on the pixels of a picture gives what `predict` and `explain` give for it."""
    torch.manual_seed(0)
    model = tembed.attach(Plain(), "layer1", 3, example=16, start="paper").eval()
    tembed.describe(model, **(FACTS | {"size": 16}))
    made = tembed.trained.to_onnx(model, tmp_path / "own.onnx")
    session = open_session(made.path)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(FACTS["classes"])
    pixels = PICTURES[:1, :16, :16]
    logits, scores, _ = session.run(None, {"images": pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255})
    (prediction,) = tembed.predict(model, pixels[0], accelerator="cpu")
    (explanation,) = tembed.analysis.explain(model, pixels[0], accelerator="cpu")
    np.testing.assert_allclose(softmax(logits[0]), prediction.probabilities, atol=1e-5)
    np.testing.assert_allclose(
        softmax(scores[0], axis=0).transpose(1, 2, 0), explanation.patch_probabilities, atol=1e-5
    )


def test_a_network_of_this_package_is_described_too(tmp_path: Path) -> None:
    model = tembed.describe(tembed.create_model("rn26-embed", 3).eval(), **FACTS)
    assert tembed.load(tembed.save_pretrained(model, tmp_path / "hub")).description.mean == FACTS["mean"]


def test_what_is_not_described_says_how_to() -> None:
    with pytest.raises(TembedError, match=r"tell it with tembed\.describe"):
        tembed.predict(attached(), PICTURES[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"classes": ("ant", "bee")}, "`classes` has 2 names, and the network has 3 classes"),
        ({"std": (0.1, 0.0, 0.1)}, "`std` positive ones"),
        ({"mean": (0.1, 0.1)}, "each has three numbers"),
        ({"size": 0}, "`size` is 0"),
        ({"fit": "squeeze"}, "`fit` is 'squeeze'"),
        ({"built_by": "nothing"}, "'nothing@stage2:embed' is not the name of a network"),
    ],
)
def test_wrong_facts_are_refused(changed: dict[str, object], message: str) -> None:
    model = attached()
    with pytest.raises(TembedError, match=message):
        tembed.describe(model, **(FACTS | changed))
    assert not model.description.classes


def test_other_modules_are_refused() -> None:
    with pytest.raises(TembedError, match=r"`model` is a Linear; it must be what tembed\.attach"):
        tembed.describe(torch.nn.Linear(2, 2), **FACTS)  # type: ignore[arg-type]
    with pytest.raises(TembedError, match="`built_by` is for attached networks"):
        tembed.describe(tembed.create_model("rn20", 3), **FACTS, built_by="tembed:rn20")
