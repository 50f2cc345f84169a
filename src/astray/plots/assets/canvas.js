// What both drawings share: a sharp canvas that follows its size, and the colours of the page.

class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.trip = null;
    this.shown = null; // the fix that is pointed at
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

  /** Draw before the next frame, however often it is asked for. */
  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      if (!this.trip || !this.width) return;
      const sharp = window.devicePixelRatio || 1;
      this.canvas.width = Math.round(this.width * sharp);
      this.canvas.height = Math.round(this.height * sharp);
      this.pen.setTransform(sharp, 0, 0, sharp, 0, 0);
      this.pen.lineCap = this.pen.lineJoin = "round";
      const style = getComputedStyle(this.canvas);
      const colour = (name) => style.getPropertyValue(`--${name}`).trim();
      this.paint(this.pen, colour);
    });
  }

  show(trip) {
    this.trip = trip;
    this.shown = null;
    this.draw();
  }

  point(fix) {
    this.shown = fix;
    this.draw();
  }

  line(points, colour, width, dash = []) {
    if (points.length < 2) return;
    const pen = this.pen;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    pen.setLineDash([]);
  }

  disc([x, y], radius, fill, stroke, width = 0) {
    const pen = this.pen;
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

  text(words, [x, y], colour, align = "center", font = "12px system-ui, sans-serif") {
    this.pen.font = font;
    this.pen.fillStyle = colour;
    this.pen.textAlign = align;
    this.pen.textBaseline = "middle";
    this.pen.fillText(words, x, y);
  }

  number(number, at, colour) {
    this.disc(at, 10, colour("odd"), "#ffffff", 1.5);
    this.text(String(number), at, "#ffffff", "center", "bold 12px system-ui, sans-serif");
  }
}
