// Which patches pass the filters, what a region holds, and what a search finds.
"use strict";

(function (T) {
  T.FILTERS = ["labels", "heads", "answer", "entropy", "word", "part", "region"];

  // (P,) bytes: 1 where a patch passes. A region holds the patches that lie in its box in its own layout.
  T.passing = function (patches, state) {
    const { arrays } = patches;
    const labels = new Set(state.labels);
    const heads = new Set(state.heads);
    const [low, high] = state.entropy.map((share) => share * patches.about.fine);
    const { region, word, part, answer } = state;
    const places = region && patches.places(region.layout);
    const box = region && region.box.map((side) => 65535 * side);
    const mask = new Uint8Array(patches.count);
    for (let p = 0; p < patches.count; p++) {
      if (labels.size && !labels.has(patches.label[p])) continue;
      if (heads.size && !heads.has(patches.head[p])) continue;
      if (answer !== "all" && patches.right(p) !== (answer === "right")) continue;
      if (arrays.entropy[p] < low || arrays.entropy[p] > high) continue;
      if (word !== null && arrays.words[p] !== word) continue;
      if (part !== null && patches.part(p) !== part) continue;
      if (region) {
        const [x, y] = [places[2 * p], places[2 * p + 1]];
        if (x < box[0] || y < box[1] || x > box[2] || y > box[3]) continue;
      }
      mask[p] = 1;
    }
    return mask;
  };

  // The filters that are on, in words: [{ text, colour, off }], with the changes that switch one off.
  T.activeFilters = function (patches, state) {
    const { about, classes } = patches;
    const initial = T.initial(about);
    const found = [];
    const add = (name, text, colour = null, off = { [name]: initial[name] }) => found.push({ text, colour, off });
    for (const [name, before] of [["labels", ""], ["heads", "head: "]]) {
      for (const k of state[name]) {
        add(name, before + classes[k], patches.colour(k), { [name]: state[name].filter((one) => one !== k) });
      }
    }
    if (state.answer !== "all") add("answer", state.answer);
    const percent = state.entropy.map((share) => Math.round(100 * share));
    if (String(state.entropy) !== String(initial.entropy)) add("entropy", `entropy ${percent[0]} to ${percent[1]} %`);
    if (state.word !== null) add("word", `word ${state.word + 1}`);
    if (state.part !== null) add("part", about.parts[state.part - 1]);
    if (state.region) add("region", "region");
    return found;
  };

  // How many passing patches each value has, the most frequent first: [[value, count], ...].
  T.tally = function (values, mask) {
    const counts = new Map();
    for (let p = 0; p < mask.length; p++) if (mask[p]) counts.set(values[p], (counts.get(values[p]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  };

  // Classes, words and parts that match all words of a text: [{ text, changes }], changes for the store.
  T.search = function (patches, text, most = 12) {
    const needles = text.toLowerCase().split(/[\s+]+/).filter(Boolean);
    if (!needles.length) return [];
    const { about } = patches;
    const found = [];
    const matches = (candidate) => needles.every((needle) => candidate.toLowerCase().includes(needle));
    about.classes.forEach((name, k) => {
      if (matches(name)) found.push({ text: `class ${name}`, changes: { labels: [k], word: null, part: null, tab: "filter" } });
    });
    about.parts.forEach((name, k) => {
      if (matches(name)) found.push({ text: `part ${name}`, changes: { part: k + 1, labels: [], word: null, tab: "filter" } });
    });
    about.words.centres.forEach((_, k) => {
      const mixture = `word ${k + 1}: ${patches.wordText(k)}`;
      if (matches(mixture)) found.push({ text: mixture, changes: { word: k, tab: "words", labels: [], part: null } });
    });
    return found.slice(0, most);
  };
})(window.tembed);
