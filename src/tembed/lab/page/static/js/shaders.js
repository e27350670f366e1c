// The GPU programs. Every patch is an id; what is known about it is in textures that are 1024 texels wide.
"use strict";

(function (T) {
  const PLACES = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
in uint id;
uniform usampler2D places;   // x, y before and after a change of layout, 16 bits each
uniform sampler2D frames;    // colour of the true class, entropy
uniform sampler2D corners;   // colour of the head's class
uniform sampler2D states;    // 0: filtered out, 1: shown, 2: lit
uniform vec2 size;           // of the canvas
uniform vec3 camera;         // x, y, scale
uniform float moved;         // from 0 to 1 during a change of layout
ivec2 texel(uint id) { return ivec2(id & 1023u, id >> 10); }
vec2 centre(uint id) {
  uvec4 place = texelFetch(places, texel(id), 0);
  vec2 map = mix(vec2(place.xy), vec2(place.zw), moved) / 65535.0;
  return (map - camera.xy) * camera.z + size / 2.0;
}
vec4 clip(vec2 pixel) { return vec4(pixel.x / size.x * 2.0 - 1.0, 1.0 - pixel.y / size.y * 2.0, 0.0, 1.0); }
float state(uint id) { return floor(texelFetch(states, texel(id), 0).r * 255.0 + 0.5); }
`;

  T.shaders = {
    // Lit patches from afar: points with an accent ring.
    points: {
      vertex: `${PLACES}
uniform float diameter;
flat out vec3 colour;
void main() {
  gl_Position = clip(centre(id));
  gl_PointSize = diameter;
  colour = texelFetch(frames, texel(id), 0).rgb;
}`,
      fragment: `#version 300 es
precision highp float;
flat in vec3 colour;
uniform vec3 accent;
out vec4 result;
void main() {
  float r = length(gl_PointCoord - 0.5) * 2.0;
  if (r > 1.0) discard;
  result = vec4(r > 0.55 ? accent : colour, 1.0);
}`,
    },

    // The picture of the density (density.js), over the whole canvas.
    density: {
      vertex: `#version 300 es
in uint id;
out vec2 uv;
void main() {
  uv = vec2(id & 1u, id >> 1);
  gl_Position = vec4(uv.x * 2.0 - 1.0, 1.0 - uv.y * 2.0, 0.0, 1.0);
}`,
      fragment: `#version 300 es
precision highp float;
in vec2 uv;
uniform sampler2D picture;
uniform float opacity;
out vec4 result;
void main() { result = texture(picture, uv) * opacity; }`,
    },

    // Pictures: a patch is a window into the atlas of images, with the paper's marks. Small ones are points, which need one
    // vertex each; a point ends at the border of the map with its centre, so large ones are quads with an id per corner.
    tiles: {
      vertex: `${PLACES}
uniform float tile;
uniform bool points;
uniform float opacity;       // of all pictures together
uniform int columns;         // of the atlas, in images
uniform ivec2 mapSize;       // columns and rows
uniform vec4 window;         // first pixel of the patch at map cell 0, and its size
uniform vec2 stride;         // image pixels per map cell
uniform vec2 imageSize;      // pixels
out vec2 corner_;            // of a quad, in units of the window's longer side
flat out vec2 extent;        // of the picture, in the same unit
flat out vec4 seen;          // first pixel and size of what lies inside the image
flat out vec2 image;
flat out vec4 frame;
flat out vec3 corner;
flat out float kind;
flat out float shown;        // opacity of this picture: they come one after another, in the order of T.rank
void main() {
  kind = state(id);
  float rank = float((id * 2654435761u) >> 8) / 16777216.0;
  shown = kind > 1.5 ? 1.0 : clamp(5.0 * opacity - 4.0 * rank, 0.0, 1.0) * (kind < 0.5 ? 0.08 : 1.0);
  int number = int(id) / (mapSize.x * mapSize.y);
  int cell = int(id) % (mapSize.x * mapSize.y);
  image = vec2(number % columns, number / columns);
  vec2 origin = window.xy + stride * vec2(cell % mapSize.x, cell / mapSize.x);
  vec2 first = max(origin, vec2(0.0));
  seen = vec4(first, min(origin + window.zw, imageSize) - first);
  extent = seen.zw / max(window.z, window.w);
  corner_ = vec2(gl_VertexID & 1, (gl_VertexID >> 1) & 1) * extent;
  float side = tile * (kind > 1.5 ? 1.15 : 1.0);
  gl_PointSize = side * max(extent.x, extent.y);
  gl_Position = clip(centre(id) + (points ? vec2(0.0) : (corner_ - extent / 2.0) * side));
  frame = texelFetch(frames, texel(id), 0);
  corner = texelFetch(corners, texel(id), 0).rgb;
}`,
      fragment: `#version 300 es
precision highp float;
in vec2 corner_;
flat in vec2 extent;
flat in vec4 seen;
flat in vec2 image;
flat in vec4 frame;
flat in vec3 corner;
flat in float kind;
flat in float shown;
uniform sampler2D atlas;
uniform vec2 imageSize;
uniform vec2 grid;           // the atlas in images
uniform bool marks;
uniform float tile;
uniform bool points;
uniform vec3 accent;
out vec4 result;
void main() {
  vec2 at = corner_;
  if (points) { // a square, of which a narrow picture needs the middle
    at = (gl_PointCoord - 0.5) * max(extent.x, extent.y) + extent / 2.0;
    if (any(lessThan(at, vec2(0.0))) || any(greaterThan(at, extent))) discard;
  }
  float edge = marks ? 0.075 : 0.0;
  vec2 pixel = seen.xy + (at - edge) / (extent - 2.0 * edge) * seen.zw;
  vec2 half_ = 0.5 * grid / vec2(textureSize(atlas, 0)); // half a texel, so that no other image is mixed in
  vec3 colour = texture(atlas, (image + clamp(pixel / imageSize, half_, 1.0 - half_)) / grid).rgb;
  vec2 off = abs(at - extent / 2.0);
  vec2 rim = extent / 2.0 - off;
  float border = min(rim.x, rim.y);
  if (marks) {
    float side = min(extent.x, extent.y); // the marks of a narrow picture are smaller
    float middle = max(off.x, off.y) / side;
    float first = max(at.x, at.y) / side;
    if (border < edge) colour = frame.rgb;
    if (middle < 0.125) colour = vec3(middle < 0.1 ? frame.a : 1.0);
    if (first < 0.3) colour = first < 0.275 ? corner : vec3(1.0);
  }
  if (kind > 1.5 && border < max(0.06, 2.0 / tile)) colour = accent;
  result = vec4(colour * shown, shown);
}`,
    },
  };
})(window.tembed);
