// The map on the screen: its view, its animations, what is lit, and the elements that lie on top of it.
"use strict";

(function (T) {
  const MOVE = 900; // milliseconds of a change of layout
  const FLY = 600;
  const MANY = 200;
  const NEAR = 9; // pixels around the pointer in which a point counts as hit

  const ease = (t) => (t < 0.5 ? 4 * t * t * t : 1 - Math.pow(2 - 2 * t, 3) / 2);

  T.Map = class {
    // `elements`: stage, canvas and overlay. `changed` is called when the user or an animation moved the view.
    constructor(elements, patches, atlas, changed) {
      Object.assign(this, elements, { patches, atlas, changed });
      this.drawing = new T.Drawing(this.canvas, patches, atlas);
      this.items = [];
      this.animations = {};
      this.moved = 1;
      this.marks = true;
      this.mask = new Uint8Array(patches.count).fill(1);
      this.lit = [];
      this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
      this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
      this.canvas.addEventListener("webglcontextrestored", () => this.restore());
      this.measure();
      this.camera = T.camera.fit(this.width, this.height);
      new ResizeObserver(() => this.resize()).observe(this.stage);
    }

    restore() {
      this.drawing = new T.Drawing(this.canvas, this.patches, this.atlas);
      this.drawing.setPlaces(this.layout, this.layout);
      this.drawing.setMarks(this.colours.classes);
      this.updateStates();
    }

    measure() {
      this.width = Math.max(1, this.stage.clientWidth);
      this.height = Math.max(1, this.stage.clientHeight);
      const { most } = this.drawing;
      this.ratio = Math.min(2, window.devicePixelRatio || 1, most / this.width, most / this.height);
      const [width, height] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
      if (this.canvas.width !== width) this.canvas.width = width; // setting it clears the canvas
      if (this.canvas.height !== height) this.canvas.height = height;
    }

    resize() {
      const zoom = this.zoom();
      this.measure();
      this.camera = { ...this.camera, scale: zoom * T.camera.fit(this.width, this.height).scale };
      if (this.layout && this.colours) this.draw(); // at once: the canvas is empty and would be shown so
      else this.request();
    }

    zoom() {
      return this.camera.scale / T.camera.fit(this.width, this.height).scale;
    }

    // The place of a patch, or of a class vector after the patches, in the current layout.
    place(p) {
      return [this.layout[2 * p] / 65535, this.layout[2 * p + 1] / 65535];
    }

    // --- layouts and views

    setLayout(places, animated) {
      const from = this.layout || places;
      this.layout = places;
      this.drawing.setPlaces(from, places);
      if (!animated || from === places) this.moved = 1;
      else this.animate("move", MOVE, (t) => (this.moved = ease(t)));
      this.request();
    }

    setCamera(camera, animated) {
      delete this.animations.fly;
      if (!animated) {
        this.camera = camera;
        this.request();
        this.changed();
        return;
      }
      const from = this.camera;
      this.animate("fly", FLY, (t) => {
        this.camera = t === 1 ? camera : T.camera.between(from, camera, ease(t));
        if (t === 1) this.changed();
      });
    }

    fit(animated = true) {
      this.setCamera(T.camera.fit(this.width, this.height), animated);
    }

    // Shows these patches as near as possible: all of them, or of many all but the outermost tenth on each side.
    zoomTo(list) {
      const skip = list.length > MANY ? Math.floor(list.length / 10) : 0;
      const [xs, ys] = [0, 1].map((axis) => list.map((p) => this.place(p)[axis]));
      const ends = (values) => [values.sort((a, b) => a - b)[skip], values.at(-1 - skip)];
      const [[left, right], [top, bottom]] = [ends(xs), ends(ys)];
      const near = this.zoomFor(40) * T.camera.fit(this.width, this.height).scale;
      const scale = Math.min(near, (0.8 * this.width) / (right - left), (0.8 * this.height) / (bottom - top));
      this.setCamera({ x: (left + right) / 2, y: (top + bottom) / 2, scale }, true);
    }

    fly(p, zoom) {
      const [x, y] = this.place(p);
      const near = zoom || Math.max(this.zoom(), this.zoomFor(26));
      this.setCamera({ x, y, scale: near * T.camera.fit(this.width, this.height).scale }, true);
    }

    // The zoom at which a picture is this wide.
    zoomFor(pixels) {
      return (pixels * Math.sqrt(this.patches.count)) / T.camera.fit(this.width, this.height).scale;
    }

    animate(name, duration, step) {
      if (this.reduced.matches) {
        delete this.animations[name];
        step(1);
        this.request();
        return;
      }
      this.animations[name] = { start: null, duration, step };
      this.request();
    }

    // --- what is shown and lit

    setMask(mask) {
      this.mask = mask;
      this.updateStates();
    }

    setLit(lit) {
      this.lit = lit;
      this.updateStates();
    }

    updateStates() {
      this.drawing.states.set(this.mask);
      for (const p of this.lit) this.drawing.states[p] = 2;
      this.drawing.setStates();
      this.request();
    }

    // The patch at a pixel: the topmost picture, or from afar the nearest point. Null if there is none.
    pick(sx, sy) {
      const tile = T.camera.tile(this.camera, this.patches.count);
      const asPictures = T.camera.pictures(tile) >= 0.5;
      const reach = asPictures ? tile / 2 : Math.max(NEAR, tile / 2);
      const [x, y] = T.camera.toMap(this.camera, this, sx, sy);
      const limit = (65535 * reach) / this.camera.scale;
      let best = null;
      let bestRank = -Infinity;
      for (let p = 0; p < this.patches.count; p++) {
        const state = this.drawing.states[p];
        if (state === 0) continue;
        const dx = Math.abs(this.layout[2 * p] - 65535 * x);
        const dy = Math.abs(this.layout[2 * p + 1] - 65535 * y);
        if (dx > limit || dy > limit) continue;
        const rank = asPictures ? state * this.patches.count + p : -Math.hypot(dx, dy);
        if (rank >= bestRank) [best, bestRank] = [p, rank];
      }
      return best;
    }

    // --- elements on top of the map

    // Keeps an element at a place of the map; `place()` is asked whenever the view changes. `kind`: "name" for the name
    // of a class, "vector" for a class vector; labels.js keeps them from covering each other.
    pin(element, place, kind = null) {
      const item = { element, place, kind };
      this.items.push(item);
      this.overlay.append(element);
      this.request();
      return item;
    }

    unpin(item) {
      this.items = this.items.filter((one) => one !== item);
      item.element.remove();
    }

    // --- drawing

    request() {
      if (this.requested) return;
      this.requested = true;
      requestAnimationFrame((now) => {
        this.requested = false;
        this.frame(now);
      });
    }

    frame(now) {
      for (const [name, animation] of Object.entries(this.animations)) {
        animation.start = animation.start ?? now;
        const t = Math.min(1, (now - animation.start) / animation.duration);
        if (t === 1) delete this.animations[name];
        animation.step(t);
      }
      this.draw();
      if (Object.keys(this.animations).length) this.request();
    }

    draw() {
      const tile = T.camera.tile(this.camera, this.patches.count);
      this.drawing.draw({ ...this.colours, camera: this.camera, width: this.width, height: this.height,
        ratio: this.ratio, moved: this.moved, tile, marks: this.marks });
      const placed = { name: [], vector: [] };
      for (const item of this.items) {
        const { element, place, kind, size } = item;
        const [x, y] = T.camera.toScreen(this.camera, this, ...place());
        if (kind) placed[kind].push({ ...item, x, y });
        else element.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
        if (size) [element.style.width, element.style.height] = size.map((side) => `${(side * this.camera.scale).toFixed(1)}px`);
      }
      T.placeLabels(placed.name, placed.vector, this.width);
      this.overlay.classList.toggle("moving", "move" in this.animations);
    }

    // `colours`: paper, ink and accent, from 0 to 1, and the bytes of the classes.
    setColours(colours) {
      this.colours = colours;
      this.drawing.setMarks(colours.classes);
      this.request();
    }
  };
})(window.tembed);
