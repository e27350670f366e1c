// The names of the classes on the map, and the class vectors. None covers another; one that finds no free place near its
// own is left out until the view comes nearer.
"use strict";

(function (T) {
  const CELLS = 24; // of a side of the map, in which the patches of a class are counted
  const NEAR = 22; // pixels between markers that overlap
  const HEIGHT = 20; // of a name

  // Where most patches of each class lie in a layout: [{ x, y, count }], the mean place in the cell that has the most.
  T.classPlaces = function (patches, places) {
    const cells = patches.classes.map(() => new Map());
    for (let p = 0; p < patches.count; p++) {
      const [x, y] = [places[2 * p] / 65535, places[2 * p + 1] / 65535];
      const cell = Math.floor(x * CELLS) * (CELLS + 1) + Math.floor(y * CELLS);
      const found = cells[patches.label[p]];
      if (!found.has(cell)) found.set(cell, { x: 0, y: 0, count: 0 });
      const sum = found.get(cell);
      [sum.x, sum.y, sum.count] = [sum.x + x, sum.y + y, sum.count + 1];
    }
    return cells.map((found) => {
      const { x, y, count } = [...found.values()].reduce((a, b) => (b.count > a.count ? b : a), { x: 0, y: 0, count: 0 });
      return { x: x / count, y: y / count, count };
    });
  };

  // Steps around a place, the nearest first.
  const AROUND = [-2, -1, 0, 1, 2].flatMap((dx) => [-2, -1, 0, 1, 2].map((dy) => [dx, dy]));
  AROUND.sort((a, b) => Math.hypot(...a) - Math.hypot(...b) || b[0] - a[0]);

  // Places for markers, so that none overlaps another before it: their own, or the nearest free one around it; null if
  // there is none.
  T.sideBySide = function (points, near = NEAR) {
    const placed = [];
    return points.map(({ x, y }) => {
      const overlaps = (one, other) => Math.abs(one.x - other.x) < near - 1e-6 && Math.abs(one.y - other.y) < near - 1e-6;
      const found = AROUND.map(([dx, dy]) => ({ x: x + near * dx, y: y + near * dy }))
        .find((at) => !placed.some((one) => overlaps(one, at))) || null;
      if (found) placed.push(found);
      return found;
    });
  };

  // A box { left, top, right, bottom } for each name, the first ones first: the first of its candidates that covers no
  // box before it and none of `taken`, or null.
  T.free = function (candidates, taken = []) {
    const placed = [...taken];
    const covers = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return candidates.map((boxes) => {
      const found = boxes.find((box) => !placed.some((other) => covers(box, other))) || null;
      if (found) placed.push(found);
      return found;
    });
  };

  // Places the names and the markers of the vectors on a map that is `room` wide. Each has an element, x and y; a name
  // has a width, stays inside the map, and is at its place or just above, below or beside it.
  T.placeLabels = function (names, vectors, room) {
    const move = ({ element }, x, y) => (element.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`);
    const places = T.sideBySide(vectors);
    vectors.forEach((vector, k) => {
      vector.element.hidden = !places[k];
      if (places[k]) move(vector, places[k].x, places[k].y);
    });
    const markers = places.filter(Boolean).map(({ x, y }) => ({ left: x - 11, top: y - 11, right: x + 11, bottom: y + 11 }));
    const candidates = names.map(({ x, y, width }) => {
      const aside = width / 2 + 14;
      return [[0, 0], [0, 22], [0, -22], [aside, 0], [-aside, 0]].map(([dx, dy]) => {
        const wanted = x + dx - width / 2;
        const left = x > 0 && x < room ? Math.max(Math.min(wanted, room - width), 0) : wanted;
        return { left, top: y + dy - HEIGHT / 2, right: left + width, bottom: y + dy + HEIGHT / 2 };
      });
    });
    T.free(candidates, markers).forEach((box, k) => {
      names[k].element.hidden = !box;
      if (box) move(names[k], box.left, box.top);
    });
  };

  const measure = document.createElement("canvas").getContext("2d");
  T.nameWidth = function (text) {
    if (!measure) return 8 * text.length;
    measure.font = "650 12px system-ui, sans-serif";
    return measure.measureText(text).width + 26;
  };
})(window.tembed);
