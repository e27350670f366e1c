// Starts the page and connects its parts.
"use strict";

(function (T) {
  const find = (id) => document.getElementById(id);

  class Page {
    constructor(about, arrays, atlas) {
      this.patches = new T.Patches(about, arrays);
      this.pictures = new T.Pictures(this.patches, atlas);
      this.metric = new T.Metric(arrays.mixing || arrays.softmax, about.metric.step, about.classes.length, arrays.basis || null);
      this.spaceName = about.metric.space === "embedding" ? "embedding vector" : "prediction";
      this.store = new T.Store(T.readAddress(location.hash, about));
      this.hovered = null;
      this.brushing = false;
      const elements = { stage: find("stage"), canvas: find("canvas"), overlay: find("overlay") };
      this.map = new T.Map(elements, this.patches, atlas, () => this.viewed());
      this.go = (p) => this.select(p, true);
      this.pickWord = (word) => this.store.set({ word, tab: "words" });
      this.card = new T.Card(find("card"), this, { go: this.go, pickWord: this.pickWord, close: () => this.select(null) });
      this.panels = {
        filter: new T.FilterPanel(find("panel-filter"), this),
        words: new T.WordsPanel(find("panel-words"), this),
        mix: new T.MixPanel(find("panel-mix"), this),
        drop: new T.DropPanel(find("panel-drop"), this),
      };
      this.header(about);
      this.vectors(about);
      T.listenToMap(this.map, {
        hover: (p) => this.hover(p),
        select: (p) => this.select(p),
        region: (region) => {
          this.setBrushing(false);
          this.store.set({ region, tab: "filter" });
        },
        key: (key) => this.key(key),
      }, () => this.brushing);
      this.store.listen((state, changed) => this.update(state, changed));
      window.addEventListener("hashchange", () => {
        if (location.hash !== this.written) this.restore();
      });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themed());
      this.restore();
    }

    // --- fixed parts

    header(about) {
      const shown = about.images < about.allImages
        ? ` (${about.images.toLocaleString("en")} of ${T.count(about.allImages, "image")} shown, to stay fast)` : "";
      find("title").textContent = `${about.model} on ${about.data}`;
      find("subtitle").textContent = `${T.count(this.patches.count, "patch")} of ${T.count(about.images, "test image")}${shown}`;
      document.title = `${about.model} on ${about.data}: every patch`;
      find("layouts").append(...about.layouts.map(({ label, title }, k) => T.el("button", { text: label, "data-layout": k,
        title: `${title}: key ${k + 1}`, onclick: () => this.store.set({ layout: k }) })));
      find("tabs").append(...T.TABS.map((tab) => T.el("button", { role: "tab", id: `tab-${tab}`, "data-tab": tab,
        "aria-controls": `panel-${tab}`, text: { filter: "Filter", words: "Words", mix: "Mix", drop: "Drop" }[tab],
        onclick: () => this.openTab(tab) })));
      find("theme").addEventListener("click", () => this.store.set({ theme: this.dark() ? "light" : "dark" }));
      find("zoom-in").addEventListener("click", () => this.zoomBy(1.6));
      find("zoom-out").addEventListener("click", () => this.zoomBy(1 / 1.6));
      find("zoom-fit").addEventListener("click", () => this.map.fit());
      this.searching(find("search"), find("found"));
    }

    searching(input, list) {
      const apply = (found) => {
        input.value = "";
        list.replaceChildren();
        this.store.set(found.changes);
      };
      input.addEventListener("input", () => {
        list.replaceChildren(...T.search(this.patches, input.value).map((found) =>
          T.el("button", { text: found.text, onclick: () => apply(found) })));
      });
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && list.firstChild) list.firstChild.click();
        if (event.key === "Escape") {
          input.value = "";
          list.replaceChildren();
          input.blur();
        }
      });
    }

    // The class vectors and zero, which exist in the embedding only.
    vectors(about) {
      if (!about.layouts.some((one) => one.vectors)) return;
      [...about.classes, "0"].forEach((name, k) => {
        const zero = k === about.classes.length;
        const label = T.el("b", { text: name, style: { borderColor: zero ? "#000" : this.patches.colour(k) } });
        const element = T.el("div", { class: "vector", "data-vector": k },
          T.el("i", { style: { background: zero ? "#000" : this.patches.colour(k) } }), label);
        const place = () => (this.hasVectors() ? this.map.place(this.patches.count + k) : [0, 0]);
        this.map.pin(element, place).label = { element: label, width: 22 + 8 * name.length };
      });
    }

    hasVectors() {
      return this.patches.about.layouts[this.store.state.layout].vectors;
    }

    // --- what the user does

    hover(p) {
      if (p === this.hovered) return;
      this.hovered = p;
      this.light();
    }

    select(p, fly = false) {
      this.store.set({ patch: p });
      if (p !== null && fly) this.map.fly(p);
    }

    // A hovered patch is shown until it is left; then the selected one is shown again.
    light() {
      const { patch } = this.store.state;
      const shown = this.hovered ?? patch;
      this.card.show(shown, shown === patch);
      const { perImage } = this.patches.about;
      const first = shown === null ? 0 : this.patches.image(shown) * perImage;
      this.map.setLit(shown === null ? [] : Array.from({ length: perImage }, (_, k) => first + k));
      if (this.ring) this.map.unpin(this.ring);
      this.ring = shown === null ? null : this.map.pin(T.el("div", { class: "ring" }), () => this.map.place(shown));
    }

    zoomBy(factor) {
      const { map } = this;
      map.setCamera(T.camera.zoom(map.camera, map, map.width / 2, map.height / 2, factor), true);
    }

    setBrushing(on) {
      this.brushing = on;
      find("stage").classList.toggle("brushing", on);
      this.panels.filter.brush.setAttribute("aria-pressed", on);
    }

    clearFilters() {
      const initial = T.initial(this.patches.about);
      this.store.set(Object.fromEntries(T.FILTERS.map((name) => [name, initial[name]])));
    }

    openTab(tab) {
      const open = this.store.state.tab === tab && !document.body.classList.contains("folded");
      document.body.classList.toggle("folded", open);
      this.store.set({ tab });
    }

    key(key) {
      const { state } = this.store;
      const { layouts, perImage } = this.patches.about;
      if (/^[1-9]$/.test(key) && Number(key) <= layouts.length) this.store.set({ layout: Number(key) - 1 });
      else if (key === "m") this.store.set({ marks: !state.marks });
      else if (key === "r") this.setBrushing(!this.brushing);
      else if (key === "/") find("search").focus();
      else if (key === "Escape") this.escape(state);
      else if ((key === "[" || key === "]") && state.patch !== null) {
        const first = this.patches.image(state.patch) * perImage;
        this.go(first + ((state.patch - first + (key === "]" ? 1 : perImage - 1)) % perImage));
      } else return false;
      return true;
    }

    escape(state) {
      if (this.brushing) this.setBrushing(false);
      else if (state.patch !== null) this.select(null);
      else this.clearFilters();
    }

    // --- the state on the screen

    restore() {
      const { about } = this.patches;
      this.store.state = T.readAddress(location.hash, about);
      this.update(this.store.state, new Set([...Object.keys(this.store.state), "all"]));
    }

    update(state, changed) {
      const { about, arrays } = this.patches;
      const first = changed.has("all");
      if (changed.has("theme")) this.themed();
      if (changed.has("layout")) {
        this.map.setLayout(arrays[`layout ${about.layouts[state.layout].name}`], !first);
        for (const button of find("layouts").children) {
          button.setAttribute("aria-pressed", Number(button.dataset.layout) === state.layout);
        }
        find("overlay").classList.toggle("vectors", this.hasVectors());
      }
      if (first) this.look(state.camera);
      else if (changed.has("layout")) this.follow(state);
      if (changed.has("marks")) {
        this.map.marks = state.marks;
        this.map.request();
      }
      if (T.FILTERS.some((name) => changed.has(name)) || (state.region && changed.has("layout"))) {
        this.map.setMask(T.passing(this.patches, state, (p) => this.map.place(p)));
      }
      if (changed.has("patch")) this.light();
      this.panels.filter.update(state, this.map.mask);
      if (changed.has("word")) this.panels.words.update(state);
      if (changed.has("mix")) this.panels.mix.update(state);
      if (changed.has("tab")) this.showTab(state.tab);
      this.save();
    }

    look(camera) {
      const fit = T.camera.fit(this.map.width, this.map.height);
      this.map.setCamera(camera ? { x: camera.x, y: camera.y, scale: camera.zoom * fit.scale } : fit, false);
    }

    // In another layout, a selected patch stays in the middle; without one, the whole map is shown.
    follow(state) {
      if (state.patch === null) this.map.fit();
      else this.map.fly(state.patch, this.map.zoom());
    }

    showTab(tab) {
      for (const one of T.TABS) {
        find(`panel-${one}`).hidden = one !== tab;
        find(`tab-${one}`).setAttribute("aria-selected", one === tab);
      }
    }

    dark() {
      const { theme } = this.store.state;
      return theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
    }

    themed() {
      document.documentElement.dataset.theme = this.dark() ? "dark" : "light";
      this.map.setColours(getComputedStyle(document.documentElement));
    }

    // The view changed: remember it in the address, a little later.
    viewed() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const { camera } = this.map;
        const [x, y, zoom] = [camera.x, camera.y, this.map.zoom()].map((number) => Number(number.toFixed(4)));
        const whole = Math.abs(zoom - 1) < 1e-3 && Math.abs(x - 0.5) < 1e-3 && Math.abs(y - 0.5) < 1e-3;
        this.store.state.camera = whole ? null : { x, y, zoom };
        this.save();
      }, 150);
    }

    save() {
      this.written = T.writeAddress(this.store.state, this.patches.about);
      if ((location.hash || "#") !== this.written) history.replaceState(null, "", this.written);
    }
  }

  // Says in one sentence why the page does not work.
  function explain(message) {
    find("message").textContent = message;
    find("message").hidden = false;
  }

  async function start() {
    if (!T.about) return explain("The data of this page is missing: copy the whole folder, not only index.html.");
    if (!document.createElement("canvas").getContext("webgl2")) {
      return explain("This page draws with WebGL2, which this browser does not offer. Turn on hardware acceleration in its " +
        "settings, or open the page in a current Firefox, Chrome, Edge or Safari.");
    }
    if (typeof DecompressionStream === "undefined") {
      return explain("This browser is too old to unpack the data of this page. Open it in a current Firefox, Chrome, Edge or Safari.");
    }
    try {
      const [arrays, atlas] = await Promise.all([T.bytes.all(), T.bytes.picture(T.atlas)]);
      T.atlas = null;
      T.page = new Page(T.about, arrays, atlas);
      document.body.classList.add("ready");
      requestAnimationFrame(() => requestAnimationFrame((now) => (T.started = now))); // the first picture is on the screen
    } catch (error) {
      console.error(error);
      explain(`The page could not start (${error.message}). Build it again with tembed explore.`);
    }
  }

  window.addEventListener("DOMContentLoaded", start);
})(window.tembed);
