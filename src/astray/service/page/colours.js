// The colours of normality and of an agent's state; orange for what is odd, blue for what is normal, as in astray's pictures.

import { makeSvg } from "./dom.js";

// Told apart with any kind of colour vision, and in grey by the ends, both of which are dark.
export const NORMALITY = [
  [-4, "#7f2704"],
  [-3, "#c9480a"],
  [-2, "#f79420"],
  [-1, "#a9cfe8"],
  [0, "#3f8fc9"],
  [1, "#0b4a8f"],
];
// On a dark ground the ends are the bright ones.
const NORMALITY_DARK = [
  [-4, "#ffb27a"],
  [-3, "#ff8a3c"],
  [-2, "#e0710f"],
  [-1, "#4b7896"],
  [0, "#4f9fdb"],
  [1, "#a8d8ff"],
];

export const isDark = () => document.documentElement.dataset.shade === "dark";
export const normalityStops = () => (isDark() ? NORMALITY_DARK : NORMALITY);

/** A colour of the page's style. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The colour of a normality, in between those of the list. */
export function normalityColour(normality) {
  const stops = normalityStops();
  const n = Math.min(Math.max(normality, stops[0][0]), stops.at(-1)[0]);
  const above = Math.max(
    1,
    stops.findIndex(([value]) => value >= n),
  );
  const [[low, from], [high, to]] = [stops[above - 1], stops[above]];
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const mixed = parts(from).map((c, i) => Math.round(c + ((n - low) / (high - low)) * (parts(to)[i] - c)));
  return `rgb(${mixed.join(",")})`;
}

// Each state has a shape of its own (in a square of 20), so that no colour is needed to tell them apart.
export const STATES = {
  alert: { rank: 0, colour: "odd", path: "M10 1.5 19 18H1Z", words: "alert: the trip under way is not normal" },
  silent: {
    rank: 1,
    colour: "grey",
    path: "M3 5 5 3l5 5 5-5 2 2-5 5 5 5-2 2-5-5-5 5-2-2 5-5Z",
    words: "silent: no fix for longer than usual",
  },
  moving: {
    rank: 2,
    colour: "normal",
    path: "M10 2a8 8 0 1 0 0 16 8 8 0 1 0 0-16Z",
    words: "moving: a trip is under way, so far normal",
  },
  learning: {
    rank: 3,
    colour: "review",
    path: "M10 2a8 8 0 1 0 0 16 8 8 0 1 0 0-16Zm0 4a4 4 0 1 1 0 8 4 4 0 1 1 0-8Z",
    words: "learning: too few past trips to be sure",
  },
  "at rest": { rank: 4, colour: "grey", path: "M5 5h10v10H5Z", words: "at rest: no trip is under way" },
};
export const stateOf = (name) => STATES[name] ?? STATES["at rest"];

export function stateMark(name) {
  const state = stateOf(name);
  return makeSvg(
    "svg",
    { viewBox: "0 0 20 20", class: `mark ${state.colour}`, "aria-hidden": "true" },
    makeSvg("path", { d: state.path, "fill-rule": "evenodd" }),
  );
}
