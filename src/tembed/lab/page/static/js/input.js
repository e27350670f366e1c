// Pointer, touch, wheel and keys on the map.
"use strict";

(function (T) {
  const STILL = 5; // pixels that a click may move
  const STEP = 80; // pixels of an arrow key

  // `on`: hover(p), select(p), region(box), key(name). `brushing()`: whether a drag selects a region.
  T.listenToMap = function (map, on, brushing) {
    const { stage } = map;
    const pointers = new Map();
    let moved = 0;
    let brush = null;

    const at = (event) => {
      const box = stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };

    const onButton = (event) => event.target.closest("button, a") !== null;

    const spread = () => {
      const [a, b] = [...pointers.values()];
      return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, wide: Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1])) };
    };

    stage.addEventListener("pointerdown", (event) => {
      if (onButton(event) || event.button > 0) return;
      stage.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, at(event));
      moved = pointers.size > 1 ? Infinity : 0;
      endBrush(null);
      brush = pointers.size === 1 && (event.shiftKey || brushing()) ? { start: at(event), element: null } : null;
    });

    stage.addEventListener("pointermove", (event) => {
      const now = at(event);
      const before = pointers.get(event.pointerId);
      if (!before) {
        if (event.pointerType !== "touch") on.hover(onButton(event) ? null : map.pick(...now));
        return;
      }
      const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      moved += Math.hypot(dx, dy);
      if (brush) {
        pointers.set(event.pointerId, now);
        showBrush(now);
      } else if (pointers.size === 2) {
        const old = spread();
        pointers.set(event.pointerId, now);
        const fresh = spread();
        const shifted = T.camera.pan(map.camera, fresh.x - old.x, fresh.y - old.y);
        map.setCamera(T.camera.zoom(shifted, map, fresh.x, fresh.y, fresh.wide / old.wide), false);
      } else {
        pointers.set(event.pointerId, now);
        if (moved > STILL) map.setCamera(T.camera.pan(map.camera, dx, dy), false);
      }
    });

    const end = (event) => {
      if (!pointers.delete(event.pointerId) || event.type === "pointercancel") return endBrush(null);
      if (moved <= STILL) on.select(map.pick(...at(event)));
      endBrush(moved > STILL ? at(event) : null);
    };
    stage.addEventListener("pointerup", end);
    stage.addEventListener("pointercancel", end);
    stage.addEventListener("pointerleave", () => on.hover(null));

    function showBrush(now) {
      if (!brush.element) {
        brush.element = T.el("div", { class: "brush" });
        stage.append(brush.element);
      }
      const [left, top] = [0, 1].map((k) => Math.min(brush.start[k], now[k]));
      Object.assign(brush.element.style, {
        left: `${left}px`,
        top: `${top}px`,
        width: `${Math.abs(now[0] - brush.start[0])}px`,
        height: `${Math.abs(now[1] - brush.start[1])}px`,
      });
    }

    function endBrush(now) {
      if (!brush) return;
      const { start, element } = brush;
      brush = null;
      if (element) element.remove();
      if (!now) return;
      const corners = [start, now].map((corner) => T.camera.toMap(map.camera, map, ...corner));
      const side = (k, choose) => choose(corners[0][k], corners[1][k]);
      on.region([side(0, Math.min), side(1, Math.min), side(0, Math.max), side(1, Math.max)]);
    }

    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016));
      map.setCamera(T.camera.zoom(map.camera, map, ...at(event), factor), false);
    }, { passive: false });

    stage.addEventListener("dblclick", (event) => {
      if (onButton(event)) return;
      map.setCamera(T.camera.zoom(map.camera, map, ...at(event), 2), true);
    });

    const MOVES = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("dialog")) return;
      const typing = event.target.closest("input, select, textarea");
      if (typing && event.key !== "Escape") return;
      const onMap = !event.target.closest("button, a, input, select");
      const [cx, cy] = [map.width / 2, map.height / 2];
      if (MOVES[event.key] && onMap) map.setCamera(T.camera.pan(map.camera, ...MOVES[event.key]), false);
      else if (event.key === "+" || event.key === "=") map.setCamera(T.camera.zoom(map.camera, map, cx, cy, 1.4), false);
      else if (event.key === "-") map.setCamera(T.camera.zoom(map.camera, map, cx, cy, 1 / 1.4), false);
      else if (event.key === "Enter" && onMap) on.select(nearestTo(cx, cy));
      else if (!on.key(event.key)) return;
      event.preventDefault();
    });

    // The shown patch nearest to a pixel, however far.
    function nearestTo(sx, sy) {
      const [x, y] = T.camera.toMap(map.camera, map, sx, sy);
      let best = null;
      let least = Infinity;
      for (let p = 0; p < map.patches.count; p++) {
        if (!map.mask[p]) continue;
        const [px, py] = map.place(p);
        const far = Math.hypot(px - x, py - y);
        if (far < least) [best, least] = [p, far];
      }
      return best;
    }
  };
})(window.tembed);
