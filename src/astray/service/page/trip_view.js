// A trip as a person judges it: why in words, the track over the habitual ways, normality in time; each points at the other.

import { ask, inPath } from "./api.js";
import { NormalityChart } from "./chart.js";
import { normalityStops } from "./colours.js";
import { make } from "./dom.js";
import { boxAround, line, map, point } from "./map.js";
import { ahead, clock, count, decisionOf, frequency, inDoubt, lasting, moment, sentence, signed, zoneName } from "./words.js";

const AROUND = 0.25; // of the track's size: habitual ways as far as this beside it are in view
const DOUBT =
  "It was not flagged, but many trips of this agent were lately, and it is not clearly normal. So it is not learned unless you say so.";
const HINT = "Normality in local time, with its uncertainty. Point here or at the map to read a fix.";

/** A trip from the service, with what the drawings need. */
export async function loadTrip(id, signal) {
  const trip = await ask(`/api/trips/${inPath(id)}`, { signal });
  trip.ahead = ahead(trip.local);
  trip.places = trip.track.lat.map((lat, i) => (lat === null ? null : [trip.track.lon[i], lat]));
  trip.usable = trip.places.map((place, i) => (place && !trip.track.fault[i] ? i : -1)).filter((i) => i >= 0);
  trip.segments ??= [];
  if (!trip.ways?.features?.length)
    trip.ways = await ask(`/api/agents/${inPath(trip.agent)}/ways`, { signal }).catch(() => null);
  return trip;
}

/** The track in pieces from fix to fix, each as odd as the odder of its two ends; without n where nothing is known. */
export function pieces({ places, usable, track }) {
  return usable.slice(1).map((i, k) => {
    const known = [track.n[usable[k]], track.n[i]].filter((n) => n !== null && n !== undefined);
    return line([places[usable[k]], places[i]], known.length ? { n: Math.min(...known) } : {});
  });
}

export class TripView {
  constructor() {
    this.chart = new NormalityChart((i) => this.point(i));
    this.heading = make("h1", { tabindex: "-1" });
    this.why = make("ul", { class: "why" });
    this.numbers = make("p", { class: "soft numbers" });
    this.tabs = make("div", { class: "tabs", role: "group", "aria-label": "Trips of the question", hidden: true });
    this.frame = make("div", { class: "map-frame" });
    this.legend = make("ul", { class: "legend", "aria-label": "What the map shows" });
    this.readout = make("p", { class: "readout" }, HINT);
    this.segments = make("ol", { class: "segments", "aria-label": "What is not normal" });
    this.element = make(
      "article",
      { class: "trip" },
      make("header", {}, this.heading, this.tabs),
      make("section", { class: "why-part", "aria-label": "Why" }, this.why, this.numbers),
      make("section", { class: "map-part", "aria-label": "Map" }, this.frame, this.legend),
      make("section", { class: "chart-part", "aria-label": "Normality in time" }, this.chart.element, this.readout),
      make("section", { class: "segments-part", "aria-label": "Segments that are not normal" }, this.segments),
    );
  }

