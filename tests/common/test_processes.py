"""No process imports from the current folder: a folder of pictures runs no code."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tembed.cli.main import main

COMMAND = "import sys\nfrom tembed.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
"""The installed script `tembed`. Python puts the folder of a script on the path, not the current one."""
NOTEBOOK = """
import sys
from tembed.lab.data.importing import import_images
if __name__ == "__main__":
    sys.path.insert(0, "")
    import_images(".", "photos")
"""
"""The current folder is on the path of a notebook, but what the notebook uses is imported by then."""
PLANTED = ("socket", "selectors", "queue", "numpy", "PIL")
"""Modules that multiprocessing and the decoding processes import."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough pictures for several processes, and modules that leave a file when they are imported."""
    folder = tmp_path_factory.mktemp("photos")
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "PNG")
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        for number in range(1010):
            (folder / name / f"{number}.png").write_bytes(content.getvalue())
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"import os\nopen(os.environ['MARKS'] + '/{name}', 'w').close()")
    return folder


@pytest.mark.process
@pytest.mark.parametrize("way", ["script", "module", "notebook"])
def test_the_processes_that_decode_a_folder_run_nothing_in_it(photos: Path, tmp_path: Path, way: str) -> None:
    command = ["data", "import", ".", "--name", "photos"]
    script, marks = tmp_path / "script.py", tmp_path / "marks"
    script.write_text(NOTEBOOK if way == "notebook" else COMMAND)
    marks.mkdir()
    line = {"script": [str(script), *command], "module": ["-m", "tembed", *command], "notebook": [str(script)]}[way]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment |= {"TEMBED_DATA": str(tmp_path / "data"), "MARKS": str(marks)}
    ended = subprocess.run([sys.executable, *line], cwd=photos, env=environment, capture_output=True, text=True)
    assert not list(marks.iterdir())
    assert ended.returncode == 0, ended.stderr


def test_a_command_gives_every_process_that_it_starts_a_safe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that torch or another package starts."""
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setattr(sys, "argv", ["tembed", "--version"])
    assert main() == 0
    assert os.environ["PYTHONSAFEPATH"] == "1"
