// Shows a trip to a person who judges it: the reasons, the track over the habitual ways, normality over time.

import { ask, inPath } from "./api.js";
import { normalityStops } from "./colours.js";
import { make } from "./dom.js";
import { boxAround, map } from "./map.js";
import { TimeChart } from "./shared/chart.js";
import { layersOf, legendOf, placesOf, wordsOf } from "./shared/trip.js";
import {
  ahead,
  clock,
  count,
  decisionOf,
  frequency,
  inDoubt,
  lasting,
  moment,
  percent,
  rarity,
  sentence,
  signed,
  zoneName,
} from "./words.js";

const AROUND = 0.25; // share of the track's size within which habitual ways are in view
const DOUBT =
  "The service did not flag this trip. But it flagged many trips of this agent lately, and this one is not clearly normal, so it learns the trip only if you say so.";
const ASPECTS = ["place", "route", "manner", "time"];
const RAREST = 0.01; // the p-value whose bar is full
const RARE = 0.02; // the p-value from which a bar is red, where no rate by aspect decides
const HINT = "Normality in local time, with its uncertainty. Point here or at the map to read a fix.";

/** Loads a trip from the service, in the form that the shared map and chart draw. */
export async function loadTrip(id, signal) {
  const trip = await ask(`/api/trips/${inPath(id)}`, { signal });
  const { track } = trip;
  const offset = ahead(trip.local);
  const places = track.lat.map((lat, i) => (lat === null ? null : [track.lon[i], lat]));
  if (!trip.ways?.features?.length)
    trip.ways = await ask(`/api/agents/${inPath(trip.agent)}/ways`, { signal }).catch(() => null);
  return {
    ...trip,
    ...track,
    places,
    usable: places.map((place, i) => (place && !track.fault[i] ? i : -1)).filter((i) => i >= 0),
    segments: trip.segments ?? [],
    ways: (trip.ways?.features ?? []).filter((way) => way.geometry?.coordinates?.length > 1),
    expected: trip.expected ? [(trip.expected.geometry ?? trip.expected).coordinates] : [],
    stop: null,
    ahead: offset,
    clock: (i) => `${clock(track.time[i], offset, true)} ${zoneName(trip.zone)}`,
    ticks: (from, to, width) => timesBetween(from, to, width).map((t) => [t, clock(t, offset, t % 60 !== 0)]),
    axis: `local time (${zoneName(trip.zone)})`,
  };
}

/** Returns round times for the axis, as many as fit. */
function timesBetween(from, to, width) {
  const most = Math.max(2, width / 90);
  const fits = (seconds) => (to - from) / seconds <= most;
  const step =
    [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].find(fits) ??
    86400 * Math.ceil((to - from) / 86400 / most);
  const times = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) times.push(t);
  return times;
}

export class TripView {
  constructor() {
    this.chart = new TimeChart((i) => this.point(i));
    this.heading = make("h1", { tabindex: "-1" });
    this.why = make("ul", { class: "why" });
    this.numbers = make("p", { class: "soft numbers" });
    this.aspects = make("section", { class: "aspects", "aria-label": "How unusual each aspect is" });
    this.tabs = make("div", { class: "tabs", role: "group", "aria-label": "Trips of the question", hidden: true });
    this.frame = make("div", { class: "map-frame" });
    this.legend = make("ul", { class: "legend", "aria-label": "What the map shows" });
    this.readout = make("p", { class: "readout" }, HINT);
    this.segments = make("ol", { class: "segments", "aria-label": "What is not normal" });
    this.element = make(
      "article",
      { class: "trip" },
      make("header", {}, this.heading, this.tabs),
      make("section", { class: "why-part", "aria-label": "Why" }, this.why, this.aspects, this.numbers),
      make("section", { class: "map-part", "aria-label": "Map" }, this.frame, this.legend),
      make("section", { class: "chart-part", "aria-label": "Normality in time" }, this.chart.element, this.readout),
      make("section", { class: "segments-part", "aria-label": "Segments that are not normal" }, this.segments),
    );
  }

