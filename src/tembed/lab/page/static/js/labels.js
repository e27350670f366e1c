// The labels of the class vectors. Vectors on top of each other share one label, and no label covers another.
"use strict";

(function (T) {
  const NEAR = 20; // pixels between markers that overlap
  const ZERO = "0";

  // Groups of points that overlap the first one of their group, as lists of indices.
  T.together = function (points, near = NEAR) {
    const groups = [];
    points.forEach(({ x, y }, k) => {
      const group = groups.find(([first]) => Math.hypot(points[first].x - x, points[first].y - y) < near);
      if (group) group.push(k);
      else groups.push([k]);
    });
    return groups;
  };

  // "plane", "plane, bird", "10 class vectors and 0".
  T.vectorText = function (names) {
    if (names.length <= 2) return names.join(", ");
    const zero = names.at(-1) === ZERO;
    return `${names.length - zero} class vectors${zero ? " and 0" : ""}`;
  };

  // `labels`: x and y of the marker, name and colour of the vector, and the element of its label. A label that would
  // end beyond `room`, the width of the map, is on the left of its marker.
  T.placeLabels = function (labels, room) {
    const groups = T.together(labels).map((group) => {
      const [{ x, y, element }, members] = [labels[group[0]], group.map((k) => labels[k])];
      for (const one of members) one.element.hidden = one.element !== element;
      const text = T.vectorText(members.map((one) => one.name));
      const swatches = members.length > 2 ? [] : members;
      if (element.dataset.members !== String(group)) {
        element.dataset.members = String(group);
        element.replaceChildren(...swatches.map((one) => T.swatch(one.colour)), text);
      }
      const width = 22 + 13 * swatches.length + 7 * text.length;
      const left = x + width > room && x > width;
      element.classList.toggle("left", left);
      return { x: left ? x - width - 26 : x, y, element, width };
    });
    const markers = labels.map(({ x, y }) => ({ x: x - 26, top: y, width: 24 }));
    T.apart(groups, markers).forEach((top, k) => (groups[k].element.style.transform = `translateY(${top - groups[k].y}px)`));
  };

  // New heights for labels at x, y with a width, moved down as little as needed so that none covers another or one of
  // the `obstacles`, which have an x, a top and a width.
  T.apart = function (labels, obstacles = [], height = 21) {
    const placed = [...obstacles];
    return labels.map(({ x, y, width }) => {
      let top = y;
      const least = height - 1e-6; // rounding must not make a label cover the one that it was just moved below
      const covers = (one) => Math.abs(one.top - top) < least && x < one.x + one.width && one.x < x + width;
      for (let hit = placed.find(covers); hit; hit = placed.find(covers)) top = hit.top + height;
      placed.push({ x, top, width });
      return top;
    });
  };
})(window.tembed);
