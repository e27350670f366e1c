"""A difference between accuracies, tested over test images and over seeds."""

import math
from dataclasses import dataclass

import numpy as np

from tembed.lab.claims.statistics import combined_error, one_sided
from tembed.lab.grid.cells import Sample

ON_PAR = 1.0
"""Accuracies on par differ by less than this many points. The block's own gains in Table 1 are about as large."""
MANY = 1e9
"""Degrees of freedom with which a t-test is a normal test."""


@dataclass(frozen=True)
class Contrast:
    """States that the summed accuracies of ``plus`` exceed those of ``minus``, all on the same ``test_images``.

    ``on_par``: it states instead that they differ by less than `ON_PAR`.
    """

    text: str
    plus: tuple[Sample, ...]
    minus: tuple[Sample, ...]
    test_images: int
    on_par: bool = False

    @property
    def samples(self) -> tuple[Sample, ...]:
        return self.plus + self.minus

    @property
    def n(self) -> int:
        """The number of seeds: that of the network with the fewest."""
        return min(sample.n for sample in self.samples)

    @property
    def value(self) -> float:
        """The difference in points."""
        return math.fsum(sample.mean for sample in self.plus) - math.fsum(sample.mean for sample in self.minus)

    @property
    def has_the_sign(self) -> bool:
        """Whether the difference is as stated, whatever its size means. Two decimals are printed, so 1e-6 is a tie."""
        return abs(self.value) < ON_PAR if self.on_par else self.value > 1e-6

    @property
    def is_paired(self) -> bool:
        """Whether it is known of every network which test images it classifies correctly."""
        return all(sample.correct is not None for sample in self.samples)

    def image_error(self) -> float:
        """The standard error over the choice of test images, in points.

        Paired where it is known which images each network classifies correctly: the networks mostly agree on them.
        Otherwise binomial for each network, added up as if they were tested on different images, which is larger. Seeds
        share the images, so more seeds do not reduce it.
        """
        if self.is_paired:
            plus, minus = (
                np.sum([sample.correct for sample in side if sample.correct is not None], axis=0)
                for side in (self.plus, self.minus)
            )
            return 100 * float(np.std(plus - minus, ddof=1)) / math.sqrt(self.test_images)
        shares = [min(max(sample.mean / 100, 0.0), 1.0) for sample in self.samples]
        return 100 * math.sqrt(sum(share * (1 - share) for share in shares) / self.test_images)

    def shown(self) -> str:
        """The difference with its 95 % interval over test images."""
        margin, paired = 1.96 * self.image_error(), ", paired" if self.is_paired else ""
        return f"{self.value:+.2f} [{self.value - margin:+.2f}, {self.value + margin:+.2f}]{paired}"

    def seed_error(self) -> tuple[float, float]:
        """The standard error over seeds, in points, and its degrees of freedom: Welch's and Satterthwaite's."""
        return combined_error([((sample.std or 0.0) ** 2 / sample.n, sample.n - 1) for sample in self.samples])

    def image_tails(self) -> tuple[float, float]:
        """The p-values for and against the statement, over test images."""
        return self.tails(self.image_error(), MANY)

    def seed_tails(self) -> tuple[float, float]:
        """The p-values for and against the statement, over seeds. All samples need two seeds or more."""
        error, freedom = self.seed_error()
        return self.tails(error, freedom) if error > 0 else (1.0, 1.0)  # equal results of all seeds show no spread

    def seed_test(self) -> tuple[float | None, str]:
        """The two-sided p-value of "no difference" over seeds; or None, and what a test needs."""
        if self.n < 2:
            return None, "needs two seeds each"
        error, freedom = self.seed_error()
        if error == 0:
            return None, "needs seeds with different results"
        return 2 * min(one_sided(self.value, error, freedom)), ""

    def tails(self, error: float, freedom: float) -> tuple[float, float]:
        """One-sided p-values. ``on_par`` needs two tests: the difference is above -`ON_PAR`, and below `ON_PAR`."""
        if not self.on_par:
            return one_sided(self.value, error, freedom)
        above, below = (one_sided(room, error, freedom) for room in (ON_PAR + self.value, ON_PAR - self.value))
        return max(above[0], below[0]), min(above[1], below[1])
