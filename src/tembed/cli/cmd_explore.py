"""``tembed explore``: every patch of a run as a picture on a map, in the browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tembed.cli.options import read_options


@dataclass(frozen=True)
class Explore:
    """Build a page that shows every patch of a trained run on a map. It opens by double click and needs no internet."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    baseline: str | None = None
    """another run on the same dataset, whose features become one more layout, such as rn26/cifar10 (default: none)"""
    images_per_class: int | None = None
    """test images of each class (default: 80, or fewer if that would exceed 800 in total)"""
    seed: int = 0
    """the seed of the sample of images, the maps and the words"""
    window: Literal["nominal", "effective"] = "nominal"
    """which pixels show a patch: the block's window, or the smallest one that holds half of the evidence"""
    out: Path | None = None
    """the folder of the page; with another folder than the default, features are kept in the default one only if it
    exists (default: RUN/analysis/page for a run folder, else analysis/NAME/page)"""
    network: bool = True
    """include the network, so that the page can classify images (9 MB more; needs tembed[onnx])"""
    open: bool = False
    """open the page in the browser when it is ready"""
    quiet: bool = False
    """print only where the page is"""


def main(arguments: list[str]) -> int:
    command = read_options(Explore, "tembed explore", arguments)
    import webbrowser

    from tembed.common.files import below, locked_folder
    from tembed.lab.analysis.analysis_folder import default_out
    from tembed.lab.analysis.analyzing import analyze
    from tembed.lab.page.builder import build_page
    from tembed.lab.terminal import stderr_progress

    analysis = default_out(command.source)
    cache = below(analysis, "cache") if command.out is None or analysis.is_dir() else None
    out = command.out or below(analysis, "page")
    with locked_folder(command.out or analysis), stderr_progress(command.quiet) as progress:
        found = analyze(
            command.source,
            baseline=command.baseline,
            images_per_class=command.images_per_class,
            seed=command.seed,
            cache=cache,  # the same as that of `tembed analyze`
            progress=progress,
            window=command.window,
        )
        page = build_page(found, out, network=command.network)
    print(f"the page: {page}")
    if command.open:
        webbrowser.open(page.absolute().as_uri())
    return 0
