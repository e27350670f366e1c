"""Two-dimensional maps of the points by t-SNE (Fig. 5, Fig. 6, appendix B)."""

import hashlib
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tembed.analysis.neighbours import nearest
from tembed.arrays import Floats
from tembed.errors import TembedError
from tembed.extras import needs
from tembed.files import explained, write_file
from tembed.reporting.progress import Progress
from tembed.training.checksummed import seal, unseal

COMPONENTS = 50
"""Of the principal-component analysis in front."""
PERPLEXITY = 30
MANY = 10_000
"""Points from which on the forces are interpolated (FFT) and not summed over a tree (Barnes-Hut)."""
EARLY, LATE = 250, 500
"""Steps with the attraction exaggerated, and without."""
KIND = "map"


def principal(points: Floats, components: int = COMPONENTS) -> Floats:
    """The points by their first principal components, the largest first; all of them if there are fewer."""
    x = torch.from_numpy(points).double()
    x = x - x.mean(0)
    variances, directions = torch.linalg.eigh(x.T @ x)
    chosen = directions[:, variances.argsort(descending=True)[:components]]
    sign = torch.sign(chosen.gather(0, chosen.abs().argmax(0, keepdim=True)))  # an eigenvector's own is arbitrary
    return (x @ (chosen * sign)).float().numpy()


def tsne(points: Floats, seed: int = 0, progress: Progress | None = None) -> Floats:
    """The map ``(P, 2)`` of points ``(P, d)``: PCA, exact neighbours, then openTSNE on one thread."""
    return map_all({"points": points}, None, seed, progress)["points"]


def _tsne(points: Floats, seed: int, progress: Progress, what: str) -> Floats:
    openTSNE = needs("openTSNE")
    affinity = needs("openTSNE.affinity")
    neighbors = needs("openTSNE.nearest_neighbors")
    if len(points) < 3 * PERPLEXITY:
        raise TembedError(f"{len(points)} points are too few for a map: give more --images-per-class")
    reduced = principal(points)
    places, distances = nearest(reduced, min(3 * PERPLEXITY, len(points) - 1))
    # Equal points at distance zero would leave the width of their kernel undefined.
    distances = np.maximum(distances, np.float32(1e-6) * distances.mean() + np.finfo(np.float32).tiny)
    alike = affinity.PerplexityBasedNN(
        knn_index=neighbors.PrecomputedNeighbors(places, distances), perplexity=PERPLEXITY, n_jobs=1
    )
    start = openTSNE.initialization.rescale(reduced[:, :2].astype(np.float64))
    if start.shape[1] < 2:
        start = np.pad(start, ((0, 0), (0, 1)))
    start = openTSNE.initialization.jitter(start, random_state=seed)
    done = 0

    def watch(iteration: int, error: float, embedding: Any) -> None:
        progress.update(what, done + iteration, EARLY + LATE)

    told: dict[str, Any] = {"callbacks": watch, "callbacks_every_iters": 10}
    embedding = openTSNE.TSNEEmbedding(
        start,
        alike,
        negative_gradient_method="fft" if len(points) >= MANY else "bh",
        n_jobs=1,  # more gain nothing
        random_state=seed,
        **told,
    )
    embedding = embedding.optimize(EARLY, exaggeration=12, momentum=0.5)
    done = EARLY
    embedding = embedding.optimize(LATE, momentum=0.8)
    progress.update(what, EARLY + LATE, EARLY + LATE)
    return np.asarray(embedding, np.float32)


def _kept(points: Floats, folder: Path, seed: int, progress: Progress, what: str) -> Floats:
    """As `_tsne`, kept in ``folder``."""
    settings = f"{list(points.shape)} {seed} {COMPONENTS} {PERPLEXITY} {EARLY} {LATE} {needs('openTSNE').__version__}"
    digest = hashlib.sha256(settings.encode())
    digest.update(np.ascontiguousarray(points).data)
    path = folder / f"map-{digest.hexdigest()[:16]}.safetensors"
    if path.exists():
        try:
            return unseal(path, KIND)[0]["map"].numpy()
        except TembedError as error:
            progress.say(f"computing the map anew: {error}")
    found = _tsne(points, seed, progress, what)
    with explained(path):
        folder.mkdir(parents=True, exist_ok=True)
    write_file(path, seal({"map": torch.from_numpy(found)}, {"kind": KIND, "what": what}))
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
    spaces: dict[str, Floats], folder: Path | None, seed: int = 0, progress: Progress | None = None
) -> dict[str, Floats]:
    """The maps of several sets of points, one on each core, kept in ``folder`` if there is one."""
    watched = Stoppable(progress or Progress())

    def one(name: str) -> Floats:
        what = f"t-SNE of {name}"
        if folder is None:
            return _tsne(spaces[name], seed, watched, what)
        return _kept(spaces[name], folder, seed, watched, what)

    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        warnings.simplefilter("ignore")  # of what openTSNE itself depends on
        try:
            return dict(zip(spaces, pool.map(one, spaces), strict=True))
        except BaseException:  # Ctrl-C too
            watched.stopped = True
            raise
