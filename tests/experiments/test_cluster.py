"""The Ray engine on a real cluster of two nodes, one of which is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiments.grids import MINE, left_by, start_grid, wait_until_training


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    memory = 100 * 2**20
    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": memory},
    )
    nodes.second = nodes.add_node(num_cpus=1, object_store_memory=memory)
    yield nodes
    nodes.shutdown()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_grid_outlives_a_node_and_leaves_the_bits_of_the_local_engine(
    cluster: Any, tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "runs"
    file.write_text(MINE)
    grid = start_grid(file, out, "--engine", "ray", "--address", cluster.address)
    wait_until_training(grid, out, runs=2, count=1)  # one on each node: each has one CPU
    cluster.remove_node(cluster.second, allow_graceful=False)
    said, told = grid.communicate(timeout=400)
    assert grid.returncode == 0, told
    assert told.count("lost its machine") == 1, told
    assert "on a Ray cluster of 2 nodes" in told
    assert "2 of 2 runs are finished, 2 of them by this command" in said
    assert left_by(out) == alone
