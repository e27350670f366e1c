// The visual words: a patch for each, and all patches of the one that is picked.
"use strict";

(function (T) {
  const MOST = 60;

  T.registerPanel("words", "Words", class {
    constructor(element, page) {
      Object.assign(this, { element, page });
      const { patches, pictures } = page;
      const { words } = patches.about;
      const rest = words.centres.map((_, k) => k).filter((k) => !words.chosen.includes(k));
      this.picked = T.el("div", { class: "picked" });
      this.buttons = T.el("div", { class: "thumbs words" }, ...[...words.chosen, ...rest].map((word) => {
        const title = `word ${word + 1}: ${patches.wordText(word)}, ${T.count(words.sizes[word], "patch")}`;
        const button = pictures.button(words.points[word], 40, title, () => this.toggle(word));
        button.dataset.word = word;
        return button;
      }));
      element.append(
        T.evidence(patches.about),
        this.picked,
        T.el("p", { class: "note", text: `${words.centres.length} clusters of the patches' predictions, each shown by the ` +
          "patch nearest to its centre. Pick one to see its patches." }),
        this.buttons);
    }

    toggle(word) {
      this.page.store.set({ word: this.page.store.state.word === word ? null : word });
    }

    update(state, changed) {
      if (!changed.has("word")) return;
      for (const button of this.buttons.children) {
        button.setAttribute("aria-pressed", Number(button.dataset.word) === state.word);
      }
      this.picked.replaceChildren(...(state.word === null ? [] : this.gallery(state.word)));
    }

    // The patches of a word side by side, the nearest to its centre first.
    gallery(word) {
      const { patches, pictures, go, store } = this.page;
      const centre = patches.about.words.centres[word];
      const found = [];
      for (let p = 0; p < patches.count; p++) {
        if (patches.arrays.words[p] !== word) continue;
        const far = patches.probabilities(p).reduce((sum, share, k) => sum + (share - centre[k]) ** 2, 0);
        found.push([far, p]);
      }
      found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      const shown = found.slice(0, MOST);
      return [
        T.el("div", { class: "row" },
          T.el("h2", { text: `Word ${word + 1}: ${T.count(found.length, "patch")}` }),
          T.el("button", { class: "link", text: "clear", onclick: () => store.set({ word: null }) })),
        T.el("p", { class: "mixture", text: patches.wordText(word) }),
        T.el("div", { class: "thumbs gallery" }, ...shown.map(([, p]) =>
          pictures.button(p, 40, patches.classes[patches.label[p]], go))),
        found.length > MOST ? T.el("p", { class: "note", text: `The ${MOST} nearest to the centre are shown.` }) : "",
      ];
    }
  });
})(window.tembed);
