// Draws the map with WebGL2: density from afar, pictures from near, both in between.
"use strict";

(function (T) {
  const WIDE = 1024;

  function program(gl, { vertex, fragment }) {
    const made = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(made, shader);
    }
    gl.bindAttribLocation(made, 0, "id");
    gl.linkProgram(made);
    if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) {
      const logs = gl.getAttachedShaders(made).map((shader) => gl.getShaderInfoLog(shader));
      throw new Error(`shader: ${gl.getProgramInfoLog(made)} ${logs.join(" ")}`);
    }
    const at = {};
    for (let k = 0; k < gl.getProgramParameter(made, gl.ACTIVE_UNIFORMS); k++) {
      const { name } = gl.getActiveUniform(made, k);
      at[name] = gl.getUniformLocation(made, name);
    }
    return { made, at };
  }

  T.Drawing = class {
    constructor(canvas, patches, atlas) {
      const gl = canvas.getContext("webgl2", { alpha: false, antialias: false });
      if (!gl) throw new Error("no WebGL2");
      Object.assign(this, { canvas, gl, patches });
      this.count = patches.count;
      this.rows = Math.ceil(this.count / WIDE);
      this.half = gl.getExtension("EXT_color_buffer_float") || gl.getExtension("EXT_color_buffer_half_float");
      for (const [name, shader] of Object.entries(T.shaders)) this[name] = program(gl, shader);
      this.textures = ["places", "frames", "corners", "states", "atlas", "picture"].map(() => gl.createTexture());
      this.ids = gl.createBuffer();
      this.vertices = gl.createVertexArray();
      this.listed = new Uint32Array(this.count);
      this.states = new Uint8Array(this.rows * WIDE).fill(1);
      this.marks(atlas);
      this.setStates();
    }

    bind(unit) {
      this.gl.activeTexture(this.gl.TEXTURE0 + unit);
      this.gl.bindTexture(this.gl.TEXTURE_2D, this.textures[unit]);
    }

    texture(unit, inner, format, type, data, filter) {
      const { gl } = this;
      this.bind(unit);
      gl.texImage2D(gl.TEXTURE_2D, 0, inner, WIDE, this.rows, 0, format, type, data);
      this.filter(filter);
    }

    filter(kind) {
      const { gl } = this;
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, kind);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, kind);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE);
      gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
    }

    // What never changes: colours, entropies and the atlas.
    marks(atlas) {
      const { gl, patches } = this;
      const frames = new Uint8Array(this.rows * WIDE * 4);
      const corners = new Uint8Array(this.rows * WIDE * 4);
      for (let p = 0; p < this.count; p++) {
        frames.set(patches.about.colours[patches.label[p]], 4 * p);
        frames[4 * p + 3] = Math.round(255 * patches.entropy(p));
        corners.set(patches.about.colours[patches.head[p]], 4 * p);
      }
      this.texture(1, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, frames, gl.NEAREST);
      this.texture(2, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, corners, gl.NEAREST);
      this.bind(4);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, fitting(atlas, gl));
      this.filter(gl.LINEAR);
    }

    // The places before and after a change of layout: arrays of x, y with 16 bits.
    setPlaces(from, to) {
      const both = new Uint16Array(this.rows * WIDE * 4);
      for (let p = 0; p < this.count; p++) {
        both[4 * p] = from[2 * p];
        both[4 * p + 1] = from[2 * p + 1];
        both[4 * p + 2] = to[2 * p];
        both[4 * p + 3] = to[2 * p + 1];
      }
      const { gl } = this;
      this.texture(0, gl.RGBA16UI, gl.RGBA_INTEGER, gl.UNSIGNED_SHORT, both, gl.NEAREST);
      this.places = both;
    }

    setStates() {
      const { gl } = this;
      gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
      this.texture(3, gl.R8, gl.RED, gl.UNSIGNED_BYTE, this.states, gl.NEAREST);
    }

    // Fills `listed` with the patches in view, those filtered out first and the lit ones last.
    list(view) {
      const { places, states, listed } = this;
      const { camera, width, height, moved, tile } = view;
      const reach = [(width / 2 + tile) / camera.scale, (height / 2 + tile) / camera.scale];
      const found = [[], [], []];
      for (let p = 0, at = 0; p < this.count; p++, at += 4) {
        const x = places[at] + (places[at + 2] - places[at]) * moved;
        if (Math.abs(x / 65535 - camera.x) > reach[0]) continue;
        const y = places[at + 1] + (places[at + 3] - places[at + 1]) * moved;
        if (Math.abs(y / 65535 - camera.y) > reach[1]) continue;
        found[states[p]].push(p);
      }
      let end = 0;
      for (const group of found) {
        listed.set(group, end);
        end += group.length;
      }
      return { end, lit: found[2].length };
    }

    use({ made, at }, view) {
      const { gl } = this;
      gl.useProgram(made);
      gl.uniform1i(at.places, 0);
      gl.uniform1i(at.frames, 1);
      gl.uniform1i(at.corners, 2);
      gl.uniform1i(at.states, 3);
      gl.uniform1f(at.moved, view.moved);
      gl.uniform3f(at.accent, ...view.accent);
    }

    // `view`: camera, width, height and ratio of the canvas, moved, tile, marks, colours from 0 to 1.
    draw(view) {
      const { gl } = this;
      if (gl.isContextLost()) return;
      for (let unit = 0; unit < 6; unit++) if (unit !== 5) this.bind(unit);
      const { end, lit } = this.list(view);
      gl.bindVertexArray(this.vertices);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.ids);
      gl.bufferData(gl.ARRAY_BUFFER, this.listed.subarray(0, end), gl.DYNAMIC_DRAW);
      gl.enableVertexAttribArray(0);
      gl.bindFramebuffer(gl.FRAMEBUFFER, null);
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      gl.clearColor(...view.paper, 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.enable(gl.BLEND);
      const pictures = T.camera.pictures(view.tile);
      if (pictures < 1) this.drawDensity(view, end, 1 - pictures);
      if (pictures > 0) this.drawTiles(view, end, pictures);
      if (pictures < 0.5 && lit) {
        this.drawPoints(view, end - lit, lit, 1, Math.max(7, view.tile) * view.ratio, true);
      }
    }

    drawPoints(view, first, count, share, diameter, onlyLit) {
      const { gl } = this;
      const { at } = this.points;
      this.use(this.points, view);
      gl.uniform2f(at.size, share * this.canvas.width, share * this.canvas.height);
      gl.uniform3f(at.camera, view.camera.x, view.camera.y, view.camera.scale * view.ratio * share);
      gl.uniform1f(at.diameter, diameter);
      gl.uniform3f(at.faint, ...view.ink);
      gl.uniform1i(at.onlyLit, onlyLit ? 1 : 0);
      gl.vertexAttribDivisor(0, 0);
      gl.vertexAttribIPointer(0, 1, gl.UNSIGNED_INT, 0, 4 * first);
      gl.blendFunc(gl.ONE, onlyLit || !this.half ? gl.ONE_MINUS_SRC_ALPHA : gl.ONE);
      gl.drawArrays(gl.POINTS, 0, count);
    }

    drawDensity(view, count, opacity) {
      const { gl } = this;
      const share = 1 / view.ratio; // one texel per CSS pixel is enough for soft points
      const diameter = Math.min(14, Math.max(3, 1.6 * view.tile));
      if (!this.half) return this.drawPoints(view, 0, count, 1, diameter * view.ratio, false);
      const [width, height] = [this.canvas.width, this.canvas.height].map((side) => Math.max(1, Math.round(side * share)));
      this.target(width, height);
      gl.viewport(0, 0, width, height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      this.drawPoints(view, 0, count, share, diameter, false);
      gl.bindFramebuffer(gl.FRAMEBUFFER, null);
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      this.bind(5);
      gl.useProgram(this.density.made);
      gl.uniform1i(this.density.at.picture, 5);
      gl.uniform1f(this.density.at.opacity, opacity);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      gl.disableVertexAttribArray(0);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
      gl.enableVertexAttribArray(0);
    }

    // The half-float picture that the points are added to.
    target(width, height) {
      const { gl } = this;
      this.buffer = this.buffer || gl.createFramebuffer();
      if (this.targetSize !== `${width} ${height}`) {
        this.bind(5);
        gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA16F, width, height, 0, gl.RGBA, gl.HALF_FLOAT, null);
        this.filter(gl.LINEAR);
        this.targetSize = `${width} ${height}`;
      }
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.buffer);
      gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, this.textures[5], 0);
    }

    drawTiles(view, count, opacity) {
      const { gl, patches: { about } } = this;
      const { at } = this.tiles;
      const [high, wide] = about.size;
      const stride = [wide / about.map[1], high / about.map[0]];
      const first = [about.columns[0], about.rows[0]];
      const window = first.map(([start, end]) => end - start);
      this.use(this.tiles, view);
      gl.uniform2f(at.size, this.canvas.width, this.canvas.height);
      gl.uniform3f(at.camera, view.camera.x, view.camera.y, view.camera.scale * view.ratio);
      gl.uniform1f(at.tile, view.tile * view.ratio);
      gl.uniform2f(at.aspect, ...window.map((side) => side / Math.max(...window)));
      gl.uniform1i(at.columns, about.atlas.columns);
      gl.uniform2f(at.grid, about.atlas.columns, about.atlas.size[0] / about.atlas.tile[0]);
      gl.uniform2i(at.mapSize, about.map[1], about.map[0]);
      gl.uniform4f(at.window, first[0][0], first[1][0], ...window);
      gl.uniform2f(at.stride, ...stride);
      gl.uniform2f(at.imageSize, wide, high);
      gl.uniform1i(at.atlas, 4);
      gl.uniform1i(at.marks, view.marks ? 1 : 0);
      gl.uniform1f(at.opacity, opacity);
      gl.vertexAttribIPointer(0, 1, gl.UNSIGNED_INT, 0, 0);
      gl.vertexAttribDivisor(0, 1);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, count);
    }
  };

  // The atlas, or a smaller copy for a device with small textures.
  function fitting(atlas, gl) {
    const most = gl.getParameter(gl.MAX_TEXTURE_SIZE);
    const shrink = Math.min(1, most / atlas.width, most / atlas.height);
    if (shrink === 1) return atlas;
    const smaller = document.createElement("canvas");
    smaller.width = Math.floor(atlas.width * shrink);
    smaller.height = Math.floor(atlas.height * shrink);
    smaller.getContext("2d").drawImage(atlas, 0, 0, smaller.width, smaller.height);
    return smaller;
  }
})(window.tembed);
