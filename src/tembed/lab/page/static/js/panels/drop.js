// Drop an image: the network classifies it here, patch by patch, and its patches land on the map.
"use strict";

(function (T) {
  const LAND = 5;
  const SIDE = 280; // pixels of the photo in the panel

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
      this.say(this.without());
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

    // Why there is no network in this page; empty if there is one.
    without() {
      const { noNetwork } = this.page.patches.about;
      return noNetwork ? `This page was built without the network: ${noNetwork}` : "";
    }

    say(text) {
      this.message.textContent = text;
    }

    async take(file) {
      const turn = ++this.turn;
      const isLatest = () => turn === this.turn; // another image may be dropped while this one is computed
      this.clear();
      if (this.without()) return this.say(this.without());
      this.say("Reading the image …");
      try {
        const photo = await T.readPhoto(file);
        const { size: [high, wide], fit } = this.page.patches.about;
        const input = T.fitted(photo, wide, high, fit);
        if (!isLatest()) return;
        this.say("Loading the network …");
        await new Promise((resolve) => setTimeout(resolve, 30)); // lets the browser show the message
        const { data } = input.canvas.getContext("2d").getImageData(0, 0, wide, high);
        const found = await T.network.run(data, high, wide);
        if (isLatest()) this.show(photo, input, found, file.name);
      } catch (error) {
        if (!(error instanceof T.Refused)) console.warn(error);
        if (isLatest()) this.say(error instanceof T.Refused ? error.message : `The network could not run (${error.message}).`);
      }
    }

    show(photo, input, { logits, scores, mixing }, name) {
      const { patches, metric, map } = this.page;
      const { size: [high, wide], perImage } = patches.about;
      const classes = patches.classes.length;
      const image = { source: input.canvas, x: 0, y: 0, wide, high };
      const at = (array, cell) => Array.from({ length: classes }, (_, k) => array[k * perImage + cell]);
      this.cells = [];
      for (let cell = 0; cell < perImage; cell++) {
        const shares = T.softmax(at(scores, cell));
        const weights = mixing && metric.basis ? at(mixing, cell) : shares;
        const near = metric.nearest(metric.of(weights), LAND);
        this.cells.push({ cell, shares, near, place: () => T.landing(near, (p) => map.place(p)) });
      }
      this.items = this.cells.map((one) => map.pin(this.tile(image, one), one.place));
      this.head = T.softmax(logits);
      this.mean = this.head.map((_, k) => this.cells.reduce((sum, { shares }) => sum + shares[k], 0) / perImage);
      this.photo = T.el("canvas");
      this.about = T.el("p", { class: "note" });
      this.detail = T.el("p", { class: "mixture", text: "Point at the photo to see what a patch matches." });
      this.bars = T.bars(patches, this.head, { second: this.mean, pick: (k) => this.heat(photo, input.box, k) });
      this.say("");
      this.result.replaceChildren(
        T.el("h2", { text: name }),
        this.answer("head", "The head", this.head), this.answer("patches", "Its patches, on average", this.mean),
        T.el("div", { class: "photo" }, this.photo, this.grid(photo, input.box)),
        this.about, this.detail, T.evidence(patches.about),
        T.el("h2", { text: "Head (upper bar) and patches (lower bar)" }), this.bars,
        T.el("button", { class: "link", text: "remove the image", onclick: () => this.clear() }));
      this.heat(photo, input.box, best(this.head));
      map.fit();
    }

    answer(kind, who, shares) {
      const { patches } = this.page;
      const k = best(shares);
      return T.el("p", { class: `answer ${kind}` }, T.el("span", { class: "key", text: who }), T.swatch(patches.colour(k)),
        T.el("span", { text: `${patches.classes[k]}, ${Math.round(100 * shares[k])} %` }));
    }

    // The whole photo; on the part that the network got, what share of each patch a class has.
    heat(photo, box, k) {
      const { patches } = this.page;
      const { size, map, rows, columns } = patches.about;
      const scale = SIDE / photo.width;
      [this.photo.width, this.photo.height] = [SIDE, Math.max(1, Math.round(photo.height * scale))];
      const context = this.photo.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(photo, 0, 0, this.photo.width, this.photo.height);
      context.fillStyle = "rgb(255 255 255 / 55%)"; // what the network does not see
      context.fillRect(0, 0, this.photo.width, this.photo.height);
      const [left, top, right, bottom] = box.map((side) => side * scale);
      const [w, h] = [Math.round(right - left), Math.round(bottom - top)];
      context.drawImage(photo, ...[box[0], box[1], box[2] - box[0], box[3] - box[1]], left, top, w, h);
      const centres = (spans, side) => spans.map(([first, end]) => (Math.max(0, first) + Math.min(side, end)) / 2 / side);
      const heat = T.heat(this.cells.map(({ shares }) => shares[k]), centres(rows, size[0]), centres(columns, size[1]), h, w);
      const layer = new OffscreenCanvas(w, h);
      layer.getContext("2d").putImageData(heat, 0, 0);
      context.drawImage(layer, left, top);
      this.about.textContent = `Heat map: how much each patch takes the photo for ${patches.classes[k]}, from 0 (dark) to 1 (bright)` +
        `; ${map[0]} x ${map[1]} patches. Choose another class below.`;
      for (const bar of this.bars.children) bar.setAttribute("aria-pressed", Number(bar.dataset.class) === k);
    }

    // A button for each patch, over the part of the photo that the network got.
    grid(photo, [left, top, right, bottom]) {
      const { patches: { about: { map } } } = this.page;
      const percent = (value, side) => `${(100 * value) / side}%`;
      return T.el("div", { class: "grid", style: { left: percent(left, photo.width), top: percent(top, photo.height),
        width: percent(right - left, photo.width), height: percent(bottom - top, photo.height),
        gridTemplate: `repeat(${map[0]}, 1fr) / repeat(${map[1]}, 1fr)` } },
      ...this.cells.map((one) => this.button(one, "cell")));
    }

    // A patch of the dropped image on the map; its frame has the colour of the class that it matches best.
    tile(image, one) {
      const { pictures, patches } = this.page;
      const element = this.button(one, "dropped");
      element.append(pictures.framed(image, one.cell, 26, patches.colour(best(one.shares))));
      return element;
    }

    // Tells what a patch matches, and flies to its place.
    button({ cell, shares, near, place }, kind) {
      const { patches, map } = this.page;
      const text = patches.mixture(shares);
      const tell = () => (this.detail.textContent = text);
      const fly = () => {
        const [x, y] = place();
        map.setCamera({ x, y, scale: Math.max(map.camera.scale, map.zoomFor(26) * T.camera.fit(map.width, map.height).scale) }, true);
      };
      return T.el("button", { class: `patch ${kind}`, title: text, "aria-label": text, "data-cell": cell, "data-near": near[0].patch,
        onclick: fly, onpointerenter: tell, onfocus: tell });
    }

    clear() {
      for (const item of this.items) this.page.map.unpin(item);
      this.items = [];
      this.result.replaceChildren();
      this.say("");
    }
  });

  const best = (shares) => shares.indexOf(Math.max(...shares));
})(window.tembed);
