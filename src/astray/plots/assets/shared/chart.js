// Normality against time: the band of uncertainty, the thresholds, the segments; pointing at it picks a fix.

import { Drawing, roundLength, signed } from "./canvas.js";
import { palette, stopsOf } from "./normality.js";

const PLOT = { left: 40, right: 92, top: 8, bottom: 38 };
const SPARE = [-4, 1]; // normality that the chart always has room for

/** Draws a trip as trip.js describes it; calls onFix with the number of the fix that is pointed at, or null. */
export class TimeChart extends Drawing {
  constructor(onFix) {
    const canvas = document.createElement("canvas");
    super(canvas);
    this.onFix = onFix;
    this.shown = null;
    this.element = document.createElement("div");
    this.element.className = "chart";
    for (const [name, value] of [["tabindex", "0"], ["role", "slider"], ["aria-label", "Fixes of the trip in time"]])
      this.element.setAttribute(name, value);
    this.element.append(canvas);
    this.listen();
  }

  show(trip) {
    this.trip = trip;
    this.shown = null;
    const known = [...trip.low, ...trip.high, trip.eps].filter((value) => value !== null && value !== undefined);
    this.range = [
      known.reduce((least, value) => Math.min(least, value), SPARE[0]) - 0.3,
      known.reduce((most, value) => Math.max(most, value), SPARE[1]) + 0.5,
    ];
    this.from = trip.time[0] ?? 0;
    this.lasts = Math.max((trip.time.at(-1) ?? 0) - this.from, 1e-9);
    this.draw();
  }

  /** Marks a fix; `words` are what assistive technology reads. */
  pointFix(fix, words = "") {
    this.shown = fix;
    this.draw();
    const { element, trip } = this;
    element.setAttribute("aria-valuemin", "0");
    element.setAttribute("aria-valuemax", String(trip.time.length - 1));
    element.setAttribute("aria-valuenow", String(fix ?? 0));
    element.setAttribute("aria-valuetext", fix === null ? "no fix chosen" : words);
  }

  x(time) {
    return PLOT.left + ((time - this.from) / this.lasts) * (this.width - PLOT.left - PLOT.right);
  }

  y(normality) {
    const [low, high] = this.range;
    return PLOT.top + ((high - normality) / (high - low)) * (this.height - PLOT.top - PLOT.bottom);
  }

