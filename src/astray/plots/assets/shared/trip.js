// A trip as map and chart draw it, and the words for its fixes.
//
// Both pages describe a trip by these fields: time, n, low, high, fault (one value per fix), places ([lon, lat] or null),
// usable (numbers of fixes without a fault), segments ({start, end, words}), ways (GeoJSON lines), expected (lists of
// places), stop ({at, minutes} or null), eps, leave, history, passed, clock (number of a fix to words), ticks and axis.

import { signed } from "./canvas.js";
import { line, point } from "./map.js";

const within = ({ time, usable }, { start, end }) => usable.filter((i) => start <= time[i] && time[i] <= end);

/** Returns the places of a segment. */
export const placesOf = (trip, segment) => within(trip, segment).map((i) => trip.places[i]);

/** Returns the track as one line, with the normality of its places. */
export function trackOf({ places, usable, n }) {
  return line(usable.map((i) => places[i]), { n: usable.map((i) => n[i] ?? null) });
}

/** Returns the layers of the map that show a trip; `others` are trips beside it. */
export function layersOf(trip, others = []) {
  const { places, usable } = trip;
  const odd = trip.segments.map((segment) => placesOf(trip, segment));
  const shown = usable.length ? usable : places.map((place, i) => (place ? i : -1)).filter((i) => i >= 0);
  return {
    ways: trip.ways,
    others: others.filter((other) => other.usable.length > 1).map(trackOf),
    track: [trackOf(trip)],
    odd: odd.map((segment) => line(segment)),
    expected: trip.expected.map((way) => line(way)),
    faults: places.filter((place, i) => place && trip.fault[i]).map((place) => point(place)),
    ends: shown.length
      ? [point(places[shown.at(-1)], { end: true }), point(places[shown[0]], { end: false })]
      : [],
    stop: trip.stop ? [point(trip.stop.at)] : [],
    numbers: odd.flatMap((segment, k) => (segment.length ? [point(segment[segment.length >> 1], { number: k + 1 })] : [])),
  };
}

/** Returns the entries of the legend: [class of the key, words]. */
export function legendOf(trip, others = []) {
  return [
    ["way", "habitual ways", trip.ways.length],
    ["other", "the other trips", others.length],
    ["odd", "not normal", trip.segments.length],
    ["expected", "expected way", trip.expected.length],
    ["start", "start", true],
    ["end", "end", true],
    ["stop", `stood ${trip.stop?.minutes} minutes`, trip.stop],
    ["fault", "faulty fixes", trip.fault.some(Boolean)],
  ].filter(([, , there]) => there);
}

/** Returns what is known of a fix, as short phrases. */
export function wordsOf(trip, i) {
  const words = [trip.clock(i)];
  if (trip.fault[i]) return [...words, `left out as faulty: ${trip.fault[i]}`];
  if (trip.n[i] === null) return [...words, "no score"];
  const spread = trip.high[i] === null ? "" : ` ± ${((trip.high[i] - trip.low[i]) / 4).toFixed(2)}`;
  words.push(`normality ${signed(trip.n[i], 2)}${spread}`);
  const passed = trip.passed?.[i];
  if (passed !== undefined && passed !== null) words.push(`${passed} of ${trip.history} past trips came through here`);
  const segment = trip.segments.findIndex(({ start, end }) => start <= trip.time[i] && trip.time[i] <= end);
  if (segment >= 0) words.push(`in segment ${segment + 1}`);
  return words;
}
