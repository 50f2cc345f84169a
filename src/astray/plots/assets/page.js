// The page: choose a trip, read its words, point at a fix in one drawing and see it in the other.

const data = JSON.parse(document.getElementById("data").textContent);
const part = (id) => document.getElementById(id);
const colourOf = palette(data.colours);
const range = [data.colours[0][0], data.colours.at(-1)[0]];

/** An element with text, never with markup: names in the data are somebody else's. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const map = new TripMap(part("map"), colourOf, point, placeTip);
const chart = new TimeChart(part("chart"), colourOf, range, point);
let trip = null;

function point(fix) {
  map.point(fix);
  chart.point(fix);
  const words = fix === null ? [] : wordsOf(trip, fix);
  part("readout").textContent = fix === null ? "Point at the map or the curve to read a fix." : words.join(" · ");
  const tip = part("tip");
  tip.hidden = fix === null || !trip.path.length;
  if (tip.hidden) return;
  tip.textContent = words.join("\n");
  placeTip();
}

/** Beside the fix that is pointed at, wherever the map has been moved to. */
function placeTip() {
  const tip = part("tip");
  if (tip.hidden || map.shown === null) return;
  const [x, y] = map.pixels(trip.path[map.shown]);
  const inside = x >= 0 && x <= map.width && y >= 0 && y <= map.height;
  tip.style.visibility = inside ? "visible" : "hidden";
  const left = x + 18 + tip.offsetWidth < map.width ? x + 18 : x - 18 - tip.offsetWidth;
  const top = Math.min(Math.max(y - tip.offsetHeight / 2, 4), map.height - tip.offsetHeight - 4);
  tip.style.transform = `translate(${Math.max(left, 4)}px, ${top}px)`;
}

function choose(number) {
  trip = readTrip(data.trips[number], data.ways);
  document.title = trip.heading;
  part("heading").textContent = trip.heading;
  part("grounds").textContent = trip.grounds.join("\n");
  part("map-part").hidden = !trip.path.length;
  if (trip.path.length) map.show(trip);
  chart.show(trip);
  point(null);
  part("map").setAttribute(
    "aria-label",
    `${trip.heading}. ${trip.segments.length} segments are not normal. Arrow keys move the map, plus and minus zoom, 0 shows the whole trip.`,
  );
  keys();
  segments();
  for (const [i, button] of part("trips").querySelectorAll("button").entries()) {
    button.setAttribute("aria-current", String(i === number));
  }
}

function segments() {
  part("segments-title").textContent = trip.segments.length ? "Not normal" : "No segment of it stands out";
  part("segments").replaceChildren(
    ...trip.segments.map((segment, i) => {
      const button = element("button");
      button.type = "button";
      const words = element("span");
      words.append(element("span", "at", segment.at), ` ${segment.words}`);
      button.append(element("span", "number", i + 1), words);
      button.addEventListener("click", () => {
        if (!trip.path.length) return point(segment.first);
        point(null);
        map.segment(segment);
        part("map").scrollIntoView({ block: "nearest" });
      });
      const item = element("li");
      item.append(button);
      return item;
    }),
  );
}

function keys() {
  const scale = element("li", "scale", "normality");
  const ramp = element("span", "ramp");
  const bar = element("div", "bar");
  const at = (n) => (100 * (n - range[0])) / (range[1] - range[0]);
  bar.style.background = `linear-gradient(to right, ${data.colours.map(([n, colour]) => `${colour} ${at(n)}%`).join(", ")})`;
  ramp.append(bar);
  for (const [n] of data.colours) {
    const tick = element("span", "tick", signed(n, 0));
    tick.style.left = `${at(n)}%`;
    ramp.append(tick);
  }
  if (trip.eps >= range[0] && trip.eps <= range[1]) {
    const mark = element("span", "mark");
    mark.style.left = `${at(trip.eps)}%`;
    ramp.append(mark);
  }
  scale.append(ramp);
  const shown = [
    ["way", "habitual ways", trip.habitual.length],
    ["odd", "not normal", trip.segments.length],
    ["expected", "expected way", trip.expected.length],
    ["start", "start", true],
    ["end", "end", true],
    ["stop", `stood ${trip.stop?.minutes} minutes`, trip.stop],
    ["fault", "faulty fixes", trip.faults.size],
  ];
  const items = shown.filter(([, , there]) => there).map(([name, words]) => {
    const item = element("li");
    item.append(element("span", `key ${name}`), words);
    return item;
  });
  part("keys").replaceChildren(scale, ...items);
}

function list() {
  part("trips").hidden = data.trips.length < 2;
  part("trips").querySelector("ul").append(
    ...data.trips.map((raw, i) => {
      const button = element("button");
      button.type = "button";
      const name = element("span", "name");
      name.append(element("span", "", raw.trajectory), element("span", "score", raw.score === null ? "–" : signed(raw.score, 1)));
      const about = element("span", "about");
      about.append(element("span", "", raw.about), element("span", `verdict ${raw.decision}`, raw.decision));
      button.append(name, about);
      button.addEventListener("click", () => choose(i));
      const item = element("li");
      item.append(button);
      return item;
    }),
  );
}

for (const button of document.querySelectorAll("[data-zoom]")) {
  const does = { in: () => map.zoom(1.5), out: () => map.zoom(1 / 1.5), all: () => map.whole() };
  button.addEventListener("click", () => does[button.dataset.zoom]());
}
part("page").hidden = false;
list();
choose(0);
