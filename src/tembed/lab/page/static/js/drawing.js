// Draws the map with WebGL2: density from afar, pictures from near, both in between.
"use strict";

(function (T) {
  const WIDE = 1024;
  const CORNERS = Uint32Array.of(0, 1, 2, 3);
  const POINTS = 24; // pixels up to which pictures are drawn as points

  // From 0 to 1: pictures come in this order when the view comes nearer, rather than all at once and translucent, which
  // would need more of them.
  T.rank = (p) => (Math.imul(p, 2654435761) >>> 8) / 16777216;

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
      this.most = gl.getParameter(gl.MAX_TEXTURE_SIZE);
      this.count = patches.count;
      this.rows = Math.ceil(this.count / WIDE);
      for (const [name, shader] of Object.entries(T.shaders)) this[name] = program(gl, shader);
      this.textures = ["places", "frames", "corners", "states", "atlas", "picture"].map(() => gl.createTexture());
      this.ids = gl.createBuffer();
      this.corners = gl.createBuffer();
      this.vertices = gl.createVertexArray();
      this.listed = new Uint32Array(this.count);
      this.groups = [0, 1, 2].map(() => new Uint32Array(this.count));
      this.states = new Uint8Array(this.rows * WIDE).fill(1);
      this.quads = new Uint32Array(4 * this.count);
      this.setAtlas(atlas);
      this.setStates();
      this.setCorners();
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

    setAtlas(atlas) {
      const { gl } = this;
      this.bind(4);
      const fitting = T.fittingAtlas(atlas, this.patches.about.atlas, this.most);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, fitting);
      this.filter(gl.LINEAR);
    }

    // The marks of the patches: entropies, and the colours of the classes, three bytes each.
    setMarks(colours) {
      const { gl, patches } = this;
      const frames = new Uint8Array(this.rows * WIDE * 4);
      const corners = new Uint8Array(this.rows * WIDE * 4);
      for (let p = 0; p < this.count; p++) {
        frames.set(colours[patches.label[p]], 4 * p);
        frames[4 * p + 3] = Math.round(255 * patches.entropy(p));
        corners.set(colours[patches.head[p]], 4 * p);
      }
      this.frames = frames;
      this.texture(1, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, frames, gl.NEAREST);
      this.texture(2, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, corners, gl.NEAREST);
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

    // Fills `listed` with the patches in view, those filtered out first and the lit ones last. `pictures`: how many of the
    // others are there yet, from 0 to 1.
    list(view, pictures) {
      const { places, states, listed } = this;
      const { camera, width, height, moved, tile } = view;
      const reach = [(width / 2 + tile) / camera.scale, (height / 2 + tile) / camera.scale];
      const ends = [0, 0, 0]; // of the groups, which are collected in one buffer each
      for (let p = 0, at = 0; p < this.count; p++, at += 4) {
        const x = places[at] + (places[at + 2] - places[at]) * moved;
        if (Math.abs(x / 65535 - camera.x) > reach[0]) continue;
        const y = places[at + 1] + (places[at + 3] - places[at + 1]) * moved;
        if (Math.abs(y / 65535 - camera.y) > reach[1]) continue;
        if (states[p] !== 2 && 4 * T.rank(p) >= 5 * pictures) continue;
        this.groups[states[p]][ends[states[p]]++] = p;
      }
      let end = 0;
      this.groups.forEach((group, k) => {
        listed.set(group.subarray(0, ends[k]), end);
        end += ends[k];
      });
      return { end, lit: ends[2] };
    }

    use({ made, at }, view) {
      const { gl } = this;
      gl.useProgram(made);
      gl.uniform1i(at.places, 0);
      gl.uniform1i(at.frames, 1);
      gl.uniform1i(at.corners, 2);
      gl.uniform1i(at.states, 3);
      gl.uniform1f(at.moved, view.moved);
      gl.uniform2f(at.size, this.canvas.width, this.canvas.height);
      gl.uniform3f(at.camera, view.camera.x, view.camera.y, view.camera.scale * view.ratio);
      gl.uniform3f(at.accent, ...view.accent);
    }

    // The two triangles of every quad. Quads have four vertices each rather than being instances, because software GL
    // runs a draw call for each instance, which is four times slower.
    setCorners() {
      const { gl } = this;
      const corners = new Uint32Array(6 * this.count);
      for (let k = 0; k < this.count; k++) corners.set([0, 1, 2, 2, 1, 3].map((corner) => 4 * k + corner), 6 * k);
      gl.bindVertexArray(this.vertices);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.corners);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.STATIC_DRAW);
    }

    // Passes these ids to the vertex shader.
    setIds(ids) {
      const { gl } = this;
      gl.bindVertexArray(this.vertices);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.ids);
      gl.bufferData(gl.ARRAY_BUFFER, ids, gl.DYNAMIC_DRAW);
      gl.enableVertexAttribArray(0);
      gl.vertexAttribIPointer(0, 1, gl.UNSIGNED_INT, 0, 0);
    }

    // `view`: camera, width, height and ratio of the canvas, moved, tile, marks, colours from 0 to 1.
    draw(view) {
      const { gl } = this;
      if (gl.isContextLost()) return;
      for (let unit = 0; unit < 6; unit++) this.bind(unit);
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      gl.clearColor(...view.paper, 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      const pictures = T.camera.pictures(view.tile);
      const { end, lit } = this.list(view, pictures);
      if (pictures < 1) this.drawDensity(view, 1 - pictures);
      if (pictures > 0) this.drawTiles(view, end, pictures);
      if (pictures < 0.5 && lit) this.drawPoints(view, this.listed.subarray(end - lit, end));
    }

    drawPoints(view, ids) {
      const { gl } = this;
      this.use(this.points, view);
      gl.uniform1f(this.points.at.diameter, Math.max(7, view.tile) * view.ratio);
      this.setIds(ids);
      gl.drawArrays(gl.POINTS, 0, ids.length);
    }

    drawDensity(view, opacity) {
      const { gl } = this;
      const { width, height, bytes } = T.density(this.places, this.states, this.frames, this.count, view);
      this.bind(5);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, width, height, 0, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
      this.filter(gl.LINEAR);
      gl.useProgram(this.density.made);
      gl.uniform1i(this.density.at.picture, 5);
      gl.uniform1f(this.density.at.opacity, opacity);
      this.setIds(CORNERS);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    }

    drawTiles(view, count, opacity) {
      const { gl, patches: { about } } = this;
      const { at } = this.tiles;
      const [high, wide] = about.size;
      const stride = [wide / about.map[1], high / about.map[0]];
      const first = [about.columns[0], about.rows[0]];
      const window = first.map(([start, end]) => end - start);
      this.use(this.tiles, view);
      gl.uniform1f(at.tile, view.tile * view.ratio);
      gl.uniform1i(at.columns, about.atlas.columns);
      gl.uniform2f(at.grid, about.atlas.columns, about.atlas.size[0] / about.atlas.tile[0]);
      gl.uniform2i(at.mapSize, about.map[1], about.map[0]);
      gl.uniform4f(at.window, first[0][0], first[1][0], ...window);
      gl.uniform2f(at.stride, ...stride);
      gl.uniform2f(at.imageSize, wide, high);
      gl.uniform1i(at.atlas, 4);
      gl.uniform1i(at.marks, view.marks ? 1 : 0);
      gl.uniform1f(at.opacity, opacity);
      const points = view.tile * view.ratio <= POINTS;
      gl.uniform1i(at.points, points ? 1 : 0);
      if (points) {
        this.setIds(this.listed.subarray(0, count));
        gl.drawArrays(gl.POINTS, 0, count);
        return;
      }
      for (let k = 0; k < 4 * count; k++) this.quads[k] = this.listed[k >> 2];
      this.setIds(this.quads.subarray(0, 4 * count));
      gl.drawElements(gl.TRIANGLES, 6 * count, gl.UNSIGNED_INT, 0);
    }
  };

  // The atlas, or a smaller copy if its sides are above `most`. Each image becomes smaller by itself, so that it keeps
  // whole pixels and gets nothing of its neighbours.
  T.fittingAtlas = function (atlas, { columns, tile: [high, wide] }, most) {
    if (atlas.width <= most && atlas.height <= most) return atlas;
    const rows = atlas.height / high;
    const shrink = Math.min(most / atlas.width, most / atlas.height);
    const [w, h] = [Math.max(1, Math.floor(wide * shrink)), Math.max(1, Math.floor(high * shrink))];
    const smaller = T.el("canvas", { width: columns * w, height: rows * h });
    const context = smaller.getContext("2d");
    context.imageSmoothingQuality = "high";
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        context.drawImage(atlas, column * wide, row * high, wide, high, column * w, row * h, w, h);
      }
    }
    return smaller;
  };
})(window.tembed);
