// The network in the browser: ONNX Runtime Web on one thread, loaded when the first image is dropped.
"use strict";

(function (T) {
  const SCRIPTS = ["network/runtime.js", "network/wasm.js", "network/model.js"];
  let session = null;

  function script(address) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = address;
      element.onload = resolve;
      element.onerror = () => reject(new Error(`${address} is missing`));
      document.head.append(element);
    });
  }

  async function start() {
    for (const address of SCRIPTS) await script(address);
    const { wasm, loader, model } = T.packed;
    const module = new Blob([T.bytes.fromBase64(loader)], { type: "text/javascript" });
    const { env, InferenceSession } = window.ort;
    env.wasm.numThreads = 1;
    env.wasm.wasmPaths = { mjs: URL.createObjectURL(module) };
    env.wasm.wasmBinary = await T.bytes.unzip(T.bytes.fromBase64(wasm));
    const bytes = new Uint8Array(await T.bytes.unzip(T.bytes.fromBase64(model)));
    T.packed = {};
    return InferenceSession.create(bytes, { executionProviders: ["wasm"] });
  }

  T.packed = {};

  T.network = {
    // Pixels (H, W, 4) bytes to { logits, scores, mixing } as flat arrays; the last is null without class vectors.
    async run(pixels, height, width) {
      session = session || start();
      let ready;
      try {
        ready = await session;
      } catch (error) {
        session = null;
        throw error;
      }
      const input = T.planes(pixels, height, width);
      const tensor = new window.ort.Tensor("float32", input, [1, 3, height, width]);
      const found = await ready.run({ [ready.inputNames[0]]: tensor });
      const data = (name) => (found[name] ? found[name].data : null);
      return { logits: data("logits"), scores: data("scores"), mixing: data("mixing") };
    },
  };

  // (H, W, 4) bytes to (3, H, W) floats from 0 to 1.
  T.planes = function (pixels, height, width) {
    const area = height * width;
    const out = new Float32Array(3 * area);
    for (let k = 0; k < area; k++) for (let c = 0; c < 3; c++) out[c * area + k] = pixels[4 * k + c] / 255;
    return out;
  };

  T.softmax = function (scores) {
    const most = Math.max(...scores);
    const powers = Array.from(scores, (s) => Math.exp(s - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  };
})(window.tembed);
