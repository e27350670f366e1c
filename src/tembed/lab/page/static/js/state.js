// The state of the page, and its form in the address: everything that is not at its default.
"use strict";

(function (T) {
  T.initial = function (about) {
    return {
      layout: Math.max(0, about.layouts.findIndex((one) => one.vectors)),
      camera: null, // null: the whole map
      patch: null,
      marks: true,
      labels: [],
      heads: [],
      answer: "all",
      entropy: [0, 1],
      word: null,
      part: null,
      region: null,
      mix: {},
      tab: T.panelNames()[0],
      theme: "auto",
    };
  };

  const whole = (text, end) => (/^\d+$/.test(text) && Number(text) < end ? Number(text) : null);
  const numbers = (text, count) => {
    const found = text.split(",").map(Number);
    return found.length === count && found.every(Number.isFinite) ? found : null;
  };
  const list = (text, end) => [...new Set(text.split(",").map((one) => whole(one, end)).filter((k) => k !== null))];
  const within = (values) => values.every((v) => v >= 0 && v <= 1);

  // Reads one field each; null means that the text is no good and the default stays.
  const READ = {
    layout: (text, about) => {
      const found = about.layouts.findIndex((one) => one.name === text);
      return found < 0 ? null : found;
    },
    camera: (text) => {
      const found = numbers(text, 3);
      return found && within(found.slice(0, 2)) && found[2] > 0 ? { x: found[0], y: found[1], zoom: found[2] } : null;
    },
    patch: (text, about) => whole(text, about.images * about.perImage),
    marks: (text) => text !== "off",
    labels: (text, about) => list(text, about.classes.length),
    heads: (text, about) => list(text, about.classes.length),
    answer: (text) => (["right", "wrong"].includes(text) ? text : null),
    entropy: (text) => {
      const found = numbers(text, 2);
      return found && within(found) && found[0] <= found[1] ? found : null;
    },
    word: (text, about) => whole(text, about.words.centres.length),
    part: (text, about) => whole(text, about.parts.length + 1) || null,
    region: (text, about) => {
      const [, corners, name] = /^(.*),([^,]*)$/.exec(text) || [null, "", ""];
      const [box, layout] = [numbers(corners, 4), READ.layout(name, about)];
      return box && layout !== null ? { box, layout } : null;
    },
    mix: (text, about) => {
      const found = {};
      for (const pair of text.split(",")) {
        const [k, w] = pair.split(":");
        if (whole(k, about.classes.length) !== null && w > 0 && w <= 1) found[k] = Number(w);
      }
      return found;
    },
    tab: (text) => (T.panelNames().includes(text) ? text : null),
    theme: (text) => (["light", "dark"].includes(text) ? text : null),
  };

  const short = (number) => String(Number(number.toFixed(4)));

  const WRITE = {
    layout: (k, about) => about.layouts[k].name,
    camera: (c) => [c.x, c.y, c.zoom].map(short).join(","),
    marks: (on) => (on ? "on" : "off"),
    entropy: (range) => range.map(short).join(","),
    region: ({ box, layout }, about) => [...box.map(short), about.layouts[layout].name].join(","),
    mix: (mix) => Object.entries(mix).map(([k, w]) => `${k}:${short(w)}`).join(","),
  };

  T.readAddress = function (hash, about) {
    const state = T.initial(about);
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const found = Object.hasOwn(READ, name) ? READ[name](text, about) : null;
      if (found !== null) state[name] = found;
    }
    return state;
  };

  T.writeAddress = function (state, about) {
    const initial = T.initial(about);
    const pairs = new URLSearchParams();
    for (const name of Object.keys(initial)) {
      if (JSON.stringify(state[name]) === JSON.stringify(initial[name])) continue;
      if (state[name] === null) continue;
      pairs.set(name, WRITE[name] ? WRITE[name](state[name], about) : String(state[name]));
    }
    const text = pairs.toString();
    return text ? `#${text}` : "#";
  };

  // A store: `set` merges changes and calls the listeners with the new state and the changed names.
  T.Store = class {
    constructor(state) {
      this.state = state;
      this.listeners = [];
    }

    set(changes) {
      const changed = Object.keys(changes).filter(
        (name) => JSON.stringify(changes[name]) !== JSON.stringify(this.state[name]),
      );
      if (!changed.length) return;
      this.state = { ...this.state, ...changes };
      for (const listener of this.listeners) listener(this.state, new Set(changed));
    }

    listen(listener) {
      this.listeners.push(listener);
    }
  };
})(window.tembed);
