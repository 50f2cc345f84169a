// The one map of the page: habitual ways, tracks coloured by normality, agents; without tiles unless there is a local file.

import { ask } from "./api.js";
import { STATES, colour, isDark } from "./colours.js";
import { make } from "./dom.js";
import { overlay } from "./map_layers.js";

const NEAR = 24; // pixels from the pointer within which a fix is meant
const NOTHING = { type: "FeatureCollection", features: [] };
const SOURCES = [
  "ways",
  "trails",
  "others",
  "expected",
  "odd",
  "track",
  "faults",
  "ends",
  "numbers",
  "agents",
  "pointed",
];

export const collection = (features) => ({ type: "FeatureCollection", features });
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

class PageMap {
  constructor() {
    this.element = make("div", { class: "map" });
    this.data = Object.fromEntries(SOURCES.map((name) => [name, NOTHING]));
    this.onFix = null; // called with the number of the fix that is pointed at, or null
    this.onAgent = null;
    this.fixes = []; // [lon, lat] of the track, for pointing
    this.basemap = null;
    this.box = null;
    this.words = "";
  }

  /** Show the map in a place of the page; it keeps its size and its WebGL context from view to view. */
  attach(place) {
    place.append(this.element);
    this.started ??= this.start();
    this.map?.resize();
  }

  /** The library is large: what can be read without a map does not wait for it. */
  async start() {
    const maplibre = await import("./vendor/maplibre-gl.mjs");
    try {
      this.map = new maplibre.Map({
        container: this.element,
        style: this.style(),
        center: [0, 20],
        zoom: 1,
        maxZoom: 19,
        attributionControl: false,
        dragRotate: false,
        pitchWithRotate: false,
        touchPitch: false,
        fadeDuration: 0,
        renderWorldCopies: true,
      });
    } catch {
      this.element.append(
        make("p", { class: "empty" }, "No map: this browser offers no WebGL 2. The words and the chart say the same."),
      );
      return;
    }
    const { map } = this;
    map.touchZoomRotate.disableRotation();
    map.keyboard.disableRotation();
    map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
    map.addControl(new maplibre.ScaleControl({ maxWidth: 120 }), "bottom-left");
    this.element.append(
      make(
        "button",
        {
          type: "button",
          class: "whole",
          title: "Show everything (0)",
          "aria-label": "Show everything",
          onclick: () => this.whole(),
        },
        "⤢",
      ),
    );
    map.getCanvas().addEventListener("keydown", (event) => event.key === "0" && this.whole());
    map.on("style.load", () => this.refill());
    map.on("idle", () => (this.element.dataset.ready = "yes"));
    map.on("mousemove", (event) => this.pointedAt(event));
    map.on("mouseout", () => this.onFix?.(null));
    map.on("click", (event) => {
      this.pointedAt(event);
      const agent = this.agentAt(event);
      if (agent !== null) this.onAgent?.(agent);
    });
    map.on("resize", () => this.box && !this.moved && this.fit(this.box));
    map.on("dragstart", () => (this.moved = true));
    map.on("zoomstart", (event) => (this.moved ||= Boolean(event.originalEvent)));
    this.label(this.words);
    if (this.box) this.fit(this.box);
    this.localTiles(maplibre);
  }

  label(words) {
    this.words = words;
    this.map
      ?.getCanvas()
      .setAttribute("aria-label", `${words} Arrow keys move the map, plus and minus zoom, 0 shows everything.`);
  }

  // ------------------------------------------------------------------ what is shown

  /** Replace what is shown: names of SOURCES to features; the others become empty. */
  show(parts, { fixes = [], box = null, onFix = null, onAgent = null } = {}) {
    delete this.element.dataset.ready;
    for (const name of SOURCES) this.set(name, parts[name] ?? []);
    Object.assign(this, { fixes, onFix, onAgent });
    if (box) this.whole(box);
  }

  set(name, features) {
    if (features.length === 0 && this.data[name].features.length === 0) return;
    this.data[name] = collection(features);
    this.map?.getSource(name)?.setData(this.data[name]);
  }

  /** What was set while the style was loading. */
  refill() {
    for (const id of Object.keys(STATES)) this.addMark(id);
    for (const name of SOURCES) this.map.getSource(name).setData(this.data[name]);
  }

  pointFix(i) {
    this.set("pointed", i === null || !this.fixes[i] ? [] : [point(this.fixes[i])]);
  }

  whole(box = this.box) {
    this.box = box;
    this.moved = false;
    if (box) this.fit(box);
  }

  fit(box, slowly = false) {
    if (!this.map) return;
    const animate = slowly && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    const small = Math.min(this.element.clientWidth, this.element.clientHeight);
    const padding = Math.min(48, small / 8);
    // The buttons stand at the right, the scale at the bottom.
    this.map.fitBounds(box, {
      padding: { top: padding, right: padding + 30, bottom: padding + 20, left: padding + this.covered() },
      maxZoom: 16,
      animate,
      duration: 350,
    });
  }

