// The map of both pages: habitual ways, a trip coloured by normality, agents; the reader can move and zoom it.

import { Drawing, roundLength } from "./canvas.js";
import { palette, stopsOf } from "./normality.js";

const NEAR = 24; // pixels from the pointer within which a fix is meant
const EARTH_RADIUS = 6371008.8; // metres, the mean radius
const CLOSEST = 4 * EARTH_RADIUS; // pixels per radian: four pixels a metre
const LEAST = 300; // metres that the map shows, at least
const RADIANS = Math.PI / 180;
const LAYERS = [
  ...["ways", "trails", "others", "expected", "odd", "track", "faults"],
  ...["ends", "stop", "numbers", "agents", "pointed"],
];

export const line = (coordinates, properties = {}) => ({
  type: "Feature",
  properties,
  geometry: { type: "LineString", coordinates },
});
export const point = (coordinates, properties = {}) => ({
  type: "Feature",
  properties,
  geometry: { type: "Point", coordinates },
});

const wrapped = (degrees) => ((((degrees + 180) % 360) + 360) % 360) - 180;

/** Returns the smallest box [west, south, east, north] around places [lon, lat]; null without places. */
export function boxAround(places) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  let first = null;
  for (const place of places) {
    if (!place) continue;
    first ??= place[0];
    const lon = first + wrapped(place[0] - first); // continuous across the antimeridian
    box[0] = Math.min(box[0], lon);
    box[1] = Math.min(box[1], place[1]);
    box[2] = Math.max(box[2], lon);
    box[3] = Math.max(box[3], place[1]);
  }
  return first === null ? null : box;
}

