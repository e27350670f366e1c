"""The Ray engine on a real cluster of two nodes, one of which is killed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.grids import MINE, left_by, runs_of, start_grid, wait_until_training

# A busy machine must not look like a dead node.
PATIENT = {"health_check_timeout_ms": 60_000, "worker_register_timeout_seconds": 300}
SMALL = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_log_monitor": False}
START_SECONDS = 300
HEAD = SMALL | {"include_dashboard": False, "no_monitor": True, "_system_config": PATIENT}


@pytest.fixture
def cluster(alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one CPU each; started after ``alone``, so that they do not idle meanwhile."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray._private import services
    from ray.cluster_utils import Cluster

    get_node = services.get_node

    def wait_for_node(*arguments: Any) -> Any:
        """Ray allows a node half a minute to start, which may be too short on a busy machine."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    monkeypatch.setattr(services, "get_node", wait_for_node)
    nodes = Cluster()
    try:
        nodes.add_node(**HEAD)
        nodes.second = nodes.add_node(**SMALL)
        yield nodes
    finally:
        nodes.shutdown()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("default")  # Ray triggers warnings of its own
def test_a_grid_outlives_a_node_and_leaves_the_bits_of_the_local_engine(
    cluster: Any, tmp_path: Path, alone: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes import nothing from the current folder, where the grid file may have come with other files."""
    file, out = tmp_path / "mine.toml", tmp_path / "runs"
    file.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as if the grid were started by the script `tembed`
    for name in ("tembed", "lazy_loader"):
        Path(f"{name}.py").write_text(f"open({str(tmp_path)!r} + '/imported', 'w').close()\nraise ImportError")
    grid = start_grid(file, out, "--engine", "ray", "--address", cluster.address)
    wait_until_training(grid, out, runs=2, count=1)  # one on each node: each has one CPU
    while not all((run / "checkpoints" / "newest.safetensors").exists() for run in runs_of(out)):  # work to lose
        assert grid.poll() is None
        time.sleep(0.01)
    cluster.remove_node(cluster.second, allow_graceful=False)
    output, errors = grid.communicate(timeout=400)
    assert grid.returncode == 0, errors
    assert "lost its machine" in errors, errors
    assert "on a Ray cluster of 2 nodes" in errors
    assert "2 of 2 runs are finished, 2 of them by this command" in output
    assert left_by(out) == alone
    assert not Path("imported").exists()
