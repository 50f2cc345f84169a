// How the map draws what it is told: habitual ways at the bottom, then tracks, marks, agents, what is pointed at.

import { colour, normalityStops } from "./colours.js";

export function overlay() {
  const [ink, soft, pale, ground] = ["ink", "soft", "pale", "ground"].map(colour);
  const round = { "line-cap": "round", "line-join": "round" };
  const normality = [
    "case",
    ["has", "n"],
    ["interpolate", ["linear"], ["to-number", ["get", "n"]], ...normalityStops().flat()],
    colour("normal"),
  ];
  const text = { "text-font": ["sans-serif"], "text-size": 12 };
  return [
    {
      id: "ways",
      type: "line",
      source: "ways",
      layout: round,
      paint: {
        "line-color": ["case", ["boolean", ["get", "chosen"], false], colour("grey"), pale],
        "line-width": ["interpolate", ["linear"], ["zoom"], 10, 1, 15, 2.2],
        "line-opacity": 0.75,
      },
    },
    {
      id: "trails",
      type: "line",
      source: "trails",
      layout: round,
      paint: {
        "line-color": ["case", ["get", "alert"], colour("odd"), colour("normal")],
        "line-width": 3,
        "line-opacity": 0.8,
      },
    },
    {
      id: "odd",
      type: "line",
      source: "odd",
      layout: round,
      paint: { "line-color": colour("odd"), "line-opacity": 0.26, "line-width": 22 },
    },
    {
      id: "expected-case",
      type: "line",
      source: "expected",
      layout: round,
      paint: { "line-color": ground, "line-width": 4.5 },
    },
    {
      id: "expected",
      type: "line",
      source: "expected",
      paint: { "line-color": ink, "line-width": 2.5, "line-dasharray": [3, 2.4] },
    },
    {
      id: "others-case",
      type: "line",
      source: "others",
      layout: round,
      paint: { "line-color": ground, "line-width": 5 },
    },
    {
      id: "others",
      type: "line",
      source: "others",
      layout: round,
      paint: { "line-color": colour("review"), "line-width": 2.5 },
    },
    { id: "track-case", type: "line", source: "track", layout: round, paint: { "line-color": ink, "line-width": 6.5 } },
    {
      id: "track",
      type: "line",
      source: "track",
      layout: round,
      paint: { "line-color": normality, "line-width": 4.5 },
    },
    {
      id: "faults",
      type: "symbol",
      source: "faults",
      layout: { ...text, "text-field": "×", "text-size": 16, "text-allow-overlap": true },
      paint: { "text-color": soft, "text-halo-color": ground, "text-halo-width": 1 },
    },
    {
      id: "start",
      type: "circle",
      source: "ends",
      filter: ["==", ["get", "end"], false],
      paint: { "circle-radius": 6, "circle-color": ground, "circle-stroke-color": ink, "circle-stroke-width": 2.5 },
    },
    {
      id: "end",
      type: "symbol",
      source: "ends",
      filter: ["==", ["get", "end"], true],
      layout: { ...text, "text-field": "■", "text-size": 20, "text-allow-overlap": true },
      paint: { "text-color": ink, "text-halo-color": ground, "text-halo-width": 2 },
    },
    {
      id: "numbers",
      type: "circle",
      source: "numbers",
      paint: {
        "circle-radius": 10,
        "circle-color": colour("odd"),
        "circle-stroke-color": "#ffffff",
        "circle-stroke-width": 1.5,
        "circle-translate": [16, -16],
      },
    },
    {
      id: "numbers-text",
      type: "symbol",
      source: "numbers",
      layout: { ...text, "text-field": ["get", "number"], "text-allow-overlap": true },
      paint: { "text-color": "#ffffff", "text-translate": [16, -16] },
    },
    {
      id: "chosen",
      type: "circle",
      source: "agents",
      filter: ["get", "chosen"],
      paint: {
        "circle-radius": 15,
        "circle-color": "transparent",
        "circle-stroke-color": ink,
        "circle-stroke-width": 2,
      },
    },
    {
      id: "agents",
      type: "symbol",
      source: "agents",
      layout: {
        ...text,
        "icon-image": ["get", "state"],
        "icon-allow-overlap": true,
        "text-field": ["get", "name"],
        "text-anchor": "top",
        "text-offset": [0, 0.8],
        "text-optional": true,
        "symbol-sort-key": ["get", "rank"],
      },
      paint: { "text-color": ink, "text-halo-color": ground, "text-halo-width": 1.5 },
    },
    {
      id: "pointed-case",
      type: "circle",
      source: "pointed",
      paint: {
        "circle-radius": 9,
        "circle-color": "transparent",
        "circle-stroke-color": ground,
        "circle-stroke-width": 6,
      },
    },
    {
      id: "pointed",
      type: "circle",
      source: "pointed",
      paint: {
        "circle-radius": 9,
        "circle-color": "transparent",
        "circle-stroke-color": ink,
        "circle-stroke-width": 3,
      },
    },
  ];
}
