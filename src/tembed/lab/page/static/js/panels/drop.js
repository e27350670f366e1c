// Drop an image: the network classifies it here, patch by patch, and its patches land on the map.
"use strict";

(function (T) {
  const LARGEST = 50e6; // pixels
  const LAND = 5;

  T.registerPanel("drop", "Drop", class {
    constructor(element, page) {
      Object.assign(this, { element, page });
      this.items = [];
      this.turn = 0;
      this.message = T.el("p", { class: "message", role: "status", "aria-live": "polite" });
      this.result = T.el("div", { class: "result" });
      const input = T.el("input", { type: "file", accept: "image/*", class: "file", "aria-label": "Choose an image",
        onchange: () => {
          const [file] = input.files;
          input.value = ""; // so that the same file can be chosen again
          if (file) this.take(file);
        } });
      element.append(
        T.el("label", { class: "zone" }, T.el("b", { text: "Drop an image here" }),
          T.el("span", { text: "or anywhere on the page, or choose a file" }), input),
        T.el("p", { class: "note", text: "The network runs in this page; the image stays on this computer. Each patch lands " +
          "at the mean place of its five nearest test patches." }),
        this.message, this.result);
      if (!page.patches.about.network) this.say(this.without());
      for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
      document.addEventListener("dragover", () => document.body.classList.add("dragging"));
      document.addEventListener("dragleave", (event) => {
        if (!event.relatedTarget) document.body.classList.remove("dragging");
      });
      document.addEventListener("drop", (event) => {
        document.body.classList.remove("dragging");
        const [file] = event.dataTransfer.files;
        this.page.store.set({ tab: "drop" });
        if (file) this.take(file);
        else this.say("That was no file: drop a picture from a folder.");
      });
    }

    without() {
      return "This page was built without the network: install tembed[onnx] and build it again with tembed explore.";
    }

    say(text) {
      this.message.textContent = text;
    }

    async take(file) {
      const turn = ++this.turn;
      const isLatest = () => turn === this.turn; // another image may be dropped while this one is computed
      this.clear();
      if (!this.page.patches.about.network) return this.say(this.without());
      this.say("Reading the image …");
      try {
        const picture = await this.read(file);
        if (!isLatest()) return;
        this.say("Loading the network …");
        await new Promise((resolve) => setTimeout(resolve, 30)); // lets the browser show the message
        const found = await T.network.run(picture.pixels, ...this.page.patches.about.size);
        if (isLatest()) this.show(picture.canvas, found, file.name);
      } catch (error) {
        if (!(error instanceof T.Refused)) console.warn(error);
        if (isLatest()) this.say(error instanceof T.Refused ? error.message : `The network could not run (${error.message}).`);
      }
    }

    // The picture as the network's input.
    async read(file) {
      if (/svg/.test(file.type) || /\.svgz?$/i.test(file.name)) {
        throw new T.Refused("An SVG file is a drawing without pixels: save it as PNG or JPEG and drop that.");
      }
      if (!file.type.startsWith("image/")) {
        throw new T.Refused("This file is not an image: drop a PNG, JPEG, WebP or GIF file.");
      }
      const address = URL.createObjectURL(file);
      try {
        const image = await T.bytes.picture(address).catch(() => {
          throw new T.Refused("This browser cannot read the image: it is damaged or in a format that browsers do not know.");
        });
        const [width, height] = [image.naturalWidth, image.naturalHeight];
        if (width * height > LARGEST) {
          const millions = Math.round((width * height) / 1e6);
          throw new T.Refused(`The image has ${millions} megapixels: make it smaller than ${LARGEST / 1e6} and drop it again.`);
        }
        const { size: [high, wide], fit } = this.page.patches.about;
        const place = T.placed(width, height, wide, high, fit);
        const canvas = T.el("canvas", { width: wide, height: high });
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.imageSmoothingQuality = "high";
        context.fillStyle = "rgb(128,128,128)"; // the borders of a padded picture
        context.fillRect(0, 0, wide, high);
        context.fillStyle = "white"; // behind a translucent picture
        context.fillRect(...place);
        context.drawImage(image, ...place);
        return { canvas, pixels: context.getImageData(0, 0, wide, high).data };
      } finally {
        URL.revokeObjectURL(address);
      }
    }

    show(canvas, { logits, scores, mixing }, name) {
      const { patches, metric, map } = this.page;
      const classes = patches.classes.length;
      const { perImage } = patches.about;
      const head = T.softmax(logits);
      const best = head.indexOf(Math.max(...head));
      const at = (array, cell) => Array.from({ length: classes }, (_, k) => array[k * perImage + cell]);
      this.cells = [];
      for (let cell = 0; cell < perImage; cell++) {
        const shares = T.softmax(at(scores, cell));
        const weights = mixing && metric.basis ? at(mixing, cell) : shares;
        const near = metric.nearest(metric.of(weights), LAND);
        this.cells.push({ cell, shares, near, place: () => T.landing(near, (p) => map.place(p)) });
      }
      this.items = this.cells.map((one) => map.pin(this.tile(canvas, one, 26, "dropped"), one.place));
      this.say("");
      this.detail = T.el("p", { class: "mixture", text: "Point at a patch to see what it matches." });
      this.result.replaceChildren(
        T.el("h3", { text: name }),
        T.el("p", { class: "answer" }, T.swatch(patches.colour(best)), `${patches.classes[best]}, ${Math.round(100 * head[best])} %`),
        T.bars(patches, head),
        T.el("h3", { text: "Its patches" }),
        T.evidence(patches.about),
        T.el("div", { class: "mosaic", style: { gridTemplateColumns: `repeat(${patches.about.map[1]}, 1fr)` } },
          ...this.cells.map((one) => this.tile(canvas, one, 30, "cell"))),
        this.detail,
        T.el("button", { class: "link", text: "remove the image", onclick: () => this.clear() }));
      map.fit();
    }

    // A patch of the dropped image as a button; its frame has the colour of the class that it matches best.
    tile(source, { cell, shares, near, place }, side, kind) {
      const { patches, map } = this.page;
      const { top, bottom, left, right } = patches.box(cell);
      const canvas = T.el("canvas", { width: 2 * side, height: 2 * side, class: "thumb" });
      const context = canvas.getContext("2d");
      context.fillStyle = "rgb(128,128,128)";
      context.fillRect(0, 0, 2 * side, 2 * side);
      context.scale((2 * side) / (right - left), (2 * side) / (bottom - top));
      context.drawImage(source, -left, -top);
      canvas.style.borderColor = patches.colour(shares.indexOf(Math.max(...shares)));
      const text = patches.mixture(shares);
      const tell = () => (this.detail.textContent = text);
      const fly = () => {
        const [x, y] = place();
        map.setCamera({ x, y, scale: Math.max(map.camera.scale, map.zoomFor(26) * T.camera.fit(map.width, map.height).scale) }, true);
      };
      return T.el("button", { class: `patch ${kind}`, title: text, "data-cell": cell, "data-near": near[0].patch,
        style: { "--side": `${side}px` }, onclick: fly, onpointerenter: tell, onfocus: tell }, canvas);
    }

    clear() {
      for (const item of this.items) this.page.map.unpin(item);
      this.items = [];
      this.result.replaceChildren();
      this.say("");
    }
  });

  // A file that cannot be used, with a sentence for the user.
  T.Refused = class extends Error {};
})(window.tembed);
