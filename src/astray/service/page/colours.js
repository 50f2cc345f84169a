// The colours of the page, and the marks of an agent's states.

import { makeSvg } from "./dom.js";
import { palette, stopsOf } from "./shared/normality.js";

export const isDark = () => document.documentElement.dataset.shade === "dark";
export const normalityStops = () => stopsOf(document.documentElement.dataset.shade);

/** Returns the colour of a normality. */
export const normalityColour = (normality) => palette(normalityStops())(normality);

// Each state has its own shape (in a square of 20), so that nobody needs colours to distinguish them.
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