  /** Pixels at the left that a card lies over. */
  covered() {
    const card = this.element.parentElement.parentElement
      ?.querySelector(":scope > .card:not([hidden])")
      ?.getBoundingClientRect();
    const { left, top, bottom, width } = this.element.getBoundingClientRect();
    return card && card.top < bottom && card.bottom > top && card.width < width / 2 ? card.right - left : 0;
  }

  // ------------------------------------------------------------------ pointing

  pointedAt({ point: at }) {
    if (!this.onFix) {
      this.map.getCanvas().classList.toggle("over", this.onAgent !== null && this.agentAt({ point: at }) !== null);
      return;
    }
    let [found, least] = [null, NEAR];
    this.fixes.forEach((place, i) => {
      if (!place) return;
      const { x, y } = this.map.project(place);
      const apart = Math.hypot(x - at.x, y - at.y);
      if (apart < least) [found, least] = [i, apart];
    });
    this.onFix(found);
  }

  agentAt({ point: at }) {
    if (!this.onAgent || !this.map.getLayer("agents")) return null;
    const near = [
      [at.x - 8, at.y - 8],
      [at.x + 8, at.y + 8],
    ];
    return this.map.queryRenderedFeatures(near, { layers: ["agents"] })[0]?.properties.agent ?? null;
  }

  // ------------------------------------------------------------------ style

  /** In other colours, after the switch from light to dark. */
  restyle() {
    if (!this.map) return;
    this.map.setStyle(this.style(), { diff: false });
  }

  style() {
    const under = this.basemap
      ? this.basemap()
      : {
          sources: {},
          layers: [{ id: "ground", type: "background", paint: { "background-color": colour("ground") } }],
        };
    const sources = Object.fromEntries(SOURCES.map((name) => [name, { type: "geojson", data: this.data[name] }]));
    return { version: 8, sources: { ...under.sources, ...sources }, layers: [...under.layers, ...overlay()] };
  }

  /** The shape of a state, in the colours of now. */
  addMark(id) {
    const state = STATES[id];
    const size = 40;
    const canvas = new OffscreenCanvas(size, size);
    const pen = canvas.getContext("2d");
    pen.scale(size / 24, size / 24);
    pen.translate(2, 2);
    const path = new Path2D(state.path);
    pen.lineWidth = 3;
    pen.lineJoin = "round";
    pen.strokeStyle = colour("ground");
    pen.stroke(path);
    pen.fillStyle = colour(state.colour);
    pen.fill(path, "evenodd");
    if (this.map.hasImage(id)) this.map.removeImage(id);
    this.map.addImage(id, pen.getImageData(0, 0, size, size), { pixelRatio: 2 });
  }

  /** A PMTiles file that the settings name is drawn under everything; it comes from the service itself. */
  async localTiles(maplibre) {
    const settings = await ask("/api/settings").catch(() => null);
    if (!settings?.tiles) return;
    const [{ layers, namedFlavor }] = await Promise.all([
      import("./vendor/basemaps.mjs"),
      classic("./vendor/pmtiles.js"),
    ]);
    maplibre.addProtocol("pmtiles", new globalThis.pmtiles.Protocol().tile);
    const url = `pmtiles://${location.origin}/api/tiles`;
    this.basemap = () => ({
      sources: { tiles: { type: "vector", url } },
      // Icons would need a picture from elsewhere; names are drawn with the fonts of this computer.
      layers: layers("tiles", namedFlavor(isDark() ? "dark" : "light"), { lang: "en" }).map((layer) => ({
        ...layer,
        layout: withoutIcon(layer.layout),
      })),
    });
    this.map.addControl(new maplibre.AttributionControl({ compact: true, customAttribution: "© OpenStreetMap" }));
    this.restyle();
  }
}

function withoutIcon(layout = {}) {
  return Object.fromEntries(Object.entries(layout).filter(([name]) => !name.startsWith("icon-")));
}

/** A script that is no module, once. */
export function classic(path) {
  const src = new URL(path, import.meta.url).href;
  const there = document.querySelector(`script[src="${src}"]`);
  return new Promise((done, failed) => {
    if (there?.dataset.ready) return done();
    const script = there ?? make("script", { src });
    script.addEventListener("load", () => ((script.dataset.ready = "yes"), done()));
    script.addEventListener("error", () => failed(new Error(`${path} cannot be loaded`)));
    if (!there) document.head.append(script);
  });
}

/** The smallest box around places ([lon, lat]); null if there are none. Continuous across the antimeridian. */
export function boxAround(places) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  let first = null;
  for (const place of places) {
    if (!place) continue;
    first ??= place[0];
    const lon = first + ((((place[0] - first + 180) % 360) + 360) % 360) - 180;
    box[0] = Math.min(box[0], lon);
    box[1] = Math.min(box[1], place[1]);
    box[2] = Math.max(box[2], lon);
    box[3] = Math.max(box[3], place[1]);
  }
  return first === null ? null : box;
}

export const map = new PageMap();
