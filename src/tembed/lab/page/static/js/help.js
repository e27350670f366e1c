// What the page shows, in a few lines: opened on the first visit, and by the button or the key "?".
"use strict";

(function (T) {
  const SEEN = "tembed-help-seen";
  const LAYOUTS = {
    "baseline": "by the features of a network without the block",
    "block input": "by the features that the block gets",
    "block output": "by the features that the block passes on",
    "predictions": "by the class probabilities of each patch",
    "embedding vectors": "by the mixture of class vectors that the block makes of a patch; squares are the class vectors " +
      "themselves, the black one is zero",
  };

  T.Help = class {
    constructor(dialog, { patches, pictures }) {
      const { about } = patches;
      const item = (name, text) => T.el("li", {}, T.el("b", { text: name }), ` ${text}`);
      const points = about.words.chosen.map((word) => about.words.points[word]);
      const whole = ({ left, top, right, bottom }) => left >= 0 && top >= 0 && right <= about.size[1] && bottom <= about.size[0];
      const point = points.find((p) => whole(patches.box(p))) ?? points[0];
      const example = T.el("div", { class: "example", "aria-hidden": "true" },
        pictures.framed(pictures.stored(patches.image(point)), point, 84, patches.colour(patches.label[point])),
        T.el("i", { style: { background: patches.colour(patches.head[point]) } }), T.el("s"));
      dialog.append(
        T.el("h2", { id: "help-title", text: "What am I looking at?" }),
        T.el("p", { text: `A network looked at ${T.count(about.images, "test image")}, and matched every patch of them with ` +
          "every class. All of these patches are on the map, alike ones near each other." }),
        T.el("div", { class: "legend" }, example, T.el("ul", {},
          item("Picture", "a patch of an image."),
          item("Frame", "the true class of the image."),
          item("Corner", "the class that the network predicts for the whole image. Another colour than the frame: wrong."),
          item("Centre", "how sure the patch is by itself: black is sure, white fits all classes alike."))),
        T.el("p", { text: "From afar, colours are true classes; zoom in until pictures appear. Click on a patch to see its image, " +
          "what it matches and what is like it. Esc closes it, and Back undoes the last step." }),
        T.el("p", { text: "The buttons at the top place the same patches anew:" }),
        T.el("ul", {}, ...about.layouts.map(({ name, label }) => item(label, LAYOUTS[name]))),
        T.el("form", { method: "dialog" }, T.el("button", { class: "wide", text: "Show the map", autofocus: true })));
      dialog.addEventListener("close", () => remember());
      dialog.addEventListener("click", (event) => {
        if (event.target === dialog) dialog.close(); // beside the panel
      });
      this.dialog = dialog;
      if (!remembered()) this.open();
    }

    open() {
      this.dialog.showModal();
      this.dialog.scrollTop = 0; // the button that gets the focus may be far below
    }
  };

  // A browser may forbid to remember anything; then every visit is the first.
  function remembered() {
    try {
      return localStorage.getItem(SEEN) !== null;
    } catch {
      return false;
    }
  }

  function remember() {
    try {
      localStorage.setItem(SEEN, "yes");
    } catch {
      // the next visit is the first again
    }
  }
})(window.tembed);
