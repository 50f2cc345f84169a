// The map: the trip coloured by normality over the agent's habitual ways; it can be moved and zoomed.

const NEAR = 24; // pixels from the pointer within which a fix is meant
const CLOSEST = 4; // pixels a metre, at most

class TripMap extends Drawing {
  constructor(canvas, colourOf, onPoint, onPainted) {
    super(canvas);
    this.colourOf = colourOf;
    this.onPoint = onPoint;
    this.onPainted = onPainted;
    this.fingers = new Map();
    this.view = { x: 0, y: 0, scale: 1 };
    this.listen();
  }

  show(trip) {
    super.show(trip);
    this.whole();
  }

  resized() {
    // Until the reader moves the map it keeps showing what it was told to.
    if (this.trip && this.framed) this.frame(this.framed);
    super.resized();
  }

  // ------------------------------------------------------------------ where one looks

  whole() {
    this.frame(this.trip.frame);
  }

  segment({ first, last }) {
    this.frame(bounds(this.trip.path.slice(first, last + 1)), 0.25, true);
  }

  frame(box, margin = 0.1, slowly = false) {
    this.framed = box;
    const [wide, tall] = [box[2] - box[0], box[3] - box[1]].map((side) => Math.max(side * (1 + 2 * margin), 300));
    const scale = Math.min(this.width / wide, this.height / tall) || 1;
    this.go({ x: (box[0] + box[2]) / 2, y: (box[1] + box[3]) / 2, scale }, slowly);
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
    const [x, y] = this.metres(at);
    const scale = Math.min(Math.max(this.view.scale * factor, 1e-5), CLOSEST);
    const real = scale / this.view.scale;
    this.framed = this.heading = null;
    this.view = { x: x - (x - this.view.x) / real, y: y - (y - this.view.y) / real, scale };
    this.draw();
  }

  move(right, down) {
    const { x, y, scale } = this.view;
    this.framed = this.heading = null;
    this.view = { x: x - right / scale, y: y + down / scale, scale };
    this.draw();
  }

  pixels([x, y]) {
    const { view } = this;
    return [this.width / 2 + (x - view.x) * view.scale, this.height / 2 - (y - view.y) * view.scale];
  }

  metres([x, y]) {
    const { view } = this;
    return [view.x + (x - this.width / 2) / view.scale, view.y - (y - this.height / 2) / view.scale];
  }

  // ------------------------------------------------------------------ hands

