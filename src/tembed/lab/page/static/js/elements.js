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

    // Draws the pixels `box` of an image into a canvas that is `side` wide; grey outside the image.
    cut(canvas, image, box, side) {
      const { about } = this.patches;
      const [high, wide] = about.size;
      const scale = side / Math.max(box.right - box.left, box.bottom - box.top);
      const sharp = Math.min(2, window.devicePixelRatio || 1);
      canvas.width = Math.round((box.right - box.left) * scale * sharp);
      canvas.height = Math.round((box.bottom - box.top) * scale * sharp);
      canvas.style.width = `${canvas.width / sharp}px`;
      canvas.style.height = `${canvas.height / sharp}px`;
      const context = canvas.getContext("2d");
      context.fillStyle = "rgb(128,128,128)";
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.scale(scale * sharp, scale * sharp);
      context.translate(-box.left, -box.top);
      const [th, tw] = about.atlas.tile;
      const [column, row] = [image % about.atlas.columns, Math.floor(image / about.atlas.columns)];
      const [left, top] = [Math.max(0, box.left), Math.max(0, box.top)];
      const [w, h] = [Math.min(wide, box.right) - left, Math.min(high, box.bottom) - top];
      const [sx, sy] = [tw / wide, th / high];
      context.drawImage(this.atlas, column * tw + left * sx, row * th + top * sy, w * sx, h * sy, left, top, w, h);
      return context;
    }

    // A patch with a frame in the colour of its class.
    patch(p, side) {
      const canvas = T.el("canvas", { class: "thumb" });
      this.cut(canvas, this.patches.image(p), this.patches.box(p), side);
      canvas.style.borderColor = this.patches.colour(this.patches.label[p]);
      return canvas;
    }

    // The whole image of a patch, with everything outside the patch dimmed, and the window that holds half of the
    // evidence as a dashed line.
    source(canvas, p, side) {
      const [high, wide] = this.patches.about.size;
      const box = this.patches.box(p);
      const context = this.cut(canvas, this.patches.image(p), { left: 0, top: 0, right: wide, bottom: high }, side);
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
      element.append(this.patch(p, side));
      return element;
    }
  };

  // Bars for shares from 0 to 1: all classes if they are few, else the largest.
  T.bars = function (patches, shares, most = 12) {
    let order = shares.map((_, k) => k);
    if (order.length > most) order = order.sort((a, b) => shares[b] - shares[a]).slice(0, 10);
    const rows = order.map((k) =>
      T.el("div", { class: "bar" },
        T.el("span", { class: "name", text: patches.classes[k], title: patches.classes[k] }),
        T.el("span", { class: "track" },
          T.el("span", { class: "fill", style: { width: `${100 * shares[k]}%`, background: patches.colour(k) } })),
        T.el("span", { class: "number", text: shares[k].toFixed(2) })));
    return T.el("div", { class: "bars" }, ...rows);
  };
})(window.tembed);
