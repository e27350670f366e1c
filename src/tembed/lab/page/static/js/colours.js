// The colours of the classes on light and on dark paper.
"use strict";

(function (T) {
  const LEAST = 3; // contrast of a class colour to dark paper, as WCAG measures it
  const BRIGHTER = 1.05; // a step towards it

  const linear = (byte) => (byte <= 10 ? byte / 3294.6 : Math.pow((byte / 255 + 0.055) / 1.055, 2.4));
  const luminance = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);

  // From 1 to 21, for two colours of three bytes.
  T.contrast = function (one, other) {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };

  // The colours as they are shown on a paper: on a dark one, dark colours become brighter until they can be told from it.
  T.onPaper = function (colours, paper) {
    if (luminance(paper) > 0.5) return colours;
    return colours.map((colour) => {
      let found = colour;
      while (T.contrast(found.map(Math.round), paper) < LEAST) found = found.map((byte) => Math.min(255, byte * BRIGHTER + 1));
      return found.map(Math.round);
    });
  };
})(window.tembed);
