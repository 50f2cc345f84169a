// Reads a trip from the data of the page, in the form that the shared map and chart draw.

import { roundLength } from "./shared/canvas.js";
import { line } from "./shared/map.js";

/** Sums differences and divides them: [10, 5, -5] over 10 becomes 1, 1.5, 1. */
function unrolled(differences, unit) {
  let sum = 0;
  return differences.map((difference) => (sum += difference) / unit);
}

/** Reads a way, written as differences of latitude and of longitude in millionths of a degree. */
function placesIn([lat, lon]) {
  const north = unrolled(lat, 1e6);
  return unrolled(lon, 1e6).map((degrees, i) => [degrees, north[i]]);
}

export function readTrip(raw, ways) {
  const hundredths = (values) => values.map((value) => (value === null ? null : value / 100));
  const [n, uncertainty] = [hundredths(raw.normality), hundredths(raw.uncertainty)];
  const band = (side) => n.map((value, i) => (value === null ? null : value + side * 2 * uncertainty[i]));
  const faults = new Map(raw.faults);
  const time = unrolled(raw.time, 10);
  const [unit, seconds] = raw.unit ?? ["step", 1];
  return {
    ...raw,
    time,
    n,
    low: band(-1),
    high: band(1),
    fault: time.map((_, i) => faults.get(i) ?? ""),
    usable: n.map((value, i) => (value !== null && !faults.has(i) ? i : -1)).filter((i) => i >= 0),
    places: raw.way ? placesIn(raw.way) : [],
    segments: raw.segments.map((segment) => ({ ...segment, start: time[segment.first], end: time[segment.last] })),
    ways: (raw.habitual ?? []).map((number) => line(placesIn(ways[number]))),
    expected: (raw.expected ?? []).map(placesIn),
    stop: raw.stop ? { at: [raw.stop[1], raw.stop[0]], minutes: raw.stop[2] } : null,
    clock: (i) => clock(raw, time, i),
    axis: raw.start === null ? unit : `${unit} since the start`,
    ticks: (from, to, width) => {
      const step = Math.max(roundLength((1.6 * (to - from)) / seconds / Math.max(width / 60, 2)), 0.1);
      const count = Math.floor((to - from) / (step * seconds)) + 1;
      return Array.from({ length: count }, (_, k) => [from + k * step * seconds, String(Math.round(10 * k * step) / 10)]);
    },
  };
}

/** Returns the local time of a fix, or the number of a step. */
function clock({ start, ahead, zone }, time, i) {
  if (start === null) return `step ${time[i]}`;
  const [, offset] = ahead.findLast(([first]) => first <= i);
  return `${new Date((start + time[i] + offset) * 1000).toISOString().slice(11, 19)} ${zone}`;
}
