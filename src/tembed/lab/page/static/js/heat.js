// A heat map over a photo, in the colours of `tembed explain`.
"use strict";

(function (T) {
  // Matplotlib's inferno at equal steps.
  const COLOURS = [[0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];
  const [COLD, HOT] = [0.25, 0.75]; // opacity of 0 and of 1

  // For each of `count` pixels, the places among `centres` (ascending, from 0 to 1) between which it lies: constant
  // beyond the outermost ones. Whole numbers are centres.
  T.between = function (centres, count) {
    return Float32Array.from({ length: count }, (_, pixel) => {
      const at = (pixel + 0.5) / count;
      const next = centres.findIndex((centre) => centre > at);
      if (next === 0) return 0;
      if (next < 0) return centres.length - 1;
      return next - 1 + (at - centres[next - 1]) / (centres[next] - centres[next - 1]);
    });
  };

  // Values from 0 to 1 of patches, row by row, whose centres are at `rows` and `columns`, as an image of this size.
  T.heat = function (values, rows, columns, height, width) {
    const image = new ImageData(width, height);
    const [down, across] = [T.between(rows, height), T.between(columns, width)];
    const value = (row, column) => values[Math.min(row, rows.length - 1) * columns.length + Math.min(column, columns.length - 1)];
    for (let y = 0; y < height; y++) {
      const [row, v] = [Math.floor(down[y]), down[y] % 1];
      for (let x = 0; x < width; x++) {
        const [column, u] = [Math.floor(across[x]), across[x] % 1];
        const upper = value(row, column) * (1 - u) + value(row, column + 1) * u;
        const lower = value(row + 1, column) * (1 - u) + value(row + 1, column + 1) * u;
        const share = upper * (1 - v) + lower * v;
        const step = share * (COLOURS.length - 1);
        const [low, high] = [COLOURS[Math.floor(step)], COLOURS[Math.ceil(step)]];
        const at = 4 * (y * width + x);
        for (let c = 0; c < 3; c++) image.data[at + c] = low[c] + (high[c] - low[c]) * (step % 1);
        image.data[at + 3] = 255 * (COLD + (HOT - COLD) * share);
      }
    }
    return image;
  };
})(window.tembed);
