// Distances between embedding vectors: |f'_i - f'_j| = |(p_i - p_j) B| for mixing weights p and the basis B.
"use strict";

(function (T) {
  T.Metric = class {
    // `weights`: (P, C) integers; `step`: their unit; `basis`: (C, r), or null for plain distances of the weights.
    constructor(weights, step, classes, basis) {
      Object.assign(this, { classes, basis });
      this.rank = basis ? basis.length / classes : classes;
      const count = weights.length / classes;
      this.points = new Float32Array(count * this.rank);
      for (let p = 0; p < count; p++) {
        this.project(weights.subarray(p * classes, (p + 1) * classes), step, this.points, p * this.rank);
      }
    }

    // Writes `step * weights * B` into `out` at `start`. Most weights are 0.
    project(weights, step, out, start) {
      for (let k = 0; k < this.classes; k++) {
        const w = step * weights[k];
        if (w === 0) continue;
        if (!this.basis) out[start + k] = w;
        else for (let j = 0; j < this.rank; j++) out[start + j] += w * this.basis[k * this.rank + j];
      }
    }

    of(weights) {
      const point = new Float32Array(this.rank);
      this.project(weights, 1, point, 0);
      return point;
    }

    at(p) {
      return this.points.subarray(p * this.rank, (p + 1) * this.rank);
    }

    // The `count` nearest patches to a point, nearest first, as { patch, distance }. `image(p)`: take only the nearest
    // patch of each image, because those of one image are near duplicates. `leftOut`: an image to ignore.
    nearest(point, count, image = null, leftOut = -1) {
      const { points, rank } = this;
      let best = [];
      let worst = Infinity;
      for (let p = 0, at = 0; at < points.length; p++, at += rank) {
        let sum = 0;
        for (let j = 0; j < rank && sum < worst; j++) {
          const d = points[at + j] - point[j];
          sum += d * d;
        }
        if (sum >= worst) continue;
        if (image) {
          const own = image(p);
          if (own === leftOut || best.some((one) => image(one.patch) === own && one.sum <= sum)) continue;
          best = best.filter((one) => image(one.patch) !== own);
        }
        let k = best.length;
        while (k > 0 && best[k - 1].sum > sum) k--;
        best.splice(k, 0, { patch: p, sum });
        if (best.length > count) best.pop();
        if (best.length === count) worst = best[count - 1].sum;
      }
      return best.map(({ patch, sum }) => ({ patch, distance: Math.sqrt(sum) }));
    }
  };

  // Where a new point lands on a map: the mean of its nearest patches' places, weighted by inverse distance.
  T.landing = function (near, place) {
    let x = 0;
    let y = 0;
    let total = 0;
    for (const { patch, distance } of near) {
      if (distance < 1e-9) return place(patch);
      const [px, py] = place(patch);
      x += px / distance;
      y += py / distance;
      total += 1 / distance;
    }
    return [x / total, y / total];
  };
})(window.tembed);