function element(tag, attributes, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** A map on a canvas, in the Mercator projection; x and y are radians east and north of the middle. */
export class GeoMap extends Drawing {
  constructor() {
    const canvas = element("canvas", { tabindex: "0", role: "group", "aria-roledescription": "map" });
    super(canvas);
    this.tip = element("div", { class: "tip", hidden: "" });
    this.element = element("div", { class: "map" });
    this.element.append(canvas, this.tip, this.buttons());
    this.data = Object.fromEntries(LAYERS.map((name) => [name, []]));
    this.planes = Object.fromEntries(LAYERS.map((name) => [name, []])); // the same places, projected
    this.fixes = []; // places that can be pointed at, projected; null for faulty fixes
    this.fingers = new Map();
    this.middle = 0; // degrees of longitude
    this.view = { x: 0, y: 0.3, scale: 120 };
    this.box = null;
    this.moved = false; // whether the reader has moved the map since it was framed
    this.listen();
  }

  buttons() {
    const made = element("div", { class: "map-buttons" });
    const does = [
      ["+", "Zoom in", "+", () => this.zoom(1.5)],
      ["−", "Zoom out", "−", () => this.zoom(1 / 1.5)],
      ["⤢", "Show everything", "0", () => this.whole()],
    ];
    for (const [sign, words, key, act] of does) {
      const button = element("button", { type: "button", "aria-label": words, title: `${words} (${key})` }, sign);
      button.addEventListener("click", act);
      made.append(button);
    }
    return made;
  }

  /** Shows the map in a place of the page. */
  attach(place) {
    place.append(this.element);
    this.draw();
  }

  label(words) {
    const keys = "Arrow keys move the map, plus and minus zoom, 0 shows everything.";
    this.canvas.setAttribute("aria-label", `${words} ${keys}`);
  }

  // ------------------------------------------------------------------ contents

  /**
   * Replaces what the map shows: names of LAYERS to GeoJSON features; the other layers become empty.
   * `fixes` are the places that can be pointed at, `note` is written at the top until the reader moves the map.
   */
  show(layers, { fixes = [], box = null, note = "", onFix = null, onAgent = null } = {}) {
    delete this.element.dataset.ready;
    if (box) this.middle = (box[0] + box[2]) / 2;
    for (const name of LAYERS) this.set(name, layers[name] ?? []);
    Object.assign(this, { note, onFix, onAgent, places: fixes });
    this.fixes = fixes.map((place) => place && this.project(place));
    this.pointFix(null);
    if (box) this.whole(box);
  }

  set(name, features) {
    this.data[name] = features;
    this.planes[name] = features.map(({ geometry: { type, coordinates } }) =>
      type === "Point" ? this.project(coordinates) : coordinates.map((place) => this.project(place)),
    );
    this.draw();
  }

  /** Marks a fix, and writes `words` beside it; null marks none. */
  pointFix(i, words = "") {
    const place = i === null ? null : this.places[i];
    this.set("pointed", place ? [point(place)] : []);
    this.tip.textContent = words;
    this.tip.hidden = !place || !words;
  }

  // ------------------------------------------------------------------ the view

  project([lon, lat]) {
    const north = Math.min(Math.max(lat, -89.9), 89.9);
    return [wrapped(lon - this.middle) * RADIANS, Math.asinh(Math.tan(north * RADIANS))];
  }

  pixels([x, y]) {
    const { view } = this;
    return [this.width / 2 + (x - view.x) * view.scale, this.height / 2 - (y - view.y) * view.scale];
  }

  plane([x, y]) {
    const { view } = this;
    return [view.x + (x - this.width / 2) / view.scale, view.y - (y - this.height / 2) / view.scale];
  }

  /** The centre of the view, [lon, lat]. */
  get centre() {
    return [this.middle + this.view.x / RADIANS, Math.atan(Math.sinh(this.view.y)) / RADIANS];
  }

  resized() {
    if (this.box && !this.moved) this.fit(this.box);
    super.resized();
  }

  whole(box = this.box) {
    this.box = box;
    this.moved = false;
    if (box) this.fit(box);
  }

  /** Pixels at the left that something covers. */
  covered() {
    return 0;
  }

  fit([west, south, east, north], slowly = false) {
    if (!this.width) return;
    const [middle, half] = [(west + east) / 2, ((east - west) / 2) * RADIANS];
    const [x, low] = this.project([middle, south]);
    const [, high] = this.project([middle, north]);
    const y = (low + high) / 2;
    const least = (LEAST * Math.cosh(y)) / EARTH_RADIUS;
    const side = Math.min(48, Math.min(this.width, this.height) / 8);
    const [left, right, top, bottom] = [side + this.covered(), side + 30, side, side + 20];
    const scale = Math.min(
      Math.max(this.width - left - right, 50) / Math.max(2 * half, least),
      Math.max(this.height - top - bottom, 50) / Math.max(high - low, least),
    );
    this.go({ x: x + (right - left) / 2 / scale, y: y - (bottom - top) / 2 / scale, scale }, slowly);
  }

  go(to, slowly) {
    const from = this.view;
    const start = performance.now();
    const lasts = slowly && !matchMedia("(prefers-reduced-motion: reduce)").matches ? 350 : 0;
    const step = (now) => {
      if (this.heading !== to) return;
      const done = lasts ? Math.min((now - start) / lasts, 1) : 1;
      const share = done * done * (3 - 2 * done);
      const between = (a, b) => a + (b - a) * share;
      const scale = Math.exp(between(Math.log(from.scale), Math.log(to.scale)));
      this.view = done < 1 ? { x: between(from.x, to.x), y: between(from.y, to.y), scale } : to;
      this.draw();
      if (done < 1) requestAnimationFrame(step);
    };
    this.heading = to;
    step(start);
  }

  zoom(factor, at = [this.width / 2, this.height / 2]) {
    const [x, y] = this.plane(at);
    const scale = Math.min(Math.max(this.view.scale * factor, 40), CLOSEST);
    const real = scale / this.view.scale;
    this.turn({ x: x - (x - this.view.x) / real, y: y - (y - this.view.y) / real, scale });
  }

  move(right, down) {
    const { x, y, scale } = this.view;
    this.turn({ x: x - right / scale, y: y + down / scale, scale });
  }

  /** Takes the view that the reader has chosen. */
  turn(view) {
    this.moved = true;
    this.heading = null;
    this.view = view;
    this.draw();
  }

  // ------------------------------------------------------------------ pointer and keys

  listen() {
    const { canvas, fingers } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let began = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-0.0022 * lines * event.deltaY), place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      began = place(event);
      canvas.classList.add("moving");
      if (event.pointerType !== "mouse") this.onFix?.(this.fixAt(place(event)));
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      if (!fingers.has(event.pointerId)) {
        this.onFix?.(this.fixAt(now));
        canvas.classList.toggle("over", this.agentAt(now) !== null);
        return;
      }
      const before = fingers.get(event.pointerId);
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const apart = ([x, y]) => Math.max(Math.hypot(x - other[0], y - other[1]), 1);
        this.zoom(apart(now) / apart(before), other);
      } else if (now[0] !== before[0] || now[1] !== before[1]) {
        this.move(now[0] - before[0], now[1] - before[1]);
      }
      fingers.set(event.pointerId, now);
    });
    const up = (event) => {
      fingers.delete(event.pointerId);
      if (!fingers.size) canvas.classList.remove("moving");
    };
    canvas.addEventListener("pointerup", (event) => {
      up(event);
      const at = place(event);
      const still = began && Math.hypot(at[0] - began[0], at[1] - began[1]) < 5;
      const agent = still ? this.agentAt(at) : null;
      if (agent !== null) this.onAgent(agent);
    });
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.onFix?.(null);
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, place(event)));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = {
        ArrowLeft: () => this.move(60, 0),
        ArrowRight: () => this.move(-60, 0),
        ArrowUp: () => this.move(0, 60),
        ArrowDown: () => this.move(0, -60),
        "+": () => this.zoom(1.5),
        "=": () => this.zoom(1.5),
        "-": () => this.zoom(1 / 1.5),
        0: () => this.whole(),
      };
      if (!(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  /** Returns the number of the fix that is nearest to a place on the canvas, or null. */
  fixAt(at) {
    return this.nearest(this.fixes, at, NEAR);
  }

  /** Returns the name of the agent at a place on the canvas, or null. */
  agentAt(at) {
    const found = this.onAgent ? this.nearest(this.planes.agents, at, 12) : null;
    return found === null ? null : this.data.agents[found].properties.agent;
  }

  nearest(places, at, within) {
    let [found, least] = [null, within];
    places.forEach((place, i) => {
      if (!place) return;
      const [x, y] = this.pixels(place);
      const apart = Math.hypot(x - at[0], y - at[1]);
      if (apart < least) [found, least] = [i, apart];
    });
    return found;
  }

  // ------------------------------------------------------------------ drawing

  paint(pen, colour) {
    const { data, planes } = this;
    const on = (way) => way.map((place) => this.pixels(place));
    const each = (name, draw) => planes[name].forEach((plane, i) => draw(plane, data[name][i].properties));
    pen.globalAlpha = 0.75;
    each("ways", (way, { chosen }) => this.line(on(way), colour(chosen ? "grey" : "pale"), 2));
    each("trails", (way, { alert }) => this.line(on(way), colour(alert ? "odd" : "normal"), 3));
    pen.globalAlpha = 1;
    each("odd", (way) => this.halo(on(way), colour("halo")));
    each("others", (way) => {
      this.line(on(way), colour("ground"), 5);
      this.line(on(way), colour("review"), 2.5);
    });
    const expected = planes.expected.map(on);
    for (const way of expected.slice(1)) this.line(way, colour("soft"), 1.5, [1, 5]);
    each("track", (way, { n }) => this.track(on(way), n, colour));
    for (const way of expected.slice(0, 1)) {
      this.line(way, colour("ground"), 4.5);
      this.line(way, colour("ink"), 2.5, [8, 6]);
    }
    each("faults", (place) => this.cross(this.pixels(place), colour("grey")));
    each("ends", (place, { end }) => this.end(this.pixels(place), end, colour));
    each("stop", (place) => this.hexagon(this.pixels(place), colour));
    each("numbers", (place, { number }) => {
      const [x, y] = this.pixels(place);
      this.number(number, [x + 16, y - 16], colour);
    });
    this.agents(colour);
    each("pointed", (place) => {
      this.disc(this.pixels(place), 9, null, colour("ground"), 6);
      this.disc(this.pixels(place), 9, null, colour("ink"), 3);
    });
    this.scaleBar(colour);
    if (this.note && !this.moved) this.text(this.note, [this.width / 2, 16], colour("ink"), { halo: colour("ground") });
    this.placeTip();
    this.element.dataset.ready = "yes";
  }

  halo(points, colour) {
    this.line(points, colour, 22);
    if (points.length === 1) this.disc(points[0], 11, colour);
  }

  /** Draws a trip: each piece has the colour of the lower of its two ends; without normality that of normal trips. */
  track(points, normality, colour) {
    const { pen } = this;
    const colourOf = palette(stopsOf(colour("shade")));
    const drawn = thinned(points, normality);
    this.line(drawn.map(({ at }) => at), colour("ink"), 6.5);
    pen.lineWidth = 4.5;
    let run = null;
    for (let k = 1; k < drawn.length; k++) {
      const { low } = drawn[k];
      const next = Number.isFinite(low) ? colourOf(Math.round(20 * low) / 20) : colour("normal");
      if (next !== run) {
        if (run !== null) pen.stroke();
        pen.strokeStyle = run = next;
        pen.beginPath();
        pen.moveTo(...drawn[k - 1].at);
      }
      pen.lineTo(...drawn[k].at);
    }
    if (run !== null) pen.stroke();
  }

  /** Draws the start of a trip as a ring, its end as a square. */
  end([x, y], isEnd, colour) {
    const { pen } = this;
    if (!isEnd) return this.disc([x, y], 7, colour("ground"), colour("ink"), 2.5);
    pen.fillStyle = colour("ink");
    pen.strokeStyle = colour("ground");
    pen.lineWidth = 2;
    pen.fillRect(x - 6, y - 6, 12, 12);
    return pen.strokeRect(x - 7, y - 7, 14, 14);
  }

  hexagon([x, y], colour) {
    const { pen } = this;
    pen.beginPath();
    for (let k = 0; k < 6; k++) pen.lineTo(x + 8.5 * Math.cos((k * Math.PI) / 3), y + 8.5 * Math.sin((k * Math.PI) / 3));
    pen.closePath();
    pen.fillStyle = colour("ground");
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2.5;
    pen.fill();
    pen.stroke();
  }

  /** Draws agents as marks of 20 by 20 (properties: path, colour, name, chosen, rank), the highest rank on top. */
  agents(colour) {
    const { pen, data, planes } = this;
    const order = data.agents.map((_, i) => i).sort((a, b) => data.agents[a].properties.rank - data.agents[b].properties.rank);
    const shown = order
      .map((i) => ({ at: this.pixels(planes.agents[i]), ...data.agents[i].properties }))
      .filter(({ at: [x, y] }) => x > -20 && y > -20 && x < this.width + 20 && y < this.height + 20);
    const marks = new Map();
    for (const { at, path, colour: name, chosen } of shown) {
      if (chosen) this.disc(at, 15, null, colour("ink"), 2);
      if (!marks.has(path)) marks.set(path, new Path2D(path));
      pen.save();
      pen.translate(at[0] - 8, at[1] - 8);
      pen.scale(0.8, 0.8);
      pen.strokeStyle = colour("ground");
      pen.lineWidth = 3;
      pen.stroke(marks.get(path));
      pen.fillStyle = colour(name);
      pen.fill(marks.get(path), "evenodd");
      pen.restore();
    }
    const taken = []; // a name that would cover another one is left out
    for (const { at: [x, y], name } of shown.toReversed()) {
      if (!name) continue;
      pen.font = "12px system-ui, sans-serif";
      const half = pen.measureText(name).width / 2 + 3;
      if (taken.some(([a, b, other]) => Math.abs(a - x) < half + other && Math.abs(b - y) < 16)) continue;
      taken.push([x, y, half]);
      this.text(name, [x, y + 17], colour("ink"), { halo: colour("ground") });
    }
  }

  scaleBar(colour) {
    const metre = (this.view.scale * Math.cosh(this.view.y)) / EARTH_RADIUS; // in pixels
    const length = roundLength(Math.min(this.width / 4, 220) / metre);
    const [x, y, wide] = [16, this.height - 16, length * metre];
    this.line([[x, y], [x + wide, y]], colour("ground"), 7);
    this.line([[x, y], [x + wide, y]], colour("ink"), 3);
    const words = length >= 1000 ? `${length / 1000} km` : length >= 1 ? `${length} m` : `${Math.round(100 * length)} cm`;
    const halo = colour("ground");
    this.text(words, [x + wide / 2, y - 12], colour("ink"), { halo });
    this.text("N ↑", [this.width - 16, this.height - 16], colour("ink"), { align: "right", halo });
  }

  /** Keeps the tip beside the fix that is pointed at. */
  placeTip() {
    const { tip, planes } = this;
    if (tip.hidden || !planes.pointed.length) return;
    const [x, y] = this.pixels(planes.pointed[0]);
    const inside = x >= 0 && x <= this.width && y >= 0 && y <= this.height;
    tip.style.visibility = inside ? "visible" : "hidden";
    const left = x + 18 + tip.offsetWidth < this.width ? x + 18 : x - 18 - tip.offsetWidth;
    const top = Math.min(Math.max(y - tip.offsetHeight / 2, 4), this.height - tip.offsetHeight - 4);
    tip.style.transform = `translate(${Math.max(left, 4)}px, ${top}px)`;
  }
}

/** Keeps one of several points on the same pixel, with the lowest normality on the way to it. */
function thinned(points, normality) {
  const drawn = [];
  let low = Infinity;
  points.forEach((at, k) => {
    const own = normality[k] ?? Infinity;
    low = Math.min(low, own);
    const before = drawn.at(-1)?.at;
    if (before && k < points.length - 1 && Math.hypot(at[0] - before[0], at[1] - before[1]) < 1.5) return;
    drawn.push({ at, low });
    low = own;
  });
  return drawn;
}
