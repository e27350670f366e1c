"""Writes the folder of the page: the static files, and the data as classic scripts."""

import shutil
from pathlib import Path

from tembed.common.errors import TembedError
from tembed.common.files import below, make_folder, write_file
from tembed.lab.analysis.analyzing import Analysis
from tembed.lab.page.atlas import make_atlas
from tembed.lab.page.content import MOST, page_content
from tembed.lab.page.encoding import STATIC, array_script, base64_text, json_text
from tembed.lab.page.panels import panel_data, panel_scripts

STEPS = 4
PANELS = b"<!-- the scripts of the panels -->"
"""The place in ``index.html`` for the tags of these scripts."""


def build_page(analysis: Analysis, out: str | Path, *, network: bool = True, most: int = MOST) -> Path:
    """Write the page of an analysis into ``out`` and return the path of its ``index.html``.

    ``network``: include the network, so that the page can classify images; this needs the packages of
    ``tembed[onnx]``, and without them the page is built without the network. ``most``: above this many patches, only
    some of the images are shown.
    """
    out, progress = Path(out), analysis.progress
    content = page_content(analysis, most)
    progress.update("page", 1, STEPS)
    atlas = make_atlas(content.images)
    progress.update("page", 2, STEPS)
    scripts, missing = _network(analysis) if network else ({}, "build it again with tembed explore.")
    progress.update("page", 3, STEPS)
    about = content.about | {
        "atlas": {"columns": atlas.columns, "tile": list(atlas.tile), "size": list(atlas.size)},
        "noNetwork": missing,
    }
    files = {
        "data/about.js": f"tembed.about = {json_text(about)};\n".encode(),
        "data/atlas.js": f'tembed.atlas = "data:image/{atlas.kind};base64,{base64_text(atlas.content)}";\n'.encode(),
        "data/arrays.js": "".join(array_script(name, array) for name, array in content.arrays.items()).encode(),
        "data/panels.js": f"tembed.panelData = {json_text(panel_data(analysis))};\n".encode(),
        **scripts,
    }
    for path in sorted(STATIC.rglob("*")):
        if path.is_file() and "vendor" not in path.relative_to(STATIC).parts:
            files[path.relative_to(STATIC).as_posix()] = path.read_bytes()
    panels = {f"js/panels/{name}.js": script.encode() for name, script in panel_scripts().items()}
    tags = "\n".join(f'<script src="{name}"></script>' for name in panels)
    files |= panels | {"index.html": files["index.html"].replace(PANELS, tags.encode())}
    _clear(out)
    for name, written in files.items():
        make_folder(below(out, *Path(name).parent.parts))
        write_file(out / name, written)
    progress.update("page", STEPS, STEPS)
    return out / "index.html"


def _clear(out: Path) -> None:
    """Remove the scripts of an earlier page. Raises `TembedError` if the folder is something else."""
    about = out / "data" / "about.js"  # the file that is written first
    if about.is_file() and about.read_bytes().startswith(b"tembed.about"):
        for name in ("js", "network"):
            shutil.rmtree(out / name, ignore_errors=True)
    elif others := [name for name in ("js", "network", "data", "index.html") if (out / name).exists()]:
        raise TembedError(f"{out} has a {others[0]} that is not of a page of tembed: give another `out`")


def _network(analysis: Analysis) -> tuple[dict[str, bytes], str]:
    """The scripts of the network. If it cannot be exported, none, and why, which the user is told too."""
    from tembed.lab.page.page_network import network_scripts

    try:
        return network_scripts(analysis.network), ""
    except TembedError as error:
        analysis.progress.say(f"the page cannot classify dropped images: {error}")
        return {}, str(error)
