// The offline page: choose a trip, read its words, point at a fix in one drawing and see it in the other.

import { readTrip } from "./read_trip.js";
import { signed } from "./shared/canvas.js";
import { TimeChart } from "./shared/chart.js";
import { GeoMap, boxAround } from "./shared/map.js";
import { stopsOf } from "./shared/normality.js";
import { layersOf, legendOf, placesOf, wordsOf } from "./shared/trip.js";

const data = JSON.parse(document.getElementById("data").textContent);
const part = (id) => document.getElementById(id);

/** Makes an element with text, never with markup: names in the data may hold anything. */
function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const map = new GeoMap();
const chart = new TimeChart(pointAt);
let trip = null;
map.attach(part("map"));
part("chart").append(chart.element);

function pointAt(fix) {
  const words = fix === null ? [] : wordsOf(trip, fix);
  map.pointFix(fix, words.join("\n"));
  chart.pointFix(fix, words.join(", "));
  part("readout").textContent = fix === null ? "Point at the map or the curve to read a fix." : words.join(" · ");
}

function choose(number) {
  trip = readTrip(data.trips[number], data.ways);
  document.title = trip.heading;
  part("heading").textContent = trip.heading;
  part("grounds").textContent = trip.grounds.join("\n");
  part("map-part").hidden = !trip.places.length;
  map.show(layersOf(trip), { fixes: trip.places, box: trip.frame ?? null, note: trip.away, onFix: pointAt });
  chart.show(trip);
  pointAt(null);
  map.label(`${trip.heading}. ${trip.segments.length} segments are not normal.`);
  keys();
  segments();
  for (const [i, button] of part("trips").querySelectorAll("button").entries()) {
    button.setAttribute("aria-current", String(i === number));
  }
}

function segments() {
  part("segments-title").textContent = trip.segments.length ? "Not normal" : "No segment stands out";
  part("segments").replaceChildren(
    ...trip.segments.map((segment, i) => {
      const button = make("button");
      button.type = "button";
      const words = make("span");
      words.append(make("span", "at", segment.at), ` ${segment.words}`);
      button.append(make("span", "number", i + 1), words);
      button.addEventListener("click", () => {
        if (!trip.places.length) return pointAt(segment.first);
        pointAt(null);
        map.moved = true;
        map.fit(boxAround(placesOf(trip, segment)), true);
        part("map").scrollIntoView({ block: "nearest" });
      });
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
}

function keys() {
  const stops = stopsOf(getComputedStyle(document.documentElement).getPropertyValue("--shade").trim());
  const range = [stops[0][0], stops.at(-1)[0]];
  const scale = make("li", "scale", "normality");
  const ramp = make("span", "ramp");
  const bar = make("div", "bar");
  const at = (n) => (100 * (n - range[0])) / (range[1] - range[0]);
  bar.style.background = `linear-gradient(to right, ${stops.map(([n, colour]) => `${colour} ${at(n)}%`).join(", ")})`;
  ramp.append(bar);
  for (const [n] of stops) {
    const tick = make("span", "tick", signed(n, 0));
    tick.style.left = `${at(n)}%`;
    ramp.append(tick);
  }
  if (trip.eps >= range[0] && trip.eps <= range[1]) {
    const mark = make("span", "mark");
    mark.style.left = `${at(trip.eps)}%`;
    ramp.append(mark);
  }
  scale.append(ramp);
  const items = legendOf(trip).map(([name, words]) => {
    const item = make("li");
    item.append(make("span", `key ${name}`), words);
    return item;
  });
  part("keys").replaceChildren(scale, ...items);
}

function list() {
  part("trips").hidden = data.trips.length < 2;
  part("trips").querySelector("ul").append(
    ...data.trips.map((raw, i) => {
      const button = make("button");
      button.type = "button";
      const name = make("span", "name");
      name.append(make("span", "", raw.trajectory), make("span", "score", raw.score === null ? "–" : signed(raw.score, 1)));
      const about = make("span", "about");
      about.append(make("span", "", raw.about), make("span", `verdict ${raw.decision}`, raw.decision));
      button.append(name, about);
      button.addEventListener("click", () => choose(i));
      const item = make("li");
      item.append(button);
      return item;
    }),
  );
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", keys);
part("page").hidden = false;
list();
choose(0);
