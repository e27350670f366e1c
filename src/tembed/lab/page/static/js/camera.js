// The view of the map. The map is the unit square with y downwards; `scale` is its side in pixels.
"use strict";

(function (T) {
  const MARGIN = 0.92;
  const LARGEST = 64;
  const CLOSEST = 24;

  T.camera = {
    fit(width, height) {
      return { x: 0.5, y: 0.5, scale: MARGIN * Math.min(width, height) };
    },

    toScreen(camera, size, x, y) {
      return [(x - camera.x) * camera.scale + size.width / 2, (y - camera.y) * camera.scale + size.height / 2];
    },

    toMap(camera, size, sx, sy) {
      return [(sx - size.width / 2) / camera.scale + camera.x, (sy - size.height / 2) / camera.scale + camera.y];
    },

    pan(camera, dx, dy) {
      return this.clamp({ ...camera, x: camera.x - dx / camera.scale, y: camera.y - dy / camera.scale });
    },

    // Zooms by `factor`; the place under (sx, sy) stays there.
    zoom(camera, size, sx, sy, factor) {
      const least = this.fit(size.width, size.height).scale / 2;
      const scale = Math.min(Math.max(camera.scale * factor, least), least * 2 * CLOSEST * 4);
      const [x, y] = this.toMap(camera, size, sx, sy);
      return this.clamp({
        x: x - (sx - size.width / 2) / scale,
        y: y - (sy - size.height / 2) / scale,
        scale,
      });
    },

    clamp(camera) {
      const inside = (v) => Math.min(1, Math.max(0, v));
      return { ...camera, x: inside(camera.x), y: inside(camera.y) };
    },

    // The side of a patch's picture in pixels: patches of an evenly filled map would just touch, up to a limit.
    tile(camera, count) {
      return Math.min(LARGEST, Math.max(2, camera.scale / Math.sqrt(count)));
    },

    // How opaque pictures are: 0 below 6 pixels, where density says more, 1 from 12 pixels on.
    pictures(tile) {
      const t = Math.min(1, Math.max(0, (tile - 6) / 6));
      return t * t * (3 - 2 * t);
    },

    // Between two views: the scale changes by equal factors, the place moves with the visible distance.
    between(from, to, t) {
      const scale = from.scale * Math.pow(to.scale / from.scale, t);
      const share = Math.abs(to.scale / from.scale - 1) < 1e-3
        ? t : (1 / from.scale - 1 / scale) / (1 / from.scale - 1 / to.scale);
      return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share, scale };
    },
  };
})(window.tembed);
