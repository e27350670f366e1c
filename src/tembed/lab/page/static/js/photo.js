// A photo as the network's input: read whole, and resized as `tembed predict` does it (Pillow's Lanczos filter).
"use strict";

(function (T) {
  const LARGEST = 1 << 26; // pixels, as in tembed/images/image_files.py
  const LOBES = 3; // of the Lanczos filter
  const STRIP = 256; // rows that are read at once

  // A file that cannot be used, with a sentence for the user.
  T.Refused = class extends Error {};

  // The photo as an ImageBitmap: upright, with the values of its pixels as they are in the file.
  T.readPhoto = async function (file) {
    if (/svg/.test(file.type) || /\.svgz?$/i.test(file.name)) {
      throw new T.Refused("An SVG file is a drawing without pixels: save it as PNG or JPEG and drop that.");
    }
    if (!file.type.startsWith("image/")) {
      throw new T.Refused("This file is not an image: drop a PNG, JPEG, WebP or GIF file.");
    }
    if (T.truncated(new Uint8Array(await file.arrayBuffer()))) {
      throw new T.Refused("The end of this image is missing: copy or download it again and drop that.");
    }
    const photo = await createImageBitmap(file, { colorSpaceConversion: "none" }).catch(() => {
      throw new T.Refused("This browser cannot read the image: it is damaged or in a format that browsers do not know.");
    });
    if (photo.width * photo.height > LARGEST) {
      const millions = Math.round((photo.width * photo.height) / 1e6);
      throw new T.Refused(`The image has ${millions} megapixels: make it smaller than ${Math.floor(LARGEST / 1e6)} and drop it again.`);
    }
    return photo;
  };

  // Whether a file ends before its image does. Browsers show what there is, in grey below.
  T.truncated = function (bytes) {
    const text = (from, count) => String.fromCharCode(...bytes.subarray(from, from + count));
    const number = (at) => new DataView(bytes.buffer).getUint32(at, true);
    if (bytes[0] === 0xff && bytes[1] === 0xd8) return !endsJpeg(bytes);
    if (text(1, 3) === "PNG") return !endsPng(bytes);
    if (text(0, 4) === "RIFF") return bytes.length < 8 || bytes.length < number(4) + 8;
    return false;
  };

  // Walks the segments of a JPEG to its end mark.
  function endsJpeg(bytes) {
    for (let at = 2; at + 1 < bytes.length; ) {
      const [start, mark] = [bytes[at], bytes[at + 1]];
      if (start !== 0xff || mark === 0 || mark === 0xff || (mark >= 0xd0 && mark <= 0xd7)) at += 1; // data of a scan
      else if (mark === 0xd9) return true;
      else at += 2 + 256 * bytes[at + 2] + bytes[at + 3];
    }
    return false;
  }

  function endsPng(bytes) {
    const view = new DataView(bytes.buffer);
    for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
      if (view.getUint32(at + 4) === 0x49454e44) return true; // IEND
    }
    return false;
  }

  // Which part of a photo the network gets, [left, top, right, bottom] in its pixels, and where that lies on the input,
  // [left, top, width, height]: the middle covers it (crop), the whole photo lies inside it (pad), or it is stretched.
  T.placed = function (width, height, wide, high, fit) {
    if (fit === "crop") {
      const scale = Math.min(width / wide, height / high);
      const [w, h] = [scale * wide, scale * high];
      return { box: [(width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2], into: [0, 0, wide, high] };
    }
    const scale = Math.min(wide / width, high / height);
    const [w, h] = fit === "pad" ? [even(width * scale), even(height * scale)] : [wide, high];
    return { box: [0, 0, width, height], into: [even((wide - w) / 2), even((high - h) / 2), w, h] };
  };

  // The nearest whole number; of two equally near ones the even one, as Python rounds.
  const even = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

  const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

  // For each of `count` new pixels between `start` and `end`, the first old pixel of `side` that counts, and the weights
  // of those from there on.
  T.lanczos = function (side, start, end, count) {
    const scale = (end - start) / count;
    const wide = Math.max(1, scale);
    return Array.from({ length: count }, (_, k) => {
      const centre = start + (k + 0.5) * scale;
      const first = Math.max(0, Math.trunc(centre - LOBES * wide + 0.5));
      const last = Math.min(side, Math.trunc(centre + LOBES * wide + 0.5));
      const weights = Array.from({ length: last - first }, (_, j) => {
        const x = (first + j - centre + 0.5) / wide;
        return Math.abs(x) < LOBES ? sinc(x) * sinc(x / LOBES) : 0;
      });
      const sum = weights.reduce((a, b) => a + b, 0);
      return { first, weights: weights.map((w) => w / sum) };
    });
  };

  // `lines` lines of `step` values each, four values a pixel. Every new pixel k of a line is a weighted sum of old ones,
  // `stride` values apart, and goes to `out` at `place(line, k)`.
  function filter(from, lines, step, stride, taps, out, place) {
    for (let line = 0; line < lines; line++) {
      taps.forEach(({ first, weights }, k) => {
        for (let c = 0; c < 4; c++) {
          let sum = 0;
          for (let j = 0; j < weights.length; j++) sum += weights[j] * from[line * step + (first + j) * stride + c];
          out[place(line, k) + c] = sum; // rounded and kept from 0 to 255 by the type of `out`
        }
      });
    }
  }

  // The network's input from a photo: { canvas, box }, with the part of the photo that the network gets.
  T.fitted = function (photo, wide, high, fit) {
    const { width, height } = photo;
    const { box, into: [x, y, w, h] } = T.placed(width, height, wide, high, fit);
    const canvas = T.el("canvas", { width: wide, height: high });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const across = T.lanczos(width, box[0], box[2], w);
    const narrow = new Uint8ClampedArray(4 * w * height);
    const strip = new OffscreenCanvas(width, STRIP).getContext("2d", { willReadFrequently: true });
    strip.fillStyle = "white"; // behind a translucent photo
    for (let top = 0; top < height; top += STRIP) {
      const rows = Math.min(STRIP, height - top);
      strip.fillRect(0, 0, width, STRIP);
      strip.drawImage(photo, 0, -top);
      const { data } = strip.getImageData(0, 0, width, rows);
      filter(data, rows, 4 * width, 4, across, narrow, (line, k) => 4 * ((top + line) * w + k));
    }
    const small = context.createImageData(w, h);
    filter(narrow, w, 4, 4 * w, T.lanczos(height, box[1], box[3], h), small.data, (line, k) => 4 * (k * w + line));
    context.fillStyle = "rgb(128,128,128)"; // the borders of a padded photo
    context.fillRect(0, 0, wide, high);
    context.putImageData(small, x, y);
    return { canvas, box };
  };
})(window.tembed);
