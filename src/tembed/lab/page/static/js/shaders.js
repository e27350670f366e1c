// The GPU programs. Every patch is an id, four times for the corners of its picture; what is known about it is in textures that are 1024 texels wide.
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

    // Pictures: a patch is a window into the atlas of images, with the paper's marks.
    tiles: {
      vertex: `${PLACES}
uniform float tile;
uniform vec2 aspect;         // width and height of a patch, the longer one is 1
uniform int columns;         // of the atlas, in images
uniform ivec2 mapSize;       // columns and rows
uniform vec4 window;         // first pixel of the patch at map cell 0, and its size
uniform vec2 stride;         // image pixels per map cell
out vec2 uv;
flat out vec2 origin;
flat out vec2 image;
flat out vec4 frame;
flat out vec3 corner;
flat out float kind;
void main() {
  kind = state(id);
  uv = vec2(gl_VertexID & 1, (gl_VertexID >> 1) & 1);
  gl_Position = clip(centre(id) + (uv - 0.5) * tile * aspect * (kind > 1.5 ? 1.15 : 1.0));
  int number = int(id) / (mapSize.x * mapSize.y);
  int cell = int(id) % (mapSize.x * mapSize.y);
  image = vec2(number % columns, number / columns);
  origin = window.xy + stride * vec2(cell % mapSize.x, cell / mapSize.x);
  frame = texelFetch(frames, texel(id), 0);
  corner = texelFetch(corners, texel(id), 0).rgb;
}`,
      fragment: `#version 300 es
precision highp float;
in vec2 uv;
flat in vec2 origin;
flat in vec2 image;
flat in vec4 frame;
flat in vec3 corner;
flat in float kind;
uniform sampler2D atlas;
uniform vec2 imageSize;      // pixels
uniform vec2 grid;           // the atlas in images
uniform vec4 window;
uniform bool marks;
uniform float tile;
uniform float opacity;
uniform vec3 accent;
out vec4 result;
bool inside(vec2 at, float side) { return all(lessThan(abs(at), vec2(side / 2.0))); }
void main() {
  float edge = marks ? 0.075 : 0.0;
  vec2 pixel = origin + (uv - edge) / (1.0 - 2.0 * edge) * window.zw;
  vec3 colour = vec3(0.5);
  if (all(greaterThanEqual(pixel, vec2(0.0))) && all(lessThan(pixel, imageSize))) {
    vec2 half_ = 0.5 * grid / vec2(textureSize(atlas, 0)); // half a texel, so that no other image is mixed in
    colour = texture(atlas, (image + clamp(pixel / imageSize, half_, 1.0 - half_)) / grid).rgb;
  }
  if (marks) {
    if (!inside(uv - 0.5, 1.0 - 2.0 * edge)) colour = frame.rgb;
    if (inside(uv - 0.5, 0.25)) colour = vec3(1.0);
    if (inside(uv - 0.5, 0.2)) colour = vec3(frame.a);
    if (max(uv.x, uv.y) < 0.3) colour = vec3(1.0);
    if (max(uv.x, uv.y) < 0.275) colour = corner;
  }
  if (kind > 1.5 && !inside(uv - 0.5, 1.0 - 2.0 * max(0.06, 2.0 / tile))) colour = accent;
  float alpha = opacity * (kind < 0.5 ? 0.08 : 1.0);
  result = vec4(colour * alpha, alpha);
}`,
    },
  };
})(window.tembed);
