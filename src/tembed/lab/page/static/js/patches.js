// What is known about each patch. A patch is a number: image, then row, then column of the map.
"use strict";

(function (T) {
  // `about` and `arrays` are what tembed/lab/page/content.py wrote.
  T.Patches = class {
    constructor(about, arrays) {
      Object.assign(this, { about, arrays });
      this.classes = about.classes;
      this.count = about.images * about.perImage;
      this.label = new Uint16Array(this.count);
      this.head = new Uint16Array(this.count);
      for (let p = 0; p < this.count; p++) {
        this.label[p] = arrays.labels[this.image(p)];
        this.head[p] = arrays.heads[this.image(p)];
      }
    }

    image(p) {
      return Math.floor(p / this.about.perImage);
    }

    // The number of a patch in the analysis, of which the page may show only some of the images.
    inAnalysis(p) {
      const { imageNumbers, perImage } = this.about;
      return imageNumbers ? imageNumbers[this.image(p)] * perImage + (p % perImage) : p;
    }

    // The file of its image, or the image's number if the dataset has no files.
    name(p) {
      const { files } = this.about;
      return files ? files[this.image(p)] : String(this.image(p) + 1);
    }

    row(p) {
      return Math.floor((p % this.about.perImage) / this.about.map[1]);
    }

    column(p) {
      return p % this.about.map[1];
    }

    // The pixels of its image that a patch covers; they may lie outside.
    box(p) {
      const [top, bottom] = this.about.rows[this.row(p)];
      const [left, right] = this.about.columns[this.column(p)];
      return { top, bottom, left, right };
    }

    // The places of the patches in a layout: x, y with 16 bits.
    places(layout) {
      return this.arrays[`layout ${this.about.layouts[layout].name}`];
    }

    // From 0 to 1, as a share of the largest possible entropy.
    entropy(p) {
      return this.arrays.entropy[p] / this.about.fine;
    }

    probabilities(p) {
      const c = this.classes.length;
      return Array.from(this.arrays.softmax.subarray(p * c, (p + 1) * c), (share) => share / this.about.shares);
    }

    mixing(p) {
      if (!this.arrays.mixing) return null;
      const c = this.classes.length;
      return Array.from(this.arrays.mixing.subarray(p * c, (p + 1) * c), (w) => w * this.about.metric.step);
    }

    right(p) {
      return this.label[p] === this.head[p];
    }

    part(p) {
      return this.arrays.parts ? this.arrays.parts[p] : 0;
    }

    // The colour of a class in the page's theme.
    colour(k) {
      return `var(--class-${k})`;
    }

    // "0.5 plane + 0.4 bird": at most three classes with a share of 0.1 or more.
    mixture(shares) {
      return T.mixtureText(shares, this.classes);
    }

    wordText(word) {
      return this.mixture(this.about.words.centres[word]);
    }
  };

  T.mixtureText = function (shares, classes, least = 0.1, most = 3) {
    const order = shares.map((_, k) => k).sort((a, b) => shares[b] - shares[a] || a - b);
    const named = order.slice(0, most).filter((k) => shares[k] >= least);
    return named.map((k) => `${shares[k].toFixed(1)} ${classes[k]}`).join(" + ") || "no class above 0.1";
  };
})(window.tembed);