  listen() {
    const { canvas, element } = this;
    const pick = (event) => {
      if (!this.trip?.time.length) return;
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const wanted = this.from + ((x - PLOT.left) / (this.width - PLOT.left - PLOT.right)) * this.lasts;
      const { time } = this.trip;
      let best = 0;
      for (let i = 1; i < time.length; i++) if (Math.abs(time[i] - wanted) < Math.abs(time[best] - wanted)) best = i;
      if (best !== this.shown) this.onFix(best);
    };
    canvas.addEventListener("pointermove", pick);
    canvas.addEventListener("pointerdown", pick);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.onFix(null);
    });
    element.addEventListener("keydown", (event) => {
      if (!this.trip || event.ctrlKey || event.metaKey || event.altKey) return;
      const last = this.trip.time.length - 1;
      const now = this.shown ?? -1;
      const keys = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1 };
      Object.assign(keys, { PageDown: now - 10, PageUp: now + 10, Home: 0, End: last });
      if (event.key === "Escape") this.onFix(null);
      if (!(event.key in keys)) return;
      event.preventDefault();
      event.stopPropagation();
      this.onFix(Math.min(Math.max(keys[event.key], 0), last));
    });
  }

  paint(pen, colour) {
    const { trip } = this;
    if (!trip) return;
    const bottom = this.height - PLOT.bottom;
    const right = this.width - PLOT.right;
    const colourOf = palette(stopsOf(colour("shade")));
    pen.fillStyle = colour("halo");
    pen.globalAlpha = 0.6;
    for (const { start, end } of trip.segments) {
      const from = this.x(start);
      pen.fillRect(from, PLOT.top, Math.max(this.x(end) - from, 2), bottom - PLOT.top);
    }
    pen.globalAlpha = 1;
    this.axes(colour, right, bottom);
    const scored = trip.usable.filter((i) => trip.n[i] !== null);
    for (const run of this.runs(scored)) this.band(run, colour);
    for (const i of scored) this.disc([this.x(trip.time[i]), this.y(trip.n[i])], 2.4, colourOf(trip.n[i]));
    trip.fault.forEach((fault, i) => fault && this.cross([this.x(trip.time[i]), bottom - 8], colour("grey")));
    trip.segments.forEach(({ start, end }, k) => {
      this.number(k + 1, [(this.x(start) + this.x(end)) / 2, PLOT.top + 13], colour);
    });
    if (this.shown !== null) this.cursor(colour, bottom);
  }

  cursor(colour, bottom) {
    const { trip } = this;
    const x = this.x(trip.time[this.shown]);
    this.line([[x, PLOT.top], [x, bottom]], colour("ink"), 1);
    const n = trip.n[this.shown];
    if (n === null) return;
    this.disc([x, this.y(n)], 6, null, colour("paper"), 5);
    this.disc([x, this.y(n)], 6, null, colour("ink"), 2.5);
  }

  axes(colour, right, bottom) {
    const { trip } = this;
    const apart = Math.max(roundLength((this.range[1] - this.range[0]) / 4), 1);
    for (let n = apart * Math.ceil(this.range[0] / apart); n <= this.range[1]; n += apart) {
      this.line([[PLOT.left, this.y(n)], [right, this.y(n)]], colour("line"), 0.7);
      this.text(signed(n, 0), [PLOT.left - 7, this.y(n)], colour("soft"), { align: "right" });
    }
    const thresholds = [
      ["opens", trip.eps, []],
      ["closes", trip.leave, [4, 4]],
    ];
    for (const [does, height, dash] of thresholds.filter(([, height]) => height !== null && height !== undefined)) {
      this.line([[PLOT.left, this.y(height)], [right, this.y(height)]], colour("ink"), 1.2, dash);
      const words = `${does}: ${signed(height, 2).replace(/\.?0+$/, "")}`;
      this.text(words, [right + 6, this.y(height)], colour("ink"), { align: "left" });
    }
    for (const [at, words] of trip.ticks(this.from, this.from + this.lasts, right - PLOT.left)) {
      this.line([[this.x(at), bottom], [this.x(at), bottom + 4]], colour("grey"), 1);
      this.text(words, [this.x(at), bottom + 13], colour("soft"));
    }
    this.line([[PLOT.left, bottom], [right, bottom]], colour("grey"), 1);
    this.text(trip.axis, [(PLOT.left + right) / 2, this.height - 8], colour("soft"));
  }

  /** Returns runs of scored fixes without a gap: nothing is drawn across a gap. */
  runs(scored) {
    const { time } = this.trip;
    const apart = scored.slice(1).map((i, k) => time[i] - time[scored[k]]);
    const moving = apart.filter((seconds) => seconds > 0).sort((a, b) => a - b);
    const gap = moving.length ? 10 * moving[moving.length >> 1] : Infinity;
    const runs = scored.length ? [[scored[0]]] : [];
    apart.forEach((seconds, k) => (seconds > gap ? runs.push([scored[k + 1]]) : runs.at(-1).push(scored[k + 1])));
    return runs;
  }

  band(run, colour) {
    const { pen, trip } = this;
    const edge = (values) => run.map((i) => [this.x(trip.time[i]), this.y(values[i] ?? trip.n[i])]);
    pen.beginPath();
    for (const at of edge(trip.high)) pen.lineTo(...at);
    for (const at of edge(trip.low).reverse()) pen.lineTo(...at);
    pen.closePath();
    pen.fillStyle = colour("band");
    pen.fill();
    this.line(edge(trip.n), colour("grey"), 1);
  }
}
