"""``tembed analyze``: the paper's figures and claims for a trained run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tembed.cli.options import read_options
from tembed.common.accelerators import Accelerator
from tembed.common.errors import counted

if TYPE_CHECKING:
    from tembed.lab.claims.claim import Claim


@dataclass(frozen=True)
class Analyze:
    """Draw the figures of the paper's analysis for a trained run, and measure the paper's claims.

    A run without patch scores, such as rn26, gets a report on its BN-ReLU units.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """a run folder, a weights file, or the name of shipped weights such as rn26-embed/cifar10"""
    baseline: str | None = None
    """another run on the same dataset to compare with, such as rn26/cifar10 (default: none)"""
    also: tuple[str, ...] = ()
    """further runs, each a seed of RUN, of the baseline, of its -aux or of its -1x1 network; three seeds of each give
    a verdict on the method (default: none)"""
    images_per_class: int | None = None
    """test images of each class (default: 80 or as many as there are, and fewer if that would exceed 800 in total)"""
    super_classes: Path | None = None
    """a JSON file {"super-class": ["class", ...]} (default: the super-classes of the dataset, if it has any)"""
    seed: int = 0
    """the seed of the sample of images, the maps and the words"""
    window: Literal["nominal", "effective"] = "nominal"
    """which pixels show a patch: the block's window, or the smallest one that holds half of the evidence"""
    out: Path | None = None
    """the folder for the files (default: RUN/analysis for a run folder, else analysis/NAME)"""
    fast_maps: bool = False
    """a first look in about a minute: 100 images in total, 250 for the knock-outs, and t-SNE of 1,500 patches with the
    others beside them"""
    network: bool = True
    """include the network in the page, so that it can classify images (9 MB more; needs tembed[onnx])"""
    accelerator: Accelerator = "auto"
    """what to compute on; auto: a GPU if there is one"""
    quiet: bool = False
    """print only where the report is"""


def main(arguments: list[str]) -> int:
    command = read_options(Analyze, "tembed analyze", arguments)
    from tembed.common.files import below, locked_folder
    from tembed.lab.analysis.analysis_folder import default_out
    from tembed.lab.analysis.analyzing import analyze
    from tembed.lab.analysis.knock_outs import NO_EMBEDDING
    from tembed.lab.analysis.sampling import read_groups
    from tembed.lab.claims import measure_claims
    from tembed.lab.page.builder import build_page
    from tembed.lab.report.analysis_report import write_analysis
    from tembed.lab.terminal import stderr_progress

    out = command.out or default_out(command.source)
    cache, folder = below(out, "cache"), below(out, "page")
    with locked_folder(out), stderr_progress(command.quiet) as progress:
        found = analyze(
            command.source,
            baseline=command.baseline,
            also=command.also,
            images_per_class=command.images_per_class,
            groups=None if command.super_classes is None else read_groups(command.super_classes),
            seed=command.seed,
            cache=cache,
            progress=progress,
            window=command.window,
            fast_maps=command.fast_maps,
            accelerator=command.accelerator,
        )
        claims = measure_claims(found)
        report = write_analysis(found, out, page="page/index.html" if found.has_maps else None, claims=claims)
        page = build_page(found, folder, network=command.network) if found.has_maps else None
    if not command.quiet and found.has_maps and NO_EMBEDDING in found.knock_outs.knock_outs:
        print(found.knock_outs.at_work())
    if page is not None:
        print(f"every patch on a map: {page}")
    show(claims, report, command.quiet)
    return 0


def show(claims: list["Claim"], report: Path, quiet: bool) -> None:
    if not quiet:
        measured = [claim for claim in claims if claim.was_measured]
        for claim in measured:
            print(f"{claim.weights.verdict:<14}{claim.name}: {claim.weights.why}")
        if missing := len(claims) - len(measured):
            print(f"not measured  {counted(missing, 'claim')}, named in the report with the reason")
    print(f"the report: {report} and {report.with_suffix('.html')}")
