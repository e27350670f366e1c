// The names of the classes on the map, and the class vectors. No name covers another or a vector; one that finds no free
// place is left out until the view comes nearer.
"use strict";

(function (T) {
  const CELLS = 24; // of a side of the map, in which the patches of a class are counted
  const NEAR = 20; // pixels between markers that overlap
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

  // Markers that overlap the first one of their group stand in a row beside it.
  T.inRows = function (points, near = NEAR) {
    const groups = [];
    return points.map(({ x, y }) => {
      const group = groups.find((one) => Math.hypot(one.x - x, one.y - y) < near);
      if (group) return { x: group.x + near * group.count++, y: group.y };
      groups.push({ x, y, count: 1 });
      return { x, y };
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
    const rows = T.inRows(vectors);
    vectors.forEach((vector, k) => move(vector, rows[k].x, rows[k].y));
    const markers = rows.map(({ x, y }) => ({ left: x - 11, top: y - 11, right: x + 11, bottom: y + 11 }));
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
