"""One of two real processes that check what processes share: ``python peers.py RANK STORE FILE``."""

import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from tembed.lab.training.process_group import FabricGroup
from tembed.lab.training.synced_norm import synchronise

SHARES = (3, 2)


def errors(rank: int) -> dict[str, float]:
    """The largest difference from torch's BN on the whole batch, for everything that a step computes, in float64."""
    torch.manual_seed(0)
    whole = nn.BatchNorm2d(4).double()
    nn.init.normal_(whole.weight)
    nn.init.normal_(whole.bias)
    mine = nn.Sequential(copy.deepcopy(whole))
    synchronise(mine, torch.device("cpu"))
    names = list(mine.state_dict())
    differences = {"names": float(names != [f"0.{name}" for name in whole.state_dict()])}
    start, stop = (0, SHARES[0]) if rank == 0 else (SHARES[0], sum(SHARES))
    for _ in range(2):
        x = (100 + torch.randn(sum(SHARES), 4, 3, 5, dtype=torch.float64)).requires_grad_()
        g = torch.randn(x.shape, dtype=torch.float64)
        part = x.detach()[start:stop].to(memory_format=torch.channels_last).requires_grad_()
        expected, got = whole(x), mine(part)
        whole.zero_grad()
        mine.zero_grad()
        expected.backward(g)
        got.backward(g[start:stop])
        assert x.grad is not None
        assert part.grad is not None
        pairs = {"forward": (got, expected[start:stop]), "x": (part.grad, x.grad[start:stop])}
        for (name, p), q in zip(mine.named_parameters(), whole.parameters(), strict=True):
            assert p.grad is not None
            dist.all_reduce(p.grad)
            pairs[name] = (p.grad, q.grad)
        for (name, p), q in zip(mine.named_buffers(), whole.buffers(), strict=True):
            pairs[name] = (p.double(), q.double())
        for name, (here, there) in pairs.items():
            differences[name] = max(differences.get(name, 0.0), float((here - there).abs().max()))
    mine.eval()
    whole.eval()
    differences["evaluation"] = float((mine(part) - whole(part)).abs().max())
    return differences


def half(rank: int) -> float:
    """The largest difference between a share in half precision and float64."""
    torch.manual_seed(0)
    x = torch.randn(sum(SHARES), 4, 3, 5).bfloat16()
    norm = nn.Sequential(nn.BatchNorm2d(4))
    expected = copy.deepcopy(norm).double()(x.double())
    synchronise(norm, torch.device("cpu"))
    part = slice(0, SHARES[0]) if rank == 0 else slice(SHARES[0], None)
    got = norm(x[part])
    assert got.dtype == torch.bfloat16
    return float((got.double() - expected[part]).abs().max())


def means(rank: int) -> list[float]:
    """The means over a batch from those over its shares, and how many processes were asked to stop."""
    group = FabricGroup.__new__(FabricGroup)
    group.rank, group.world = rank, len(SHARES)
    own = torch.tensor([1.0, 10.0]) if rank == 0 else torch.tensor([2.0, 20.0])
    return group.batch_means(own, SHARES[rank] / sum(SHARES), stop=rank == 1).tolist()


def main() -> None:
    rank, store, file = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found = {"norm": errors(rank), "half": {"all": half(rank)}, "means": means(rank)}
    file.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