  listen() {
    const { canvas, fingers } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-0.0022 * lines * event.deltaY), place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      canvas.classList.add("moving");
      if (event.pointerType !== "mouse") this.onPoint(this.nearest(place(event)));
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      if (!fingers.has(event.pointerId)) {
        this.onPoint(this.nearest(now));
        return;
      }
      const before = fingers.get(event.pointerId);
      const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const apart = ([x, y]) => Math.max(Math.hypot(x - other[0], y - other[1]), 1);
        this.zoom(apart(now) / apart(before), other);
      } else {
        this.move(now[0] - before[0], now[1] - before[1]);
      }
      fingers.set(event.pointerId, now);
    });
    const up = (event) => {
      fingers.delete(event.pointerId);
      if (!fingers.size) canvas.classList.remove("moving");
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.onPoint(null);
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

  /** The fix that is meant by a place on the canvas, or null. */
  nearest(at) {
    let found = null;
    let least = NEAR;
    this.trip.path.forEach((place, i) => {
      const [x, y] = this.pixels(place);
      const apart = Math.hypot(x - at[0], y - at[1]);
      if (apart < least) [found, least] = [i, apart];
    });
    return found;
  }

  // ------------------------------------------------------------------ drawing

  paint(pen, colour) {
    const { trip } = this;
    const on = (way) => way.map((place) => this.pixels(place));
    pen.globalAlpha = 0.75;
    for (const way of trip.habitual) this.line(on(way), colour("pale"), 2);
    pen.globalAlpha = 1;
    const usable = trip.usable.map((i) => this.pixels(trip.path[i]));
    const segments = trip.segments.map(({ first, last }) => usable.filter((_, k) => first <= trip.usable[k] && trip.usable[k] <= last));
    for (const points of segments) {
      this.line(points, colour("halo"), 22);
      if (points.length === 1) this.disc(points[0], 11, colour("halo"));
    }
    for (const way of trip.expected.slice(1)) this.line(on(way), colour("soft"), 1.5, [1, 5]);
    const drawn = this.thinned(usable);
    this.line(drawn.map(({ at }) => at), colour("ink"), 6.5);
    this.coloured(drawn);
    if (trip.expected.length) {
      this.line(on(trip.expected[0]), colour("ground"), 4.5);
      this.line(on(trip.expected[0]), colour("ink"), 2.5, [8, 6]);
    }
    for (const i of trip.faults.keys()) this.cross(this.pixels(trip.path[i]), colour("grey"));
    this.ends(usable, colour);
    segments.forEach((points, i) => {
      if (!points.length) return;
      const [x, y] = points[points.length >> 1];
      this.number(i + 1, [x + 16, y - 16], colour);
    });
    if (this.shown !== null) {
      const at = this.pixels(trip.path[this.shown]);
      this.disc(at, 9, null, colour("ground"), 6);
      this.disc(at, 9, null, colour("ink"), 3);
    }
    this.scaleBar(colour);
    // As long as the reader has not moved the map: then they may be in view.
    if (trip.away && this.framed === trip.frame) this.text(trip.away, [this.width / 2, 16], colour("ink"));
    this.onPainted();
  }

  /** Of places that fall on the same pixel one, with the lowest normality on the way to it (its own included). */
  thinned(points) {
    const { trip } = this;
    const drawn = [];
    let low = Infinity;
    points.forEach((at, k) => {
      low = Math.min(low, trip.normality[trip.usable[k]]);
      const before = drawn.at(-1)?.at;
      if (before && k < points.length - 1 && Math.hypot(at[0] - before[0], at[1] - before[1]) < 1.5) return;
      drawn.push({ at, low });
      low = trip.normality[trip.usable[k]];
    });
    return drawn;
  }

  /** The trip: each piece has the colour of the lowest fix on it. */
  coloured(drawn) {
    const { pen } = this;
    let run = null;
    pen.lineWidth = 4.5;
    for (let k = 1; k < drawn.length; k++) {
      const colour = this.colourOf(Math.round(20 * drawn[k].low) / 20);
      if (colour !== run) {
        if (run !== null) pen.stroke();
        pen.strokeStyle = run = colour;
        pen.beginPath();
        pen.moveTo(...drawn[k - 1].at);
      }
      pen.lineTo(...drawn[k].at);
    }
    if (run !== null) pen.stroke();
  }

  ends(usable, colour) {
    const { pen, trip } = this;
    const shown = usable.length ? usable : trip.path.map((place) => this.pixels(place));
    if (!shown.length) return;
    const [x, y] = shown.at(-1);
    pen.fillStyle = colour("ink");
    pen.strokeStyle = colour("ground");
    pen.lineWidth = 2;
    pen.fillRect(x - 6, y - 6, 12, 12);
    pen.strokeRect(x - 7, y - 7, 14, 14);
    this.disc(shown[0], 7, colour("ground"), colour("ink"), 2.5);
    if (!trip.stop) return;
    const [a, b] = this.pixels(trip.stop.at);
    pen.beginPath();
    for (let k = 0; k < 6; k++) pen.lineTo(a + 8.5 * Math.cos((k * Math.PI) / 3), b + 8.5 * Math.sin((k * Math.PI) / 3));
    pen.closePath();
    pen.fillStyle = colour("ground");
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2.5;
    pen.fill();
    pen.stroke();
  }

  scaleBar(colour) {
    const length = roundLength(Math.min(this.width / 4, 220) / this.view.scale);
    const [x, y, wide] = [16, this.height - 16, length * this.view.scale];
    this.line([[x, y], [x + wide, y]], colour("ground"), 7);
    this.line([[x, y], [x + wide, y]], colour("ink"), 3);
    const words = length >= 1000 ? `${length / 1000} km` : length >= 1 ? `${length} m` : `${Math.round(100 * length)} cm`;
    this.text(words, [x + wide / 2, y - 12], colour("ink"));
    this.text("N ↑", [this.width - 16, this.height - 16], colour("ink"), "right");
  }
}
