// The density of the patches from afar, as a small picture: mean class colour, and more opaque where there are more.
"use strict";

(function (T) {
  const CELL = 2; // CSS pixels per texel
  const SHOWN = 0.55; // weight of a patch in one texel, if it all fell into it
  const FAINT = 0.05; // the same for a patch that is filtered out

  // The opacity of a sum of weights, as a table: 1 - exp(-sum), up to a sum of 8.
  const OPACITY = Float32Array.from({ length: 1025 }, (_, k) => 1 - Math.exp(-k / 128));

  // `places`: x, y before and after a change of layout; `frames`: colours of the true classes, four bytes each;
  // `view`: camera, width, height, moved, and ink for what is filtered out. Gives width, height and premultiplied bytes.
  T.density = function (places, states, frames, count, view) {
    const { camera, moved } = view;
    const width = Math.ceil(view.width / CELL);
    const height = Math.ceil(view.height / CELL);
    const sums = new Float32Array(4 * width * height);
    const scale = camera.scale / CELL;
    const [startX, startY] = [width / 2 - camera.x * scale, height / 2 - camera.y * scale];
    const ink = view.ink.map((one) => 255 * one);
    for (let p = 0, at = 0; p < count; p++, at += 4) {
      const x = ((places[at] + (places[at + 2] - places[at]) * moved) / 65535) * scale + startX;
      const y = ((places[at + 1] + (places[at + 3] - places[at + 1]) * moved) / 65535) * scale + startY;
      const [column, row] = [Math.floor(x), Math.floor(y)];
      if (column < 1 || row < 1 || column > width - 2 || row > height - 2) continue;
      const faint = states[p] === 0;
      const [dx, dy] = [x - column - 0.5, y - row - 0.5];
      const weight = faint ? FAINT : SHOWN;
      const [red, green, blue] = faint ? ink : [frames[at], frames[at + 1], frames[at + 2]];
      // Quadratic B-spline: the weights of three neighbouring texels change smoothly, so that nothing flickers when the
      // map moves.
      const across0 = 0.5 * (0.5 - dx) * (0.5 - dx);
      const across1 = 0.75 - dx * dx;
      const across2 = 0.5 * (0.5 + dx) * (0.5 + dx);
      for (let k = -1; k <= 1; k++) {
        const down = weight * (k < 0 ? 0.5 * (0.5 - dy) * (0.5 - dy) : k > 0 ? 0.5 * (0.5 + dy) * (0.5 + dy) : 0.75 - dy * dy);
        let texel = 4 * ((row + k) * width + column - 1);
        for (let j = 0; j < 3; j++, texel += 4) {
          const w = down * (j === 0 ? across0 : j === 1 ? across1 : across2);
          sums[texel] += w * red;
          sums[texel + 1] += w * green;
          sums[texel + 2] += w * blue;
          sums[texel + 3] += w;
        }
      }
    }
    const bytes = new Uint8Array(sums.length);
    for (let texel = 0; texel < sums.length; texel += 4) {
      const sum = sums[texel + 3];
      if (sum < 1e-3) continue;
      const opacity = OPACITY[Math.min(1024, Math.round(128 * 3 * sum))];
      const share = opacity / sum;
      bytes[texel] = sums[texel] * share + 0.5;
      bytes[texel + 1] = sums[texel + 1] * share + 0.5;
      bytes[texel + 2] = sums[texel + 2] * share + 0.5;
      bytes[texel + 3] = 255 * opacity + 0.5;
    }
    return { width, height, bytes };
  };
})(window.tembed);
