// Mix a wing: a mixture of class vectors, and the patches whose embedding vectors are nearest to it.
"use strict";

(function (T) {
  const SHOWN = 24;
  const ALL = 12; // up to this many classes, all have a slider
  const LAND = 5;

  T.registerPanel("mix", "Mix", class {
    constructor(element, page) {
      Object.assign(this, { element, page });
      const { patches } = page;
      const { metric } = patches.about;
      if (metric.space !== "embedding") {
        element.append(T.el("p", { class: "note", text: "This network has no class vectors to mix: it only supervises the " +
          "scores of its patches." }));
        return;
      }
      this.sliders = T.el("div", { class: "sliders" });
      this.result = T.el("div", { class: "result" });
      this.rows = new Map();
      if (patches.classes.length <= ALL) patches.classes.forEach((_, k) => this.row(k));
      this.add = patches.classes.length <= ALL ? null : T.el("select", { "aria-label": "Add a class",
        onchange: () => {
          const { value } = this.add;
          this.add.value = "";
          if (value !== "") this.set(Number(value), 0.5);
        } },
        T.el("option", { text: "add a class …", value: "" }),
        ...patches.classes.map((name, k) => T.el("option", { text: name, value: k })));
      element.append(
        T.el("p", { class: "note", text: "A patch is a mixture of class vectors. Mix some, and see the patches that the " +
          `network places nearest. A sum of 1 is as strong as the median patch (weights that add up to ${metric.strength.toFixed(1)}).` }),
        T.evidence(patches.about),
        T.el("div", { class: "chips" }, ...this.ideas()),
        ...(this.add ? [this.add] : []), this.sliders, this.result);
    }

    // Mixtures of two classes that occur among the chosen words.
    ideas() {
      const { patches, store } = this.page;
      const { centres, chosen } = patches.about.words;
      const pairs = new Map();
      for (const word of chosen) {
        const two = centres[word].map((_, k) => k).sort((a, b) => centres[word][b] - centres[word][a]).slice(0, 2);
        if (centres[word][two[1]] > 0.2) pairs.set(String(two.sort((a, b) => a - b)), two);
      }
      return [...pairs.values()].slice(0, 4).map(([a, b]) =>
        T.el("button", { class: "chip idea", text: `${patches.classes[a]} + ${patches.classes[b]}`,
          onclick: () => store.set({ mix: { [a]: 0.5, [b]: 0.5 } }) }));
    }

    row(k) {
      const { patches } = this.page;
      const slider = T.el("input", { type: "range", min: 0, max: 1, step: 0.05, value: 0, "data-class": k,
        "aria-label": patches.classes[k], oninput: () => this.set(k, Number(slider.value)) });
      const number = T.el("span", { class: "number", text: "0" });
      this.rows.set(k, { slider, number });
      this.sliders.append(T.el("label", { class: "slider" }, T.swatch(patches.colour(k)),
        T.el("span", { class: "name", text: patches.classes[k], title: patches.classes[k] }), slider, number));
    }

    set(k, weight) {
      const mix = { ...this.page.store.state.mix };
      if (weight > 0) mix[k] = weight;
      else delete mix[k];
      this.page.store.set({ mix });
    }

    update(state, changed) {
      if (!this.sliders || !changed.has("mix")) return;
      const { map, patches } = this.page;
      if (this.add) this.add.value = "";
      for (const k of Object.keys(state.mix).map(Number)) if (!this.rows.has(k)) this.row(k);
      for (const [k, { slider, number }] of this.rows) {
        slider.value = state.mix[k] || 0;
        number.textContent = (state.mix[k] || 0).toFixed(2);
      }
      if (this.marker) map.unpin(this.marker);
      this.marker = null;
      const mixed = Object.entries(state.mix);
      this.result.replaceChildren();
      if (!mixed.length) return;
      const near = this.nearest(state.mix, SHOWN);
      const text = mixed.map(([k, w]) => `${w} ${patches.classes[k]}`).join(" + ");
      this.result.append(
        T.el("h2", { text: "The nearest test patches, one per image" }),
        T.el("p", { class: "mixture", text }),
        T.el("div", { class: "thumbs mixed" }, ...near.map(({ patch, distance }) => this.page.pictures.button(patch, 40,
          `${patches.classes[patches.label[patch]]}, distance ${distance.toFixed(2)}`, this.page.go))),
        T.el("button", { class: "link", text: "clear", onclick: () => this.page.store.set({ mix: {} }) }));
      const place = () => T.landing(near.slice(0, LAND), (p) => map.place(p));
      this.marker = map.pin(T.el("div", { class: "marker", title: text }), place);
    }

    nearest(mix, count) {
      const { patches, metric } = this.page;
      const weights = patches.classes.map((_, k) => (mix[k] || 0) * patches.about.metric.strength);
      return metric.nearest(metric.of(weights), count, (p) => patches.image(p));
    }
  });
})(window.tembed);
