// Starts the page and connects its parts.
"use strict";

(function (T) {
  const find = (id) => document.getElementById(id);
  const CARD = 360; // pixels on the left of the map that the card may cover
  const SLIDERS = ["entropy", "mix"];
  const DRAG = 1000; // milliseconds within which changes of a slider are one step

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme === "auto" ? (prefersDark.matches ? "dark" : "light") : theme;
  }

  setTheme((/[#&]theme=(light|dark)/.exec(location.hash) || [null, "auto"])[1]); // before anything is drawn

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
      this.panels = new T.Panels(find("tabs"), this, (tab) => this.openTab(tab));
      this.header(about);
      this.names(about);
      this.help = new T.Help(find("help"), this);
      T.listenToMap(this.map, {
        hover: (p) => this.hover(p),
        select: (p) => this.select(p),
        region: (region) => {
          this.setBrushing(false);
          this.store.set({ region: { box: region, layout: this.store.state.layout }, tab: "filter" });
        },
        key: (key) => this.key(key),
      }, () => this.brushing);
      this.store.listen((state, changed) => this.update(state, changed));
      window.addEventListener("hashchange", () => {
        if (location.hash !== this.written) this.restore();
      });
      prefersDark.addEventListener("change", () => this.themed());
      this.restore();
    }

    // --- fixed parts

    header(about) {
      const shown = about.images < about.allImages
        ? ` (${about.images.toLocaleString("en")} of ${T.count(about.allImages, "image")} shown, to stay fast)` : "";
      find("title").textContent = `${about.model} on ${about.data}`;
      find("subtitle").textContent = `${T.count(this.patches.count, "patch")} of ${T.count(about.images, "test image")}${shown}. ` +
        about.evidence.caption;
      find("subtitle").title = about.evidence.note;
      document.title = `${about.model} on ${about.data}: every patch`;
      find("layouts").append(...about.layouts.map(({ label, title }, k) => T.el("button", { text: label, "data-layout": k,
        title: `${title}: key ${k + 1}`, onclick: () => this.store.set({ layout: k }) })));
      find("theme").addEventListener("click", () => {
        const { theme } = document.documentElement.dataset;
        this.store.set({ theme: theme === "dark" ? "light" : "dark" });
      });
      find("zoom-in").addEventListener("click", () => this.zoomBy(1.6));
      find("zoom-out").addEventListener("click", () => this.zoomBy(1 / 1.6));
      find("zoom-fit").addEventListener("click", () => this.wholeMap());
      find("zoom-selection").addEventListener("click", () => this.zoomToSelection());
      find("what").addEventListener("click", () => this.help.open());
      this.searching(find("search"), find("found"));
    }

    searching(input, list) {
      const apply = (found) => {
        input.value = "";
        find("stage").focus();
        list.replaceChildren();
        this.store.set(found.changes);
      };
      const show = () => {
        const results = T.search(this.patches, input.value);
        const none = input.value.trim() && !results.length ? [T.el("p", { class: "note", text: "no match" })] : [];
        list.replaceChildren(...none, ...results.map((found) =>
          T.el("button", { text: found.text, onclick: () => apply(found) })));
      };
      input.addEventListener("input", show);
      input.addEventListener("focus", show);
      list.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays in the field until the click
      input.parentElement.addEventListener("focusout", (event) => {
        if (!input.parentElement.contains(event.relatedTarget)) list.replaceChildren();
      });
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && list.firstChild) list.firstChild.click(); // "no match" does nothing
      });
      input.parentElement.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation(); // it closes the list, and not the card or the filters
        (event.target === input ? find("stage") : input).focus();
        input.value = "";
        list.replaceChildren();
      });
    }

    // The names of the classes in every layout, the class with the densest place first; the class vectors and zero, which
    // exist in the embedding only.
    names(about) {
      this.places = about.layouts.map((_, layout) => T.classPlaces(this.patches, this.patches.places(layout)));
      const now = () => this.places[this.store.state.layout];
      const order = about.classes.map((_, k) => k).sort((a, b) => now()[b].count - now()[a].count);
      for (const k of order) {
        const element = T.el("div", { class: "class-name", "data-class": k }, T.swatch(this.patches.colour(k)), about.classes[k]);
        this.map.pin(element, () => [now()[k].x, now()[k].y], "name").width = T.nameWidth(about.classes[k]);
      }
      if (!about.layouts.some((one) => one.vectors)) return;
      [...about.classes, null].forEach((name, k) => {
        const title = name === null ? "the zero vector" : `class vector of ${name}`;
        const colour = name === null ? "#000" : this.patches.colour(k);
        const element = T.el("div", { class: "vector", "data-vector": k, title, style: { background: colour } });
        const place = () => (this.hasVectors() ? this.map.place(this.patches.count + k) : [-9, -9]);
        this.map.pin(element, place, "vector");
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
      if (fly) this.anchor = p; // the card stays where it is
      this.store.set({ patch: p });
      if (p !== null && fly) this.map.fly(p);
    }

    // A hovered patch is shown until it is left; then the selected one is shown again.
    light() {
      const { patch } = this.store.state;
      const shown = this.hovered ?? patch;
      this.card.show(shown, patch !== null);
      this.moveCard(patch ?? shown);
      const { perImage } = this.patches.about;
      const first = shown === null ? 0 : this.patches.image(shown) * perImage;
      this.map.setLit(shown === null ? [] : Array.from({ length: perImage }, (_, k) => first + k));
      if (this.ring) this.map.unpin(this.ring);
      this.ring = shown === null ? null : this.map.pin(T.el("div", { class: "ring" }), () => this.map.place(shown));
    }

    // Puts the card on the side of the map where it does not cover the patch.
    moveCard(p) {
      if (p === this.anchor) return;
      this.anchor = p;
      if (p === null) return;
      const [x] = T.camera.toScreen(this.map.camera, this.map, ...this.map.place(p));
      find("card").classList.toggle("right", x < Math.min(CARD, this.map.width / 2));
    }

    zoomBy(factor) {
      const { map } = this;
      map.setCamera(T.camera.zoom(map.camera, map, map.width / 2, map.height / 2, factor), true);
    }

    wholeMap() {
      this.step = true;
      this.map.fit();
    }

    // Shows what passes the filters; without a filter, the patches of the selected image.
    zoomToSelection() {
      const { mask, lit } = this.map;
      const passing = [...mask.keys()].filter((p) => mask[p]);
      const selected = passing.length < this.patches.count || !lit.length ? passing : lit;
      if (!selected.length) return;
      this.step = true;
      this.map.zoomTo(selected);
    }

    setBrushing(on) {
      this.brushing = on;
      find("stage").classList.toggle("brushing", on);
      this.panels.update(this.store.state, new Set(["brushing"]));
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
      else if (key === "z") this.zoomToSelection();
      else if (key === "0") this.wholeMap();
      else if (key === "?") this.help.open();
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
      const first = changed.has("all");
      const focused = document.activeElement;
      if (changed.has("theme")) this.themed();
      if (changed.has("layout")) {
        this.map.setLayout(this.patches.places(state.layout), !first);
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
      if (T.FILTERS.some((name) => changed.has(name))) this.filter(state);
      if (changed.has("region") || changed.has("layout")) this.outline(state);
      if (changed.has("patch")) this.light();
      this.panels.update(state, changed);
      if (changed.has("tab")) this.panels.show(state.tab);
      if (!focused.checkVisibility()) find("stage").focus(); // the element with the focus is gone
      this.save(first ? [] : [...changed].filter((name) => name !== "theme"));
    }

    // What passes the filters; they are named below the tabs, whichever is open.
    filter(state) {
      const mask = T.passing(this.patches, state);
      this.map.setMask(mask);
      const active = T.activeFilters(this.patches, state);
      const shown = mask.reduce((sum, one) => sum + one, 0);
      find("filters").hidden = !active.length;
      find("filters").replaceChildren(
        T.el("p", { class: "summary", "aria-live": "polite", text: `${shown.toLocaleString("en")} of ${T.count(this.patches.count, "patch")}` }),
        T.el("button", { class: "link", text: "clear all", onclick: () => this.clearFilters() }),
        T.el("div", { class: "chips" }, ...active.map(({ text, colour, off }) =>
          T.el("button", { class: "chip", "aria-label": `${text}: switch this filter off`, onclick: () => this.store.set(off) },
            colour && T.swatch(colour), T.el("span", { text }), "×"))));
    }

    // The box of the region, in the layout where it was drawn.
    outline({ region, layout }) {
      if (this.region) this.map.unpin(this.region);
      this.region = null;
      if (!region || region.layout !== layout) return;
      const [left, top, right, bottom] = region.box;
      this.region = this.map.pin(T.el("div", { class: "region" }), () => [left, top]);
      this.region.size = [right - left, bottom - top];
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

    themed() {
      setTheme(this.store.state.theme);
      const root = document.documentElement;
      const styles = getComputedStyle(root);
      const [paper, ink, accent] = ["--paper-rgb", "--ink-rgb", "--accent-rgb"].map((name) =>
        styles.getPropertyValue(name).trim().split(/\s+/).map(Number));
      const classes = T.onPaper(this.patches.about.colours, paper);
      classes.forEach((colour, k) => root.style.setProperty(`--class-${k}`, `rgb(${colour.join(" ")})`));
      const parts = (colour) => colour.map((byte) => byte / 255);
      this.map.setColours({ paper: parts(paper), ink: parts(ink), accent: parts(accent), classes });
    }

    // The view changed: remember it in the address, a little later.
    viewed() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const { camera } = this.map;
        const [x, y, zoom] = [camera.x, camera.y, this.map.zoom()].map((number) => Number(number.toFixed(4)));
        const whole = Math.abs(zoom - 1) < 1e-3 && Math.abs(x - 0.5) < 1e-3 && Math.abs(y - 0.5) < 1e-3;
        this.store.state.camera = whole ? null : { x, y, zoom };
        this.save(this.step ? ["camera"] : []);
        this.step = false;
      }, 150);
    }

    // Writes the state into the address. What the user `changed` is a step, which Back undoes; moving the map, or going on
    // with a slider, is none.
    save(changed) {
      this.written = T.writeAddress(this.store.state, this.patches.about);
      if ((location.hash || "#") === this.written) return;
      const slider = changed.find((name) => SLIDERS.includes(name));
      const goesOn = slider && slider === this.slider && performance.now() - this.slid < DRAG;
      [this.slider, this.slid] = [slider, performance.now()];
      if (changed.length && !goesOn) history.pushState(null, "", this.written);
      else history.replaceState(null, "", this.written);
    }
  }

  // Says in one sentence why the page does not work.
  function explain(message) {
    find("subtitle").textContent = "";
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
