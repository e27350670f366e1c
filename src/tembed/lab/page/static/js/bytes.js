// Arrays that the data scripts pass as base64 of gzipped little-endian bytes.
"use strict";
window.tembed = window.tembed || {};

(function (T) {
  const KINDS = { uint8: Uint8Array, uint16: Uint16Array, float32: Float32Array };
  const stored = new Map();

  T.store = function (name, kind, shape, text) {
    stored.set(name, { kind, shape, text });
  };

  T.bytes = {
    fromBase64(text) {
      if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
      const plain = atob(text);
      const bytes = new Uint8Array(plain.length);
      for (let k = 0; k < plain.length; k++) bytes[k] = plain.charCodeAt(k);
      return bytes;
    },

    async unzip(bytes) {
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream).arrayBuffer();
    },

    // All stored arrays by name. The text is dropped, so that it is held in memory once.
    async all() {
      const found = {};
      for (const [name, { kind, shape, text }] of stored) {
        found[name] = new KINDS[kind](await this.unzip(this.fromBase64(text)));
        if (found[name].length !== shape.reduce((a, b) => a * b, 1)) throw new Error(`${name} is damaged`);
      }
      stored.clear();
      return found;
    },

    picture(address) {
      return new Promise((resolve, reject) => {
        const image = new Image();
        image.onload = () => resolve(image);
        image.onerror = () => reject(new Error("the pictures are damaged"));
        image.src = address;
      });
    },
  };
})(window.tembed);
