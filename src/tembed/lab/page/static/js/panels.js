// The panels beside the map. A panel is one script that calls `tembed.registerPanel`; its tab and element are made here.
"use strict";

(function (T) {
  const registered = new Map();

  T.panelData = {}; // by name, from data/panels.js

  // `name`: as in Python's `register_panel`, and in the address. `tab`: the text of its tab.
  // `Panel`: a class. `new Panel(element, page, data)` fills the panel's element; `data` is what Python's `register_panel`
  // computed for it, or null. `update(state, changed)`, if there is one, is called when the state has changed: `changed`
  // is the set of the names that changed, and at first of all names.
  T.registerPanel = function (name, tab, Panel) {
    if (registered.has(name)) throw new Error(`a panel named ${name} is already registered`);
    registered.set(name, { tab, Panel });
  };

  T.panelNames = () => [...registered.keys()];

  // Stands for a panel whose script did not register it.
  class Missing {
    constructor() {
      throw new Error("its script did not register it");
    }
  }

  T.Panels = class {
    // Makes the panels of the page. `tabs`: the element of their tabs; `open(name)` is called when one is clicked.
    constructor(tabs, page, open) {
      for (const name of Object.keys(T.panelData)) {
        if (!registered.has(name)) T.registerPanel(name, name, Missing);
      }
      this.made = new Map();
      for (const [name, { tab, Panel }] of registered) {
        const button = T.el("button", { role: "tab", id: `tab-${name}`, "data-tab": name, "aria-controls": `panel-${name}`,
          text: tab, onclick: () => open(name) });
        const element = T.el("div", { id: `panel-${name}`, class: "panel", role: "tabpanel", "aria-labelledby": button.id });
        tabs.append(button);
        tabs.parentElement.append(element);
        const one = { button, element, panel: null };
        this.made.set(name, one);
        this.guard(one, () => (one.panel = new Panel(element, page, T.panelData[name] ?? null)));
      }
    }

    get(name) {
      return this.made.get(name).panel;
    }

    update(state, changed) {
      for (const one of this.made.values()) {
        if (one.panel && one.panel.update) this.guard(one, () => one.panel.update(state, changed));
      }
    }

    show(name) {
      for (const [other, { button, element }] of this.made) {
        element.hidden = other !== name;
        button.setAttribute("aria-selected", other === name);
        if (other === name) button.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    }

    // A panel that fails says so in its place, and the rest of the page goes on.
    guard(one, act) {
      try {
        act();
      } catch (error) {
        console.error(error);
        one.panel = null;
        one.element.replaceChildren(T.el("p", { class: "message", text: `This panel failed (${error.message}). The ` +
          "console of the browser shows where." }));
      }
    }
  };
})(window.tembed);
