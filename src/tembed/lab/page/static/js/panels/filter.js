// The filters, and what the patches that pass them are.
"use strict";

(function (T) {
  const WORDS = 12;

  T.registerPanel("filter", "Filter", class {
    constructor(element, page) {
      Object.assign(this, { element, page });
      const { patches: { about }, store } = page;
      const set = (changes) => store.set(changes);
      this.labels = this.chips("labels");
      this.heads = this.chips("heads");
      this.answers = T.el("div", { class: "segments", role: "group", "aria-label": "Right or wrong" },
        ...["all", "right", "wrong"].map((answer) =>
          T.el("button", { text: answer, "data-answer": answer, onclick: () => set({ answer }) })));
      this.ends = [0, 1].map((k) =>
        T.el("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": k ? "Highest entropy" : "Lowest entropy",
          oninput: () => this.slide(k) }));
      this.range = T.el("span", { class: "number" });
      this.part = about.parts.length
        ? T.el("select", { "aria-label": "True part", onchange: () => set({ part: Number(this.part.value) || null }) },
          T.el("option", { value: 0, text: "every part" }),
          ...about.parts.map((name, k) => T.el("option", { value: k + 1, text: name })))
        : null;
      this.brush = T.el("button", { class: "wide", text: "Select a region", "aria-pressed": "false",
        title: "or drag with the shift key", onclick: () => page.setBrushing(!page.brushing) });
      this.tallies = T.el("div", { class: "tallies" });
      const marks = T.el("input", { type: "checkbox", onchange: () => set({ marks: marks.checked }) });
      this.marks = marks;
      element.append(
        this.tallies,
        T.el("h2", { text: "True class (frame)" }), this.labels,
        T.el("h2", { text: "The head predicts (corner)" }), this.heads,
        T.el("h2", { text: "The head is" }), this.answers,
        T.el("h2", {}, "Entropy (centre) ", this.range), T.el("div", { class: "range" }, ...this.ends),
        ...(this.part ? [T.el("h2", { text: "True part" }), this.part] : []),
        this.brush,
        T.el("label", { class: "check" }, marks, "Show the marks"),
        T.el("p", { class: "note keys", text: "Keys: arrows move, + and − zoom, 0 shows the whole map, " +
          `1 to ${about.layouts.length} change the layout, Enter selects the patch in the middle, [ and ] go through its image, ` +
          "z zooms to the selection, m switches the marks, r starts a region, / searches, ? explains the page, Esc goes back." }));
    }

    chips(name) {
      const { patches, store } = this.page;
      const toggle = (k) => {
        const now = store.state[name];
        store.set({ [name]: now.includes(k) ? now.filter((one) => one !== k) : [...now, k].sort((a, b) => a - b) });
      };
      return T.el("div", { class: "chips" }, ...patches.classes.map((text, k) =>
        T.el("button", { class: "chip", "data-class": k, onclick: () => toggle(k) }, T.swatch(patches.colour(k)), text)));
    }

    slide(k) {
      const values = this.ends.map((end) => Number(end.value) / 100);
      if (values[0] > values[1]) values[1 - k] = values[k];
      this.page.store.set({ entropy: values });
    }

    update(state) {
      const { patches, map: { mask } } = this.page;
      for (const name of ["labels", "heads"]) {
        for (const chip of this[name].children) {
          chip.setAttribute("aria-pressed", state[name].includes(Number(chip.dataset.class)));
        }
      }
      for (const button of this.answers.children) {
        button.setAttribute("aria-pressed", button.dataset.answer === state.answer);
      }
      this.ends.forEach((end, k) => (end.value = Math.round(100 * state.entropy[k])));
      this.ends[0].parentElement.style.setProperty("--low", state.entropy[0]);
      this.ends[0].parentElement.style.setProperty("--high", state.entropy[1]);
      this.range.textContent = state.entropy.map((share) => `${Math.round(100 * share)} %`).join(" to ");
      if (this.part) this.part.value = state.part || 0;
      this.marks.checked = state.marks;
      this.brush.setAttribute("aria-pressed", this.page.brushing);
      const shown = mask.reduce((sum, one) => sum + one, 0);
      this.tallies.replaceChildren(...(shown && shown < patches.count ? this.tally(mask, shown) : []));
    }

    tally(mask, shown) {
      const { patches, pictures, pickWord } = this.page;
      const shares = new Array(patches.classes.length).fill(0);
      for (const [label, count] of T.tally(patches.label, mask)) shares[label] = count / shown;
      const words = T.tally(patches.arrays.words, mask).slice(0, WORDS);
      return [
        T.el("h2", { text: "Their classes" }), T.bars(patches, shares),
        T.el("h2", { text: "Their most frequent words" }), T.evidence(patches.about),
        T.el("div", { class: "thumbs" }, ...words.map(([word, count]) =>
          pictures.button(patches.about.words.points[word], 40,
            `word ${word + 1}: ${patches.wordText(word)}, ${T.count(count, "patch")}`, () => pickWord(word)))),
      ];
    }
  });
})(window.tembed);