  /** Shows a trip, with the others of its question if it is one of several. */
  show(trip, { others = [], title = null, late = false } = {}) {
    this.trip = trip;
    const from = moment(trip.start, trip.local);
    const until = trip.end === null ? "" : `–${clock(trip.end, trip.ahead)}`;
    this.heading.replaceChildren(
      ...(title ?? [
        make("span", { class: `chip ${inDoubt(trip) ? "plain" : trip.decision}` }, decisionOf(trip)),
        " ",
        agentLink(trip.agent),
      ]),
      make("span", { class: "when" }, `${from}${until} `, make("span", { class: "soft" }, zoneName(trip.zone))),
      late || trip.late
        ? make("span", { class: "chip plain", title: "Its fixes arrived long after it happened" }, "arrived late")
        : "",
    );
    const words = (Array.isArray(trip.words) ? trip.words : [trip.words]).filter(Boolean);
    const plain =
      {
        normal: "Nothing about this trip is unusual.",
        open: "The trip is under way; its reasons appear when it has ended.",
      }[trip.decision] ?? "No single reason stands out.";
    if (inDoubt(trip)) words.unshift(DOUBT);
    this.why.replaceChildren(...(words.length ? words : [plain]).map((reason) => make("li", {}, sentence(reason))));
    this.aspects.replaceChildren(...aspectsOf(trip));
    this.numbers.replaceChildren(...numbersOf(trip));
    map.attach(this.frame);
    this.draw(others);
    this.chart.show(trip);
    this.point(null);
    this.list();
  }

  draw(others) {
    const { trip } = this;
    const own = [trip, ...others].flatMap(({ usable, places }) => usable.map((i) => places[i]));
    map.show(layersOf(trip, others), {
      fixes: trip.places.map((place, i) => (trip.fault[i] ? null : place)),
      box: frameOf(own, trip.ways),
      onFix: (i) => this.point(i),
    });
    map.label(`Map of the trip. Segments that are not normal: ${trip.segments.length}.`);
    this.legend.replaceChildren(
      make("li", {}, "odd", ramp(), "normal"),
      ...legendOf(trip, others).map(([name, words]) =>
        make("li", {}, make("span", { class: `key ${name}`, "aria-hidden": "true" }), words),
      ),
    );
  }

  list() {
    const { trip } = this;
    const seconds = trip.end - trip.start < 600;
    this.segments.replaceChildren(
      ...trip.segments.map((segment, k) =>
        make(
          "li",
          {},
          make(
            "button",
            { type: "button", onclick: () => this.zoom(segment) },
            make("span", { class: "number", "aria-hidden": "true" }, String(k + 1)),
            make(
              "span",
              {},
              make("b", {}, `${clock(segment.start, trip.ahead, seconds)}–${clock(segment.end, trip.ahead, seconds)}`),
              ` ${segment.words}`,
            ),
          ),
        ),
      ),
    );
  }

  zoom(segment) {
    const box = boxAround(placesOf(this.trip, segment));
    if (!box) return;
    map.moved = true;
    map.fit(box, true);
    this.frame.scrollIntoView({ block: "nearest" });
  }

  point(i) {
    const words = i === null ? [] : wordsOf(this.trip, i);
    this.chart.pointFix(i, words.join(", "));
    map.pointFix(i, words.join("\n"));
    this.readout.textContent = words.join(" · ") || HINT;
  }
}

export function agentLink(agent) {
  return make(
    "a",
    { class: "agent", href: `/live?agent=${inPath(agent)}`, title: "Show this agent on the map" },
    agent,
  );
}

