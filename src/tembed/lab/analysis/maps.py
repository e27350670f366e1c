"""Two-dimensional maps of the points by t-SNE (Fig. 5, Fig. 6, appendix B)."""

import hashlib
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.common.arrays import Floats
from tembed.common.errors import TembedError
from tembed.common.extras import needs
from tembed.common.files import make_folder, write_file
from tembed.common.progress import SILENT, Progress
from tembed.lab.analysis.features import Features
from tembed.lab.analysis.neighbours import nearest
from tembed.trained.checksummed import checksummed_bytes, read_checksummed

COMPONENTS = 50
"""Number of principal components passed to t-SNE."""
PERPLEXITY = 30
FEWEST_POINTS = 3 * PERPLEXITY
"""Minimum of points for a map: t-SNE looks at this many neighbours of each."""
MANY = 10_000
"""From this many points on, the forces are interpolated (FFT) instead of summed over a tree (Barnes-Hut)."""
EARLY, LATE = 250, 500
"""Steps with exaggerated attraction, and without."""
FAST_POINTS, FAST_NEIGHBOURS = 1500, 5
"""A fast map has this many points by t-SNE, and each other point at the mean of this many of its neighbours."""
KIND = "map"
"""Marks a cache file as one of a map."""


def spaces_of(features: Features, baseline: Features | None) -> dict[str, Floats]:
    """The features that Fig. 5 compares: the stage-4 input of the baseline, the block's input and its output."""
    found = {} if baseline is None else {"baseline": baseline.block_output}
    found["block input"] = features.block_input
    if features.embedding is not None:
        found["block output"] = features.block_output
    return found


def principal(points: Floats, components: int = COMPONENTS) -> Floats:
    """The first principal components of the points ``(P, d)``, the largest first: ``(P, min(d, components))``."""
    x = torch.from_numpy(points).double()
    x = x - x.mean(0)
    variances, directions = torch.linalg.eigh(x.T @ x)
    chosen = directions[:, variances.argsort(descending=True)[:components]]
    sign = torch.sign(chosen.gather(0, chosen.abs().argmax(0, keepdim=True)))  # the sign of an eigenvector is arbitrary
    return (x @ (chosen * sign)).float().numpy()


def tsne(points: Floats, seed: int = 0, progress: Progress = SILENT) -> Floats:
    """The map ``(P, 2)`` of points ``(P, d)``: PCA, exact neighbours, then openTSNE on one thread."""
    return map_all({"points": points}, None, seed, progress)["points"]


def _tsne(points: Floats, seed: int, progress: Progress, task: str) -> Floats:
    openTSNE = needs("openTSNE")
    affinity = needs("openTSNE.affinity")
    neighbors = needs("openTSNE.nearest_neighbors")
    if len(points) < FEWEST_POINTS:
        raise TembedError(f"{len(points)} points are too few for a map: give more `images_per_class`")
    reduced = principal(points)
    indices, distances = nearest(reduced, min(FEWEST_POINTS, len(points) - 1))
    # Distances of zero between equal points would leave the width of the kernel undefined.
    distances = np.maximum(distances, np.float32(1e-6) * distances.mean() + np.finfo(np.float32).tiny)
    affinities = affinity.PerplexityBasedNN(
        knn_index=neighbors.PrecomputedNeighbors(indices, distances), perplexity=PERPLEXITY, n_jobs=1
    )
    start = openTSNE.initialization.rescale(reduced[:, :2].astype(np.float64))
    if start.shape[1] < 2:
        start = np.pad(start, ((0, 0), (0, 1)))
    start = openTSNE.initialization.jitter(start, random_state=seed)
    done = 0

    def report(iteration: int, error: float, embedding: Any) -> None:
        progress.update(task, done + iteration, EARLY + LATE)

    embedding = openTSNE.TSNEEmbedding(
        start,
        affinities,
        negative_gradient_method="fft" if len(points) >= MANY else "bh",
        n_jobs=1,  # more threads are not faster
        random_state=seed,
        callbacks=report,
        callbacks_every_iters=10,
    )
    embedding = embedding.optimize(EARLY, exaggeration=12, momentum=0.5)
    done = EARLY
    embedding = embedding.optimize(LATE, momentum=0.8)
    progress.update(task, EARLY + LATE, EARLY + LATE)
    return np.asarray(embedding, np.float32)