  /** Show a trip; with the others of its question, if it is one of several. */
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
        normal: "Nothing speaks against this trip.",
        open: "The trip is under way: reasons are given when it has ended.",
      }[trip.decision] ?? "No single reason stands out.";
    if (inDoubt(trip)) words.unshift(DOUBT);
    this.why.replaceChildren(...(words.length ? words : [plain]).map((reason) => make("li", {}, sentence(reason))));
    this.numbers.replaceChildren(...numbersOf(trip));
    map.attach(this.frame);
    this.draw(others);
    this.chart.show(trip);
    this.point(null);
    this.list();
  }

  draw(others) {
    const { trip } = this;
    const { places, usable, track } = trip;
    const within = ({ start, end }) => usable.filter((i) => start <= track.time[i] && track.time[i] <= end);
    const odd = trip.segments.map(within).filter((fixes) => fixes.length);
    const around = (fixes) => (fixes.length > 1 ? fixes : [fixes[0], fixes[0]]).map((i) => places[i]);
    const ends = usable.length
      ? [point(places[usable[0]], { end: false }), point(places[usable.at(-1)], { end: true })]
      : [];
    const tracks = others.map((other) => other.usable.map((i) => other.places[i])).filter((way) => way.length > 1);
    const own = [...usable.map((i) => places[i]), ...tracks.flat()];
    const ways = (trip.ways?.features ?? []).filter((way) => way.geometry?.coordinates?.length > 1);
    map.show(
      {
        ways,
        others: tracks.map((way) => line(way)),
        track: pieces(trip),
        odd: odd.map((fixes) => line(around(fixes))),
        expected: trip.expected ? [asFeature(trip.expected)] : [],
        faults: places.map((place, i) => (place && track.fault[i] ? point(place) : null)).filter(Boolean),
        ends,
        numbers: odd.map((fixes, k) => point(places[fixes[fixes.length >> 1]], { number: String(k + 1) })),
      },
      {
        fixes: places.map((place, i) => (track.fault[i] ? null : place)),
        box: frameOf(own, ways),
        onFix: (i) => this.point(i),
      },
    );
    map.label(`Map of the trip. ${count(trip.segments.length, "segment")} not normal.`);
    this.legend.replaceChildren(...legendOf(trip, { ways, tracks, odd }));
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

  zoom({ start, end }) {
    const { trip } = this;
    const box = boxAround(
      trip.usable.filter((i) => start <= trip.track.time[i] && trip.track.time[i] <= end).map((i) => trip.places[i]),
    );
    if (!box) return;
    map.moved = true;
    map.fit(box, true);
    this.frame.scrollIntoView({ block: "nearest" });
  }

  point(i) {
    const words = i === null ? HINT : this.wordsOf(i);
    this.chart.pointFix(i, words);
    map.pointFix(i);
    this.readout.textContent = words;
  }

  wordsOf(i) {
    const { trip } = this;
    const { track } = trip;
    const said = [`${clock(track.time[i], trip.ahead, true)} ${zoneName(trip.zone)}`];
    if (track.fault[i]) return [...said, `left out as faulty: ${track.fault[i]}`].join(" · ");
    if (track.n[i] === null) return [...said, "no score"].join(" · ");
    const spread = track.high[i] === null ? "" : ` ± ${((track.high[i] - track.low[i]) / 4).toFixed(1)}`;
    said.push(`normality ${signed(track.n[i], 1)}${spread}`);
    const passed = track.passed?.[i];
    if (passed !== undefined && passed !== null) said.push(`${passed} of ${trip.history} past trips came through here`);
    const segment = trip.segments.findIndex(({ start, end }) => start <= track.time[i] && track.time[i] <= end);
    if (segment >= 0) said.push(`in segment ${segment + 1}`);
    return said.join(" · ");
  }

  leave() {
    this.chart.destroy();
  }
}

export function agentLink(agent) {
  return make(
    "a",
    { class: "agent", href: `/live?agent=${inPath(agent)}`, title: "Show this agent on the map" },
    agent,
  );
}

function numbersOf(trip) {
  if (trip.score === null || trip.score === undefined) return ["No usable fix, so no score."];
  const spread = trip.uncertainty === null ? "" : ` ± ${trip.uncertainty.toFixed(1)}`;
  const against =
    trip.eps === null
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
  const lowest = Math.min(...trip.track.n.filter((n) => n !== null));
  if (trip.segments.length && trip.eps !== null && lowest > trip.eps) {
    said.push("No single fix is under the threshold: what is marked is the worst of the trip");
  }
  return said.filter(Boolean).map((words) => make("span", {}, words));
}

function legendOf(trip, { ways, tracks, odd }) {
  const stops = normalityStops();
  const ramp = make("canvas", { width: 120, height: 8, class: "ramp", "aria-hidden": "true" });
  const pen = ramp.getContext("2d");
  const paint = pen.createLinearGradient(0, 0, 120, 0);
  for (const [n, hex] of stops) paint.addColorStop((n - stops[0][0]) / (stops.at(-1)[0] - stops[0][0]), hex);
  pen.fillStyle = paint;
  pen.fillRect(0, 0, 120, 8);
  const shown = [
    ["way", "habitual ways", ways.length],
    ["other", "the other trips", tracks.length],
    ["odd", "not normal", odd.length],
    ["expected", "expected way", trip.expected],
    ["start", "start", true],
    ["end", "end", true],
    ["fault", "faulty fixes", trip.track.fault.some(Boolean)],
  ];
  return [
    make("li", {}, "odd", ramp, "normal"),
    ...shown
      .filter(([, , there]) => there)
      .map(([name, words]) => make("li", {}, make("span", { class: `key ${name}`, "aria-hidden": "true" }), words)),
  ];
}

const asFeature = (shape) => (shape.type === "Feature" ? shape : { type: "Feature", properties: {}, geometry: shape });

/** The track, and of the habitual ways what lies near it. */
function frameOf(own, ways) {
  const box = boxAround(own);
  if (!box) return boxAround(ways.flatMap((way) => way.geometry.coordinates));
  const side = AROUND * Math.max(box[2] - box[0], box[3] - box[1], 0.004);
  const near = ([lon, lat]) =>
    lon >= box[0] - side && lon <= box[2] + side && lat >= box[1] - side && lat <= box[3] + side;
  return boxAround([...own, ...ways.flatMap((way) => way.geometry.coordinates).filter(near)]);
}
