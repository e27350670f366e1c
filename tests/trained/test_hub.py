"""A folder in the hub's layout gives back the network, and its card says only what is known."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

import tembed
from tembed.attachment.attaching import attach
from tembed.cli.main import main
from tembed.common.errors import TembedError
from tembed.lab.training.evaluation import evaluate
from tembed.lab.training.recipe import Recipe
from tembed.models.description import Description
from tembed.models.registry import create_model
from tembed.paper import ACCURACY
from tembed.trained.card import model_card
from tembed.trained.hub import CARD, CONFIG, WEIGHTS, save_pretrained
from tembed.trained.weights_file import load, shipped

CLASSES = ("cat", "dog", "ship", 'a | b\n"c"')
ROOT = Path(tembed.__file__).parents[2]


RESULT = {
    "best_epoch": 1,
    "val_accuracy": 0.5,
    "test_accuracy": 0.5,
    "test": {"images": 10},
    "epochs": 2,
    "total_seconds": 1.0,
}


@pytest.fixture
def own() -> nn.Module:
    """A network that was trained by other means than `tembed.train`."""
    torch.manual_seed(0)
    return create_model("rn20", 4, 16, maximizer="entropic", mu=1.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(load("rn26-embed/cifar10"), tmp_path_factory.mktemp("hub") / "new" / "folder")


def changed(folder: Path, **fields: Any) -> None:
    """Change fields of the description in config.json; ``model_type`` is beside it."""
    config = json.loads((folder / CONFIG).read_text())
    config |= {name: fields.pop(name) for name in ("model_type", "description") if name in fields}
    if fields:
        config["description"] |= fields
    (folder / CONFIG).write_text(json.dumps(config))


def test_the_folder_has_the_hubs_three_files(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [CARD, CONFIG, WEIGHTS]
    config = json.loads((folder / CONFIG).read_text())
    assert config["id2label"]["3"] == "cat"
    assert config["label2id"]["cat"] == 3
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(create_model("rn26-embed").state_dict())


def test_a_trained_network_comes_back_with_all_that_is_known(folder: Path) -> None:
    before, after = load("rn26-embed/cifar10"), load(folder)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(before(images).logits, after(images).logits)
    assert not after.training
    assert after.description == before.description
    assert after.description.result["test_accuracy"] > 0.9


def test_evaluate_takes_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, worlds: Path) -> None:
    monkeypatch.setenv("TEMBED_DATA", str(worlds))
    with pytest.raises(TembedError, match="does not have the classes"):
        evaluate(folder, data="dots")


def test_explain_takes_the_folder(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(picture)
    for source, out in (("rn26-embed/cifar10", "shipped"), (str(folder), "hub")):
        assert main(["explain", source, str(picture), "--out", str(tmp_path / out)]) == 0
    pages = [(tmp_path / out / "picture.png").read_bytes() for out in ("shipped", "hub")]
    assert pages[0] == pages[1]


def test_a_network_of_unknown_training_comes_back(own: nn.Module, tmp_path: Path) -> None:
    save_pretrained(own, tmp_path / "own", classes=CLASSES, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))
    loaded = load(tmp_path / "own")
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = own.eval().to(memory_format=torch.channels_last)(images)  # as loaded networks are
        assert torch.equal(loaded(images).logits, expected.logits)
    assert (loaded.description.classes, loaded.description.mean) == (CLASSES, (0.5, 0.4, 0.3))
    assert loaded.stage1[0].maximizer.mu == 1.5
    with pytest.raises(TembedError, match=r"does not say how it was trained"):
        evaluate(tmp_path / "own")
    again = save_pretrained(loaded, tmp_path / "again")
    assert (again / CONFIG).read_text() == (tmp_path / "own" / CONFIG).read_text()


def test_compiled_networks_keep_their_names(own: nn.Module, tmp_path: Path) -> None:
    save_pretrained(torch.compile(own, backend="eager"), tmp_path / "own")
    assert torch.equal(load(tmp_path / "own").head.weight, own.head.weight)


def test_changed_weights_do_not_keep_recipe_and_score(tmp_path: Path) -> None:
    model = load("rn26/cifar10")
    with torch.no_grad():
        model.head.bias += 1
    card = (save_pretrained(model, tmp_path / "tuned") / CARD).read_text()
    assert "88.76" not in card
    assert "The test accuracy is not recorded." in card
    assert "The training is not recorded." in card
    assert load(tmp_path / "tuned").description.classes[0] == "airplane"


def test_arrays_are_taken_for_sequences(own: nn.Module, tmp_path: Path) -> None:
    mean, std = np.array([0.5, 0.25, 0.125]), torch.tensor([1.0, 0.5, 0.25])
    folder = save_pretrained(own, tmp_path / "x", classes=np.array(CLASSES), mean=mean, std=std)  # type: ignore[arg-type]
    config = json.loads((folder / CONFIG).read_text())
    known = config["description"]
    assert (known["mean"], known["std"]) == ([0.5, 0.25, 0.125], [1.0, 0.5, 0.25])
    assert list(config["label2id"]) == list(CLASSES)


def test_saving_again_replaces_the_folder(own: nn.Module, tmp_path: Path) -> None:
    save_pretrained(own, tmp_path)
    (tmp_path / f"{CONFIG}.0123abcd.part").touch()  # of a process that was killed
    with torch.no_grad():
        own.head.bias.fill_(7)
    save_pretrained(own, tmp_path)
    assert torch.equal(load(tmp_path).head.bias, torch.full((4,), 7.0))


def test_mistakes_are_named(own: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(TembedError, match="Linear is not a network of tembed"):
        save_pretrained(nn.Linear(2, 2), tmp_path / "x")
    with pytest.raises(TembedError, match="`classes` has 2 names, and the network has 4 classes"):
        save_pretrained(own, tmp_path / "x", classes=("a", "b"))
    with pytest.raises(TembedError, match="both `mean` and `std`"):
        save_pretrained(own, tmp_path / "x", std=(1, 1, 1))
    with pytest.raises(TembedError, match="both `mean` and `std`"):  # not the mean with the training's deviation
        save_pretrained(load("rn26/cifar10"), tmp_path / "x", mean=(0, 0, 0))
    with pytest.raises(TembedError, match=r"tell it with tembed\.describe\(model, built_by="):
        save_pretrained(attach(create_model("rn26", 4), "stage3", 4, example=32), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TembedError, match=r"holds other files \(notes.txt\)"):
        save_pretrained(own, tmp_path)
    with pytest.raises(TembedError, match="is a file"):
        save_pretrained(own, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_damaged_folders_are_named(own: nn.Module, tmp_path: Path) -> None:
    folder = save_pretrained(own, tmp_path / "own")
    config, weights = (folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes()
    flipped = bytearray(weights)
    flipped[-5] ^= 4
    (folder / WEIGHTS).write_bytes(flipped)
    with pytest.raises(TembedError, match=r"does not hold the weights that config.json beside it describes"):
        load(folder)
    (folder / WEIGHTS).write_bytes(weights[:1000])
    with pytest.raises(TembedError, match=r"model.safetensors is missing or damaged"):
        load(folder)
    (folder / WEIGHTS).write_bytes(weights)
    for fields, message in (
        ({"model": "rn26"}, r"27 weights are missing, such as stage4"),
        ({"model": "rn200"}, r"unknown model 'rn200'; .*--plugin MODULE"),
        ({"options": {"maximizer": "bn-relu"}}, "weights are missing, such as stage1.0.maximizer"),
        ({"classes": ["a", "b"]}, r"head.weight has the shape \(4, 256\) instead of \(2, 256\)"),
        ({"classes": [["a"], "b"]}, r"its classes is \[\['a'\], 'b'\]"),
        ({"description": None}, "lacks what tembed.save_pretrained writes"),
        ({"model_type": "bert"}, "does not describe a network of tembed"),
        ({"input_size": -3}, "for images of -3 pixels"),
        ({"result": {"test_accuracy": "high"}}, "its result cannot be used: "),
        ({"result": RESULT | {"epochs": None}}, "its result cannot be used: its epochs is None"),
        ({"result": RESULT | {"test": [1]}}, r"its result cannot be used: its test is \[1\]"),
        ({"result": RESULT | {"val_accuracy": 7}}, "its result cannot be used: its val_accuracy is 7"),
        ({"result": RESULT | {"train_images": "many"}}, "its result cannot be used: its train_images is 'many'"),
    ):
        (folder / CONFIG).write_bytes(config)
        changed(folder, **fields)
        with pytest.raises(TembedError, match=message) as error:
            load(folder)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)
    (folder / CONFIG).write_text("{")
    with pytest.raises(TembedError, match=r"config.json is missing or damaged"):
        load(folder)


def test_a_recipe_that_no_run_has_gets_no_card(own: nn.Module, tmp_path: Path) -> None:
    folder = save_pretrained(own, tmp_path / "own", classes=CLASSES)
    changed(folder, recipe={"model": "rn20", "data": "cifar10", "lr": "fast"})
    with pytest.raises(TembedError, match="the recipe of these weights was not written by tembed"):
        save_pretrained(load(folder), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_network_with_too_many_weights_is_named(tmp_path: Path) -> None:
    folder = save_pretrained(create_model("rn26-aux"), tmp_path / "aux")
    changed(folder, model="rn26")
    with pytest.raises(TembedError, match=r"2 weights are not in the network, such as block.match.score"):
        load(folder)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_card_is_the_card_of_its_weights(name: str) -> None:
    """If this fails: write what `model_card` gives."""
    card = model_card(load(name).description, name)
    assert f'model = tembed.load("{name}")' in card
    assert shipped()[name].with_suffix(".md").read_text() == card


def test_a_card_names_the_weights_that_the_training_started_from() -> None:
    description = load("rn26-embed/cifar10").description
    started = dataclasses.replace(description, recipe=description.recipe | {"init": "rn26-embed/mini-imagenet"})
    assert "| start | the weights rn26-embed/mini-imagenet, whose data and licence also count |" in model_card(started)
    assert "| start |" not in model_card(description)


def test_a_card_names_the_settings_that_differ_from_the_papers() -> None:
    for changes, said in (
        ({}, "none"),
        ({"averaging": 0.2, "patience": 3}, "patience = 3, averaging = 0.2"),
    ):
        recipe = Recipe.paper("rn20", "cifar10", **changes).complete().to_json()
        assert f"| other settings | {said} |" in model_card(Description("rn20", {}, 32, CLASSES, recipe=recipe))


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_card_has_the_score_of_the_recorded_run(name: str) -> None:
    """The numbers of results/, not those of the file beside the weights."""
    known = load(name).description
    model, data = name.split("/")
    records = [json.loads(path.read_text()) for path in (ROOT / "results").glob(f"{model}-{data}-*.json")]
    (run,) = [r for r in records if r["recipe"]["epochs"] == known.recipe["epochs"] and _same(r, known)]
    card = shipped()[name].with_suffix(".md").read_text()
    assert f"{100 * run['result']['test_accuracy']:.2f} % of the test images are right (n = 1" in card
    assert f"The paper reports {ACCURACY[model, data]:.2f} %" in card
    assert f"| training images | {run['result']['train_images']:,} |" in card
    assert "## Limits" in card


def _same(record: dict[str, Any], known: Description) -> bool:
    assert known.epoch is not None
    return record["curve"][known.epoch - 1]["val_accuracy"] == known.val_accuracy


def test_a_card_survives_odd_class_names(own: nn.Module, tmp_path: Path) -> None:
    card = (save_pretrained(own, tmp_path / "x", classes=CLASSES) / CARD).read_text()
    header = card.split("---\n")[1]
    assert all(json.loads(line.split(": ", 1)[1]) for line in header.splitlines())
    assert "cat, dog, ship" in card
    recipe = Recipe.fast("rn20", "cifar10").complete()
    described = model_card(Description("rn20", {}, 32, CLASSES, recipe=recipe.to_json()))
    assert '| classes | cat, dog, ship, a \\| b "c" |' in described


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("rn38-embed", r"The network rn38-embed \(RN38-Ours in Table 1\) of \*Feature Embedding"),
        ("rn20", r"The network rn20, made with tembed, which implements \*Feature Embedding"),
        ("timm:resnet18@layer3", r"resnet18 of timm, with the block of \*Feature .* behind layer3, for 2 cl"),
        ("timm:resnet18@layer3:none", r"resnet18 of timm, without the block of \*Feature .*\(BMVC 2022\), for 2 cl"),
        ("my.nets:small@a.b:aux", r"small of my\.nets, with the patch scores of \*Feature .* behind a\.b"),
    ],
)
def test_a_card_credits_the_paper_only_with_its_own_networks(model: str, sentence: str) -> None:
    card = model_card(Description(model, {}, 32, ("a", "b")))
    assert re.search(sentence, card.replace("\n", " "))
    recipe = Recipe.from_preset("frozen", model, "cifar10", init="x.safetensors") if ":" in model else None
    if recipe is not None:
        card = model_card(Description(model, {}, 32, ("a", "b"), recipe=recipe.to_json()))
        assert "| start | x.safetensors |" in card
        assert "| trained | the block and a new linear head |" in card
        assert "A short training" not in card
