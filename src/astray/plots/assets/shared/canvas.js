// A sharp canvas that follows its size, and the shapes that map and chart draw on it.

export class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    new ResizeObserver(() => this.resized()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  get width() {
    return this.canvas.clientWidth;
  }

  get height() {
    return this.canvas.clientHeight;
  }

  resized() {
    this.draw();
  }

  /** Draws before the next frame, however often it is called. */
  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      if (!this.width || !this.height) return;
      const sharp = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(this.width * sharp);
      this.canvas.height = Math.round(this.height * sharp);
      this.pen.setTransform(sharp, 0, 0, sharp, 0, 0);
      this.pen.lineCap = this.pen.lineJoin = "round";
      const style = getComputedStyle(this.canvas);
      const known = new Map();
      this.paint(this.pen, (name) => {
        if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
        return known.get(name);
      });
    });
  }

  line(points, colour, width, dash = []) {
    if (points.length < 2) return;
    const { pen } = this;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    pen.setLineDash([]);
  }

  disc([x, y], radius, fill, stroke, width = 0) {
    const { pen } = this;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    if (fill) {
      pen.fillStyle = fill;
      pen.fill();
    }
    if (stroke) {
      pen.strokeStyle = stroke;
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  cross([x, y], colour) {
    this.line([[x - 4, y - 4], [x + 4, y + 4]], colour, 2);
    this.line([[x - 4, y + 4], [x + 4, y - 4]], colour, 2);
  }

  /** Writes text; with a halo, so that it can be read over lines. */
  text(words, [x, y], colour, { align = "center", font = "12px system-ui, sans-serif", halo = null } = {}) {
    const { pen } = this;
    Object.assign(pen, { font, textAlign: align, textBaseline: "middle" });
    if (halo) {
      pen.strokeStyle = halo;
      pen.lineWidth = 3;
      pen.strokeText(words, x, y);
    }
    pen.fillStyle = colour;
    pen.fillText(words, x, y);
  }

  number(number, at, colour) {
    this.disc(at, 10, colour("odd"), "#ffffff", 1.5);
    this.text(String(number), at, "#ffffff", { font: "bold 12px system-ui, sans-serif" });
  }
}

/** Returns the largest 1, 2 or 5 times a power of ten that is at most `most`. */
export function roundLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].find((n) => n * power <= most) * power;
}

/** Returns a number as text, with a minus sign as wide as a plus. */
export function signed(value, digits = 1) {
  if (value === null || value === undefined) return "–";
  return value
    .toFixed(digits)
    .replace("-", "−")
    .replace(/^−(0(\.0*)?)$/, "$1");
}
