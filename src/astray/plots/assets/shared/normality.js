// The colours of normality: orange for unusual, blue for normal, as in astray's pictures.

// They differ for every kind of colour vision; in grey the two ends are the darkest.
export const LIGHT = [
  [-4, "#7f2704"],
  [-3, "#c9480a"],
  [-2, "#f79420"],
  [-1, "#a9cfe8"],
  [0, "#3f8fc9"],
  [1, "#0b4a8f"],
];
// On a dark ground the two ends are the brightest.
export const DARK = [
  [-4, "#ffb27a"],
  [-3, "#ff8a3c"],
  [-2, "#e0710f"],
  [-1, "#4b7896"],
  [0, "#4f9fdb"],
  [1, "#a8d8ff"],
];

/** Returns the stops of a shade, "light" or "dark"; the style sheets give it as --shade. */
export const stopsOf = (shade) => (shade === "dark" ? DARK : LIGHT);

/** Returns a function from normality to a colour between those of a list of [normality, #rrggbb]. */
export function palette(stops) {
  const parts = stops.map(([value, hex]) => [value, [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))]);
  return (normality) => {
    const n = Math.min(Math.max(normality, parts[0][0]), parts.at(-1)[0]);
    const above = Math.max(1, parts.findIndex(([value]) => value >= n));
    const [low, from] = parts[above - 1];
    const [high, to] = parts[above];
    const mixed = from.map((c, i) => Math.round(c + ((n - low) / (high - low)) * (to[i] - c)));
    return `rgb(${mixed.join(",")})`;
  };
}
