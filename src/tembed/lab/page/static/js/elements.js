// Small builders of elements. Text is always set as text, so that no name can become markup.
"use strict";

(function (T) {
  function setStyle(element, key, value) {
    if (key.startsWith("--")) element.style.setProperty(key, value);
    else element.style[key] = value;
  }

  // T.el("button", { class: "chip", text: "plane", onclick: ... }, child, ...)
  T.el = function (tag, options = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, one] of Object.entries(value)) setStyle(element, key, one);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  T.swatch = (colour) => T.el("span", { class: "swatch", style: { background: colour } });

  // How much of the evidence the pictures of patches hold.
  T.evidence = ({ evidence }, more = "") =>
    T.el("p", { class: "note evidence", text: `${evidence.caption}${more}.`, title: evidence.note });

  T.count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;

  // Pictures of patches and images, cut out of the atlas.
  T.Pictures = class {
    constructor(patches, atlas) {
      Object.assign(this, { patches, atlas });
    }

    // Where an image of the analysis is: in the atlas, from x, y on, this wide and high there.
    stored(image) {
      const { columns, tile: [high, wide] } = this.patches.about.atlas;
      return { source: this.atlas, x: (image % columns) * wide, y: Math.floor(image / columns) * high, wide, high };
    }

    // Draws the pixels `box` of an image, as far as they lie inside it, so that the whole box would be `side` wide.
    cut(canvas, { source, x, y, wide, high }, box, side) {
      const { about: { size } } = this.patches;
      const [left, top] = [Math.max(0, box.left), Math.max(0, box.top)];
      const [w, h] = [Math.min(size[1], box.right) - left, Math.min(size[0], box.bottom) - top];
      const scale = side / Math.max(box.right - box.left, box.bottom - box.top);
      const sharp = Math.min(2, window.devicePixelRatio || 1);
      canvas.width = Math.max(1, Math.round(w * scale * sharp));
      canvas.height = Math.max(1, Math.round(h * scale * sharp));
      canvas.style.width = `${canvas.width / sharp}px`;
      canvas.style.setProperty("--share", w / (box.right - box.left));
      const context = canvas.getContext("2d");
      context.scale(scale * sharp, scale * sharp);
      context.translate(-left, -top);
      const [sx, sy] = [wide / size[1], high / size[0]];
      context.drawImage(source, x + left * sx, y + top * sy, w * sx, h * sy, left, top, w, h);
      return context;
    }

    // A patch of an image with a frame in the colour of a class.
    framed(image, p, side, colour) {
      const canvas = T.el("canvas", { class: "thumb", style: { borderColor: colour } });
      this.cut(canvas, image, this.patches.box(p), side);
      return canvas;
    }

    // The whole image of a patch, with everything outside the patch dimmed, and the window that holds half of the
    // evidence as a dashed line.
    source(canvas, p, side) {
      const [high, wide] = this.patches.about.size;
      const box = this.patches.box(p);
      const context = this.cut(canvas, this.stored(this.patches.image(p)), { left: 0, top: 0, right: wide, bottom: high }, side);
      const unit = Math.max(high, wide) / side;
      context.fillStyle = "rgba(0,0,0,0.45)";
      context.beginPath();
      context.rect(0, 0, wide, high);
      context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
      context.fill("evenodd");
      context.strokeStyle = "white";
      context.lineWidth = 2 * unit;
      context.strokeRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
      const { half } = this.patches.about.evidence;
      context.setLineDash([3 * unit, 3 * unit]);
      context.lineWidth = unit;
      if (half) context.strokeRect(box.left - half, box.top - half, box.right - box.left + 2 * half, box.bottom - box.top + 2 * half);
      return box;
    }

    // A patch as a button.
    button(p, side, title, click) {
      const element = T.el("button", { class: "patch", title, "data-patch": p, onclick: () => click(p) });
      element.append(this.framed(this.stored(this.patches.image(p)), p, side, this.patches.colour(this.patches.label[p])));
      return element;
    }
  };

  // Bars for shares from 0 to 1: all classes if they are few, else the largest. `second`: other shares, below the first.
  // `pick(k)`: what a click on a class does.
  T.bars = function (patches, shares, { most = 12, second = null, pick = null } = {}) {
    let order = shares.map((_, k) => k);
    if (order.length > most) order = order.sort((a, b) => shares[b] - shares[a]).slice(0, 10);
    const track = (of, k) => T.el("span", { class: "track" },
      T.el("span", { class: "fill", style: { width: `${100 * of[k]}%`, background: patches.colour(k) } }));
    const all = second ? [shares, second] : [shares];
    const rows = order.map((k) =>
      T.el(pick ? "button" : "div", { class: "bar", "data-class": k, onclick: () => pick && pick(k) },
        T.el("span", { class: "name", text: patches.classes[k], title: patches.classes[k] }),
        T.el("span", { class: "tracks" }, ...all.map((of) => track(of, k))),
        ...all.map((of) => T.el("span", { class: "number", text: of[k].toFixed(2) }))));
    return T.el("div", { class: second ? "bars two" : "bars" }, ...rows);
  };
})(window.tembed);