def _fast(points: Floats, seed: int, progress: Progress, task: str, fitted: int) -> Floats:
    """Like `_tsne` for some points; every other point is at the mean of those that it is nearest to.

    Means are weighted by the inverse distance. ``fitted``: the last points, this many, are among those of t-SNE.
    """
    if len(points) <= FAST_POINTS:
        return _tsne(points, seed, progress, task)
    drawn = np.random.default_rng(seed).permutation(len(points) - fitted)[:FAST_POINTS]
    chosen = np.concatenate([np.sort(drawn), np.arange(len(points) - fitted, len(points))])
    known = _tsne(points[chosen], seed, progress, task)
    reduced = torch.from_numpy(principal(points))
    found = np.empty((len(points), 2), np.float32)
    for start in range(0, len(points), 4096):
        distances = torch.cdist(reduced[start : start + 4096], reduced[chosen])
        near, which = distances.topk(min(FAST_NEIGHBOURS, len(chosen)), largest=False)
        weights = 1 / (near + 1e-6 * distances.mean() + torch.finfo(torch.float32).tiny)
        places = torch.from_numpy(known)[which]
        found[start : start + 4096] = ((weights[..., None] * places).sum(1) / weights.sum(1, keepdim=True)).numpy()
    found[chosen] = known
    return found


def _computed(points: Floats, seed: int, progress: Progress, task: str, fast: bool, fitted: int) -> Floats:
    return _fast(points, seed, progress, task, fitted) if fast else _tsne(points, seed, progress, task)


def _cached(
    points: Floats, folder: Path, seed: int, progress: Progress, task: str, fast: bool = False, fitted: int = 0
) -> Floats:
    """The same as `_computed`, read from ``folder`` if it has an undamaged copy, and written there if not."""
    settings = f"{list(points.shape)} {seed} {COMPONENTS} {PERPLEXITY} {EARLY} {LATE} {needs('openTSNE').__version__}"
    settings += f" {FAST_POINTS} {FAST_NEIGHBOURS} {fitted}" if fast else ""
    digest = hashlib.sha256(settings.encode())
    digest.update(np.ascontiguousarray(points).data)
    path = folder / f"map-{digest.hexdigest()[:16]}.safetensors"
    if path.exists():
        try:
            return read_checksummed(path, KIND)[0]["map"].numpy()
        except TembedError as error:
            progress.say(f"computing the map again: {error}")
    found = _computed(points, seed, progress, task, fast, fitted)
    make_folder(folder)
    write_file(path, checksummed_bytes({"map": torch.from_numpy(found)}, {"kind": KIND, "what": task}))
    return found


class Stoppable(Progress):
    """Forwards events until it is stopped; after that, the next update raises."""

    def __init__(self, progress: Progress):
        self.progress, self.stopped = progress, False

    def say(self, line: str) -> None:
        self.progress.say(line)

    def update(self, task: str, done: float, total: float, **numbers: object) -> None:
        if self.stopped:
            raise InterruptedError(task)
        self.progress.update(task, done, total, **numbers)


def map_all(
    spaces: dict[str, Floats],
    folder: Path | None,
    seed: int = 0,
    progress: Progress = SILENT,
    *,
    fast: bool = False,
    fitted: int = 0,
) -> dict[str, Floats]:
    """The maps of several sets of points, one on each core, cached in ``folder`` if one is given.

    ``fast``: t-SNE of `FAST_POINTS` points only, with all others beside them. ``fitted``: the last points of each set,
    this many, are always among those of t-SNE.
    """
    stoppable = Stoppable(progress)

    def one(name: str) -> Floats:
        task = f"t-SNE of {name}"
        if folder is None:
            return _computed(spaces[name], seed, stoppable, task, fast, fitted)
        return _cached(spaces[name], folder, seed, stoppable, task, fast, fitted)

    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        warnings.simplefilter("ignore")  # from the packages that openTSNE uses
        try:
            return dict(zip(spaces, pool.map(one, spaces), strict=True))
        except BaseException:  # Ctrl-C too
            stoppable.stopped = True
            raise
