"""Does the block's output separate the super-classes better than its input and the baseline? (§4.3, Fig. 5)"""

import warnings

import numpy as np
from numpy.typing import NDArray

from tembed.analysis.claims import register_claim
from tembed.analysis.claims.statistics import Array, Bootstrap, combine, decide, weighted_mean
from tembed.analysis.features import Features
from tembed.analysis.neighbours import neighbourhood, purity, silhouette
from tembed.arrays import Floats, Int64
from tembed.claims import Claim, Measure, Verdict, not_measured
from tembed.extras import needs
from tembed.reporting.progress import SILENT, Progress

K = 10
"""Number of neighbours per patch for purity."""
PAPER = (
    "the baseline's features before the last stage are scattered; animals and vehicles separate in the block, "
    "not before it"
)


def spaces_of(features: Features, baseline: Features | None) -> dict[str, Floats]:
    """The features that Fig. 5 compares: the stage-4 input of the baseline, the block's input and its output."""
    found = {} if baseline is None else {"baseline": baseline.block_output}
    found["block input"] = features.block_input
    if features.embedding is not None:
        found["block output"] = features.block_output
    return found


def separation_claims(
    features: Features,
    baseline: Features | None,
    group_of: Int64 | None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Claim]:
    """Purity, silhouette and probe in each of the spaces. ``group_of``: ``(C,)``, the super-class of each class."""
    labels, image_of = features.labels, features.image_of
    classes = labels[image_of]
    groups = classes if group_of is None else group_of[classes]
    count = int(groups.max()) + 1
    points: dict[str, dict[str, NDArray[np.floating]]] = {"class": {}, "super": {}, "silhouette": {}, "probe": {}}
    spaces = spaces_of(features, baseline)
    for done, (name, space) in enumerate(spaces.items()):
        progress.update("separation", done, len(spaces))
        near = neighbourhood(space, features.per_image, groups, count, K)
        points["class"][name] = purity(near.nearest, classes)
        if group_of is not None:
            points["super"][name] = purity(near.nearest, groups)
            points["silhouette"][name] = silhouette(near.distances, groups)
            points["probe"][name] = probe(space, image_of, labels, groups)
    progress.update("separation", len(spaces), len(spaces))
    bootstrap = Bootstrap(labels, seed)
    share = np.bincount(groups) / len(groups)
    class_share = np.bincount(classes) / len(classes)
    claims = [
        _claim(
            "class purity",
            f"mean share of the {K} nearest patches from other images that show the patch's class; "
            f"chance level {np.square(class_share).sum():.3f}",
            points["class"],
            bootstrap,
        )
    ]
    for key, name, definition in (
        (
            "super",
            "super-class purity",
            f"the same for super-classes; chance level {np.square(share).sum():.3f}",
        ),
        (
            "silhouette",
            "super-class silhouette",
            "mean of (b - a) / max(a, b), with a the mean distance of a patch to its super-class and b to the nearest "
            "other one; patches of its own image are left out; 0 means no separation",
        ),
        (
            "probe",
            "super-class probe",
            "share of the patches whose super-class is predicted correctly by a logistic regression fitted on the "
            f"other half of the images (both halves in turn); the largest super-class alone gives {share.max():.3f}",
        ),
    ):
        if group_of is None:
            claims.append(not_measured(name, PAPER, "the dataset has no super-classes and none were given"))
        else:
            claims.append(_claim(name, definition, points[key], bootstrap))
    return claims


def probe(space: Floats, image_of: Int64, labels: Int64, groups: Int64) -> Array:
    """Whether a linear probe predicts each point's super-class: ``(P,)``.

    It is fitted on one half of each class's images and tested on the other half, and vice versa.
    """
    linear, errors = needs("sklearn.linear_model"), needs("sklearn.exceptions")
    half = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        images = np.flatnonzero(labels == label)
        half[images] = np.arange(len(images)) % 2
    right = np.zeros(len(space))
    for fold in (0, 1):
        fit, test = half[image_of] != fold, half[image_of] == fold
        mean, spread = space[fit].mean(0), space[fit].std(0) + 1e-6
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.ConvergenceWarning)  # an approximate fit is enough for a probe
            model = linear.LogisticRegression(max_iter=200, tol=1e-3).fit((space[fit] - mean) / spread, groups[fit])
        right[test] = model.predict((space[test] - mean) / spread) == groups[test]
    return right


def _claim(name: str, definition: str, points: dict[str, NDArray[np.floating]], bootstrap: Bootstrap) -> Claim:
    values: dict[str, Measure] = {space: bootstrap.mean(found) for space, found in points.items()}
    if "block output" not in points:
        why = "the scores are not fed back (deep supervision), so there is no block output to compare"
        return Claim(name, PAPER, definition, "not measured", why, values)
    images = len(bootstrap.labels)
    after = weighted_mean(points["block output"], images)
    verdicts: list[tuple[Verdict, str]] = []
    for other in ("block input", "baseline"):
        if other in points:
            before = weighted_mean(points[other], images)
            verdicts.append(decide(bootstrap.difference(after, before), f"output minus {other}:"))
    verdict, why = combine(verdicts)
    return Claim(name, PAPER, definition, verdict, why if "baseline" in points else f"{why}; no baseline given", values)


register_claim(
    "separation",
    lambda analysis: separation_claims(
        analysis.features, analysis.baseline, analysis.group_of, analysis.seed, analysis.progress
    ),
)
