// Normality against local time: the band of uncertainty, the threshold, what is not normal; pointing at it picks a fix.

import { colour, normalityColour } from "./colours.js";
import { make } from "./dom.js";
import { classic } from "./map.js";
import { clock, signed } from "./words.js";

const HEIGHT = 190;
const SPARE = [-4, 1]; // normality that the chart always has room for

export class NormalityChart {
  constructor(onFix) {
    this.onFix = onFix;
    this.shown = null;
    this.element = make("div", {
      class: "chart",
      tabindex: "0",
      role: "slider",
      "aria-label": "Fixes of the trip in time",
      onkeydown: (event) => this.key(event),
    });
    new ResizeObserver(() => this.resized()).observe(this.element);
    this.silent = false;
  }

  /** Draw a trip as TripView holds it. */
  async show(trip) {
    this.trip = trip;
    this.shown = null;
    await classic("./vendor/uPlot.iife.min.js");
    if (this.trip !== trip) return;
    this.draw();
  }

  draw() {
    const { trip } = this;
    this.plot?.destroy();
    this.plot = null;
    if (!trip || !globalThis.uPlot || !this.element.clientWidth) return;
    const { time, n, low, high } = trip.track;
    const known = [...low, ...high, ...SPARE, trip.eps].filter((value) => value !== null && value !== undefined);
    const range = [Math.min(...known) - 0.3, Math.max(...known) + 0.5];
    const [grid, soft, grey] = ["line", "soft", "grey"].map(colour);
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: soft, font, ticks: { stroke: grid, size: 4 }, grid: { stroke: grid, width: 1 } };
    const band = { width: 0, points: { show: false }, spanGaps: false };
    this.plot = new globalThis.uPlot(
      {
        width: this.element.clientWidth,
        height: this.height,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: false, y: false },
          points: {
            size: (_, series) => (series === 3 ? 13 : 0),
            width: (_, series) => (series === 3 ? 2.5 : 0),
            stroke: () => colour("ink"),
            fill: "transparent",
          },
        },
        scales: { x: { time: false }, y: { range } },
        axes: [
          {
            ...axis,
            size: 30,
            grid: { show: false },
            splits: (u, k, from, to) => timesBetween(from, to, u.width),
            values: (_, splits) => splits.map((t) => clock(t, trip.ahead, t % 60 !== 0)),
          },
          {
            ...axis,
            size: 40,
            values: (_, splits) => splits.map((value) => signed(value, 0)),
            incrs: [1, 2, 5, 10, 20, 50],
          },
        ],
        series: [{}, { ...band }, { ...band }, { stroke: grey, width: 1, spanGaps: false, points: { show: false } }],
        bands: [{ series: [1, 2], fill: colour("band") }],
        hooks: {
          drawClear: [(u) => this.segments(u)],
          draw: [(u) => this.marks(u)],
          setCursor: [(u) => this.moved(u)],
        },
      },
      [time, high, low, n],
      this.element,
    );
  }

  get height() {
    return this.element.clientHeight || HEIGHT;
  }

  resized() {
    if (!this.plot) this.draw();
    else if (
      this.element.clientWidth &&
      (this.plot.width !== this.element.clientWidth || this.plot.height !== this.height)
    ) {
      this.plot.setSize({ width: this.element.clientWidth, height: this.height });
    }
  }

  segments(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.globalAlpha = 0.16;
    ctx.fillStyle = colour("odd");
    for (const { start, end } of this.trip.segments) {
      const from = u.valToPos(start, "x", true);
      ctx.fillRect(from, bbox.top, Math.max(u.valToPos(end, "x", true) - from, 2 * devicePixelRatio), bbox.height);
    }
    ctx.restore();
  }

  marks(u) {
    const { ctx, bbox } = u;
    const { track, eps, segments } = this.trip;
    const sharp = devicePixelRatio;
    ctx.save();
    const y = eps === null ? null : u.valToPos(eps, "y", true);
    ctx.strokeStyle = ctx.fillStyle = colour("ink");
    ctx.lineWidth = 1.2 * sharp;
    ctx.setLineDash([6 * sharp, 4 * sharp]);
    ctx.beginPath();
    if (y !== null) {
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.font = `${11.5 * sharp}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    track.time.forEach((time, i) => {
      const x = u.valToPos(time, "x", true);
      if (track.fault[i]) {
        ctx.fillStyle = colour("soft");
        ctx.textAlign = "center";
        ctx.fillText("×", x, bbox.top + bbox.height - 5 * sharp);
      } else if (track.n[i] !== null) {
        ctx.fillStyle = normalityColour(track.n[i]);
        ctx.beginPath();
        ctx.arc(x, u.valToPos(track.n[i], "y", true), 2.4 * sharp, 0, 2 * Math.PI);
        ctx.fill();
      }
    });
    ctx.textAlign = "right";
    ctx.strokeStyle = colour("paper");
    ctx.lineWidth = 4 * sharp;
    ctx.lineJoin = "round";
    for (const write of y === null ? [] : ["strokeText", "fillText"]) {
      ctx.fillStyle = colour("ink");
      ctx[write](`threshold ${signed(eps, 2)}`, bbox.left + bbox.width - 4 * sharp, y - 5 * sharp);
    }
    ctx.font = `bold ${11.5 * sharp}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    segments.forEach(({ start, end }, k) => {
      const x = (u.valToPos(start, "x", true) + u.valToPos(end, "x", true)) / 2;
      ctx.fillStyle = colour("odd");
      ctx.beginPath();
      ctx.arc(x, bbox.top + 11 * sharp, 9 * sharp, 0, 2 * Math.PI);
      ctx.fill();
      ctx.fillStyle = "#ffffff";
      ctx.fillText(String(k + 1), x, bbox.top + 11.5 * sharp);
    });
    ctx.restore();
  }

  moved(u) {
    if (this.silent) return;
    const i = u.cursor.left < 0 ? null : (u.cursor.idx ?? null);
    if (i !== this.shown) this.onFix(i);
  }

  key(event) {
    if (!this.trip || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.trip.track.time.length - 1;
    const now = this.shown ?? -1;
    const keys = { ArrowLeft: now - 1, ArrowRight: now + 1, PageDown: now - 10, PageUp: now + 10, Home: 0, End: last };
    if (event.key === "Escape") this.onFix(null);
    if (!(event.key in keys)) return;
    event.preventDefault();
    event.stopPropagation();
    this.onFix(Math.min(Math.max(keys[event.key], 0), last));
  }

  /** Show a fix as pointed at; the words are what is said of it. */
  pointFix(i, words) {
    this.shown = i;
    const { element, plot, trip } = this;
    element.setAttribute("aria-valuemin", "0");
    element.setAttribute("aria-valuemax", String(trip.track.time.length - 1));
    element.setAttribute("aria-valuenow", String(i ?? 0));
    element.setAttribute("aria-valuetext", i === null ? "no fix chosen" : words);
    if (!plot) return;
    this.silent = true;
    if (i === null) plot.setCursor({ left: -10, top: -10 });
    else
      plot.setCursor({
        left: plot.valToPos(trip.track.time[i], "x"),
        top: trip.track.n[i] === null ? 0 : plot.valToPos(trip.track.n[i], "y"),
      });
    this.silent = false;
  }

  destroy() {
    this.plot?.destroy();
    this.plot = null;
  }
}

/** Times for the axis: round ones, as many as fit. */
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