/** Returns a row for each aspect: its name, a bar that is longer the rarer the trip is in it, words and p-value. */
function aspectsOf(trip) {
  const known = ASPECTS.map((aspect) => [aspect, trip[`p_${aspect}`] ?? null]);
  if (known.every(([, p]) => p === null)) return []; // no trip was held out, or the trip is older than these numbers
  const rates = trip.rates ?? {};
  const decides = Object.keys(rates).length > 0;
  const row = ([aspect, p]) => {
    const rate = rates[aspect];
    const flags = p !== null && (decides ? p <= (rate ?? 0) : p <= RARE);
    const note = rate === undefined ? "" : `${p <= rate ? "within" : "not within"} its rate of ${percent(rate)}`;
    return make(
      "li",
      { class: flags ? "low" : null, title: note || null },
      make("span", {}, sentence(aspect)),
      barOf(p, rate),
      make("span", {}, rarity(p)),
      make("span", { class: "soft" }, p === null ? "" : `p ${p.toPrecision(2)}`),
    );
  };
  const marks = decides ? "; the mark is its rate" : "";
  return [
    make("p", { class: "soft" }, `Normal trips as unusual in each aspect${marks}`),
    make("ul", {}, known.map(row)),
  ];
}

/** Returns the bar of a p-value, with a mark at the rate of its aspect, if it has one. */
function barOf(p, rate) {
  const bar = make("i");
  const mark = rate === undefined ? null : make("b");
  bar.style.width = `${lengthOf(p)}%`; // not as an attribute, which the page's policy forbids
  if (mark) mark.style.left = `${lengthOf(rate)}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, bar, mark);
}

/** Returns the length of the bar of a p-value in percent. */
const lengthOf = (p) =>
  p === null ? 0 : Math.min(100, Math.round((100 * Math.log(Math.max(p, 1e-9))) / Math.log(RAREST)));

function numbersOf(trip) {
  if (trip.score === null || trip.score === undefined) return ["No usable fix, so no score."];
  const spread = trip.uncertainty === null ? "" : ` ± ${trip.uncertainty.toFixed(1)}`;
  const against =
    trip.eps === null || Object.keys(trip.rates ?? {}).length
      ? trip.open
        ? " so far"
        : ""
      : `, ${trip.score <= trip.eps ? "at or under" : "above"} the threshold of ${signed(trip.eps, 2)}`;
  const said = [
    `Normality ${signed(trip.score, 1)}${spread}${against}`,
    trip.open ? null : sentence(frequency(trip.p_value)),
    trip.history === undefined || trip.history === null
      ? null
      : `${count(Math.round(trip.history), "past trip")} known`,
    trip.end === null ? null : `Lasted ${lasting(trip.end - trip.start)}`,
  ];
  const lowest = Math.min(...trip.n.filter((n) => n !== null));
  if (trip.segments.length && trip.eps !== null && lowest > trip.eps) {
    said.push("No single fix is under the threshold; the map marks the worst part of the trip");
  }
  return said.filter(Boolean).map((words) => make("span", {}, words));
}

/** Returns the colours of normality as a small picture. */
function ramp() {
  const stops = normalityStops();
  const made = make("canvas", { width: 120, height: 8, class: "ramp", "aria-hidden": "true" });
  const pen = made.getContext("2d");
  const paint = pen.createLinearGradient(0, 0, 120, 0);
  for (const [n, hex] of stops) paint.addColorStop((n - stops[0][0]) / (stops.at(-1)[0] - stops[0][0]), hex);
  pen.fillStyle = paint;
  pen.fillRect(0, 0, 120, 8);
  return made;
}

/** Returns the box around the track and the habitual ways near it. */
function frameOf(own, ways) {
  const box = boxAround(own);
  if (!box) return boxAround(ways.flatMap((way) => way.geometry.coordinates));
  const side = AROUND * Math.max(box[2] - box[0], box[3] - box[1], 0.004);
  const near = ([lon, lat]) =>
    lon >= box[0] - side && lon <= box[2] + side && lat >= box[1] - side && lat <= box[3] + side;
  return boxAround([...own, ...ways.flatMap((way) => way.geometry.coordinates).filter(near)]);
}
