// Normality against time: the band of uncertainty, the thresholds, the segments; pointing at it picks a fix.

const PLOT = { left: 40, right: 92, top: 8, bottom: 38 };

class TimeChart extends Drawing {
  constructor(canvas, colourOf, scale, onPoint) {
    super(canvas);
    this.colourOf = colourOf;
    this.scale = scale;
    this.onPoint = onPoint;
    this.listen();
  }

  show(trip) {
    let [low, high] = this.scale;
    for (const i of trip.usable) {
      low = Math.min(low, trip.normality[i] - 2 * trip.uncertainty[i]);
      high = Math.max(high, trip.normality[i] + 2 * trip.uncertainty[i]);
    }
    this.range = [low - 0.3, high + 0.5];
    this.lasts = Math.max(trip.time.at(-1) ?? 0, 1e-9);
    super.show(trip);
  }

  x(time) {
    return PLOT.left + (time / this.lasts) * (this.width - PLOT.left - PLOT.right);
  }

  y(normality) {
    const [low, high] = this.range;
    return PLOT.top + ((high - normality) / (high - low)) * (this.height - PLOT.top - PLOT.bottom);
  }

  listen() {
    const { canvas } = this;
    const pick = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const wanted = ((x - PLOT.left) / (this.width - PLOT.left - PLOT.right)) * this.lasts;
      const { time } = this.trip;
      let best = 0;
      for (let i = 1; i < time.length; i++) if (Math.abs(time[i] - wanted) < Math.abs(time[best] - wanted)) best = i;
      this.onPoint(best);
    };
    canvas.addEventListener("pointermove", pick);
    canvas.addEventListener("pointerdown", pick);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.onPoint(null);
    });
    canvas.addEventListener("keydown", (event) => {
      const last = this.trip.time.length - 1;
      const now = this.shown ?? 0;
      const keys = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1 };
      Object.assign(keys, { PageDown: now - 10, PageUp: now + 10, Home: 0, End: last });
      if (event.key === "Escape") this.onPoint(null);
      if (!(event.key in keys)) return;
      event.preventDefault();
      this.onPoint(Math.min(Math.max(keys[event.key], 0), last));
    });
  }

  point(fix) {
    super.point(fix);
    const { canvas, trip } = this;
    canvas.setAttribute("aria-valuemin", "0");
    canvas.setAttribute("aria-valuemax", String(trip.time.length - 1));
    canvas.setAttribute("aria-valuenow", String(fix ?? 0));
    canvas.setAttribute("aria-valuetext", fix === null ? "no fix chosen" : wordsOf(trip, fix).join(", "));
  }

  paint(pen, colour) {
    const { trip } = this;
    const bottom = this.height - PLOT.bottom;
    const right = this.width - PLOT.right;
    pen.fillStyle = colour("halo");
    pen.globalAlpha = 0.6;
    for (const { first, last } of trip.segments) {
      const from = this.x(trip.time[first]);
      pen.fillRect(from, PLOT.top, Math.max(this.x(trip.time[last]) - from, 2), bottom - PLOT.top);
    }
    pen.globalAlpha = 1;
    this.axes(colour, right, bottom);
    for (const run of this.runs()) this.band(run, colour);
    for (const i of trip.usable) {
      this.disc([this.x(trip.time[i]), this.y(trip.normality[i])], 2.4, this.colourOf(trip.normality[i]));
    }
    for (const i of trip.faults.keys()) this.cross([this.x(trip.time[i]), bottom - 8], colour("grey"));
    trip.segments.forEach(({ first, last }, k) => {
      this.number(k + 1, [(this.x(trip.time[first]) + this.x(trip.time[last])) / 2, PLOT.top + 13], colour);
    });
    if (this.shown !== null) {
      const x = this.x(trip.time[this.shown]);
      this.line([[x, PLOT.top], [x, bottom]], colour("ink"), 1);
      const n = trip.normality[this.shown];
      if (n !== null) {
        this.disc([x, this.y(n)], 6, null, colour("paper"), 5);
        this.disc([x, this.y(n)], 6, null, colour("ink"), 2.5);
      }
    }
  }

  axes(colour, right, bottom) {
    const { trip } = this;
    const apart = Math.max(roundLength((this.range[1] - this.range[0]) / 4), 1);
    for (let n = apart * Math.ceil(this.range[0] / apart); n <= this.range[1]; n += apart) {
      this.line([[PLOT.left, this.y(n)], [right, this.y(n)]], colour("line"), 0.7);
      this.text(signed(n, 0), [PLOT.left - 7, this.y(n)], colour("soft"), "right");
    }
    for (const [does, height, dash] of [["opens", trip.eps, []], ["closes", trip.leave, [4, 4]]]) {
      this.line([[PLOT.left, this.y(height)], [right, this.y(height)]], colour("ink"), 1.2, dash);
      this.text(`${does}: ${signed(height, 2).replace(/\.?0+$/, "")}`, [right + 6, this.y(height)], colour("ink"), "left");
    }
    const [unit, seconds] = trip.unit ?? ["step", 1];
    const step = Math.max(roundLength((1.6 * this.lasts) / seconds / Math.max((right - PLOT.left) / 60, 2)), 0.1);
    for (let k = 0; k * step * seconds <= this.lasts; k++) {
      const x = this.x(k * step * seconds);
      this.line([[x, bottom], [x, bottom + 4]], colour("grey"), 1);
      this.text(String(Math.round(10 * k * step) / 10), [x, bottom + 13], colour("soft"));
    }
    this.line([[PLOT.left, bottom], [right, bottom]], colour("grey"), 1);
    const name = trip.start === null ? unit : `${unit} since the start`;
    this.text(name, [(PLOT.left + right) / 2, this.height - 8], colour("soft"));
  }

  /** Usable fixes without a gap between them: nothing is drawn across a gap. */
  runs() {
    const { time, usable } = this.trip;
    const apart = usable.slice(1).map((i, k) => time[i] - time[usable[k]]);
    const moving = apart.filter((seconds) => seconds > 0).sort((a, b) => a - b);
    const gap = moving.length ? 10 * moving[moving.length >> 1] : Infinity;
    const runs = usable.length ? [[usable[0]]] : [];
    apart.forEach((seconds, k) => (seconds > gap ? runs.push([usable[k + 1]]) : runs.at(-1).push(usable[k + 1])));
    return runs;
  }

  band(run, colour) {
    const { pen, trip } = this;
    const edge = (side) => run.map((i) => [this.x(trip.time[i]), this.y(trip.normality[i] + side * trip.uncertainty[i])]);
    pen.beginPath();
    for (const at of edge(2)) pen.lineTo(...at);
    for (const at of edge(-2).reverse()) pen.lineTo(...at);
    pen.closePath();
    pen.fillStyle = colour("band");
    pen.fill();
    this.line(edge(0), colour("grey"), 1);
  }
}
