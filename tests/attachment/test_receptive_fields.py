"""The receptive fields of layers, against closed forms and against the spreading of NaN."""

import pytest
import torch
from support.foreign import Tokens
from torch import Tensor, nn

from tembed.attachment.receptive_fields import ReceptiveField, receptive_fields
from tembed.models.registry import create_model


class Mixed(nn.Module):
    """Strides, dilation, padding that is missing, uneven kernels, both kinds of pooling, a skip and a dead ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, (3, 5), padding=(1, 2))
        self.dead = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.mean = nn.AvgPool2d(2)
        self.valid = nn.Conv2d(4, 4, 2)
        self.head = nn.Linear(4, 2)
        with torch.no_grad():
            self.dead[0].bias.fill_(-1e3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dead(self.stem(x))
        x = self.pool(x)
        x = x + self.dilated(x)
        return self.head(self.valid(self.mean(x)).mean((2, 3)))


def spread(model: nn.Module, layer: str, side: int, axis: int) -> Tensor:
    """Which lines of the image reach which lines of a layer's map: a NaN in each line of pixels, one after another."""
    seen: list[Tensor] = []
    with torch.no_grad():
        for line in range(side):
            x = torch.randn(1, 3, side, side)
            x.select(axis, line).fill_(torch.nan)
            handle = model.get_submodule(layer).register_forward_hook(
                lambda module, inputs, output: seen.append(output.isnan().any(1)[0].any(2 - axis + 1))
            )
            model(x)
            handle.remove()
    return torch.stack(seen)


@pytest.mark.parametrize("layer", ["stem", "dead", "pool", "dilated", "mean", "valid"])
def test_a_field_is_what_turns_to_nan(layer: str) -> None:
    torch.manual_seed(0)
    model, side = Mixed().eval(), 40
    field = receptive_fields(model, side, [layer])[layer]
    assert field.size is not None
    for axis in (2, 3):
        found = spread(model, layer, side, axis)
        size, stride, start = (each[axis - 2] for each in field)
        line, position = torch.meshgrid(*map(torch.arange, found.shape), indexing="ij")
        first = start + stride * position
        complete = (first >= 0) & (first + size <= side)  # at the border, the holes of a dilated kernel are cut off
        ends = found.cumsum(0).bool() & found.flip(0).cumsum(0).flip(0).bool()
        assert complete.any()
        assert torch.equal(ends[complete], ((line >= first) & (line < first + size))[complete])


@pytest.mark.parametrize(("name", "size"), [("rn26-embed", 43), ("rn26-embed-local", 19)])
def test_what_a_patch_sees(name: str, size: int) -> None:
    """1 + the sum of (kernel - 1) x stride: 2 + 4 in stem and stage 1, 8 in stage 2, 16 or 0 in stage 3, 12 or 4."""
    (field,) = receptive_fields(create_model(name), 32, ["block.match"]).values()
    assert field.size == (size, size)
    assert field.stride == (4, 4)


def test_attention_sees_the_image_and_a_token_its_square() -> None:
    fields = receptive_fields(Tokens(), 32)
    assert fields["patch"] == ReceptiveField((4, 4), (4, 4), (0, 0))
    assert fields["mix"].size is None
    assert str(fields["mix"]) == "image"


def test_a_network_that_resizes_its_images_is_followed_at_their_own_shape() -> None:
    """128 pixels become 32; a 3x3 kernel behind them sees 3 of these, which are made of 4 pixels each."""

    class Resizing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            shorter = min(x.shape[2:])
            return self.conv(torch.nn.functional.avg_pool2d(x, shorter // 32)).mean((2, 3))

    assert receptive_fields(Resizing(), 128)["conv"] == ReceptiveField((12, 12), (4, 4), (-4, -4))


def test_the_network_is_left_as_it_was() -> None:
    model = create_model("rn26-embed").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    receptive_fields(model, 16, ["stem"])
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
