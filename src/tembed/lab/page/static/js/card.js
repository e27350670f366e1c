// The card of one patch: where it is in its image, what it matches, and what is like it.
"use strict";

(function (T) {
  const NEIGHBOURS = 12;

  T.Card = class {
    // `go(p)`: select a patch and fly there. `pickWord(word)`: show a visual word. `close()`: no patch.
    constructor(element, page, { go, pickWord, close }) {
      Object.assign(this, { element, page, go, pickWord, close });
    }

    show(p, pinned) {
      const { element } = this;
      element.hidden = p === null;
      if (p === null) {
        element.dataset.patch = "";
        return;
      }
      element.classList.toggle("pinned", pinned);
      if (element.dataset.patch === String(p)) return;
      element.dataset.patch = p;
      element.replaceChildren(...this.parts(p));
    }

    parts(p) {
      const { patches, pictures } = this.page;
      const { about, classes } = patches;
      const canvas = T.el("canvas", { class: "source" });
      const box = pictures.source(canvas, p, 112);
      const probabilities = patches.probabilities(p);
      const [label, head] = [patches.label[p], patches.head[p]];
      const share = patches.entropy(p);
      const nats = (share * Math.log(classes.length)).toFixed(2);
      const word = patches.arrays.words[p];
      const part = patches.part(p);
      const line = (name, ...values) => T.el("div", { class: "line" }, T.el("span", { class: "key", text: name }), ...values);
      const text = (value, kind) => T.el("span", { text: value, class: kind });
      return [
        T.el("button", { class: "close", "aria-label": "Close", text: "×", onclick: () => this.close() }),
        T.el("div", { class: "top" }, canvas,
          T.el("div", {},
            line("true class", T.swatch(patches.colour(label)), text(classes[label], "label")),
            line("the head says", T.swatch(patches.colour(head)),
              text(`${classes[head]} ${patches.right(p) ? "✓" : "✗"}`, `head ${patches.right(p) ? "" : "wrong"}`)),
            line(about.files ? "file" : "image", text(patches.name(p), "image")),
            line("row, column", text(`${patches.row(p) + 1}, ${patches.column(p) + 1}`, "position")),
            line("pixels", text(`x ${box.left} to ${box.right}, y ${box.top} to ${box.bottom}`, "pixels")),
            part ? line("part", text(about.parts[part - 1], "part")) : null)),
        T.evidence(about, about.evidence.half ? " (dashed)" : ""),
        T.el("p", { class: "mixture", text: patches.mixture(probabilities) }),
        T.bars(patches, probabilities),
        line("entropy", text(`${nats} nats, ${Math.round(100 * share)} % of maximum`, "entropy")),
        line("visual word", T.el("button", { class: "link word", text: `${word + 1}: ${patches.wordText(word)}`,
          onclick: () => this.pickWord(word) })),
        T.el("h2", { text: `Nearest in other images, by ${this.page.spaceName}` }),
        T.el("div", { class: "thumbs neighbours" }, ...this.neighbours(p)),
      ];
    }

    neighbours(p) {
      const { patches, metric, pictures } = this.page;
      const near = metric.nearest(metric.at(p), NEIGHBOURS, (other) => patches.image(other), patches.image(p));
      return near.map(({ patch, distance }) =>
        pictures.button(patch, 40, `${patches.classes[patches.label[patch]]}, distance ${distance.toFixed(2)}`, this.go));
    }
  };
})(window.tembed);
